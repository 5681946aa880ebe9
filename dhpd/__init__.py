"""dhpd, the daemon of the Durable Handoff Protocol: it owns the store and the lease clock."""

__version__ = "0.1.0"
