"""Durable work by any program: `dhp run` claims, a program works, and what it prints is acted on.

Owns what passes between a claimed handoff and a program. Leases, fences and retries are the client's and the daemon's.
"""
