"""Processes with bounds that the kernel keeps, for whatever strangers send that isn't plainly cheap to take in.

A long intent to be named, a schema or a result to be judged: each is a task for it, so that nothing that a stranger sends
takes the event loop longer than about a millisecond, and a task that hangs or swells ends the process and nothing else.
"""
