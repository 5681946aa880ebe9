"""Peers: one module each, which starts the peer with its safest settings and does the same work with it."""
