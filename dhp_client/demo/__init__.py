"""`dhp demo`: a worker is killed in the middle of its work, and another one finishes it.

Owns a folder, a daemon of its own, two worker processes and the pages that they fetch. Uses the client as any program
would: nothing here is known to the daemon.
"""
