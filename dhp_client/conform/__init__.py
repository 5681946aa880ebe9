"""Whether a daemon speaks dhp/1: asked from outside, over the wire, point by point.

Owns the points and how they are checked. Knows the protocol only by SPEC.md and the vectors: it works against any
implementation, and uses nothing of the client's own way of talking to a daemon but its addresses.
"""
