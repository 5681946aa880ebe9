"""An A2A server whose tasks are handoffs: whoever speaks A2A can hand work off, follow it, and take its result.

Owns the translation between A2A's words and the client's, in both directions. Holds no state: a task is a handoff, a stream follows the
handoff's records from a position, so that the process may end and be started at any time. Needs the extra `a2a`; imported by `dhp a2a`
alone.
"""
