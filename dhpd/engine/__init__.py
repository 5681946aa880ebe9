"""The engine: what may happen to a handoff, and what then is so.

Pure: no sockets, no files, no clock, no randomness of its own; time and chance are arguments. `core.Engine` is the whole of
it as one object, which the server drives and the simulation drives the same way.
"""
