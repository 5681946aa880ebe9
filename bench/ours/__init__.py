"""Ours: the figures of `dhpd` and its clients, each part on a daemon of its own with its settings as they come."""
