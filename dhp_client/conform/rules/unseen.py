"""What SPEC.md promises and nobody can see from outside of a daemon that isn't to be hurt. Named, so that no report claims it."""

from ..points import Rules

rules = Rules("unseen", "10 Promises and retries")

for _name, _section, _rule in (
    ("no answer shows what a crash could take back", "10 Promises and retries", "An answer leaves only when all it looked at is durable."),
    ("what was acknowledged survives power loss", "10 Promises and retries", "Durable means: on disk, flushed."),
    ("leases survive a restart", "6 Leases and sessions", "Leases, sessions, nonces and approvals survive a restart of the daemon."),
    ("lost time is given back", "6 Leases and sessions", "A daemon that was stopped moves leases by the time it lost."),
    ("a failing disk takes nothing back", "10 Promises and retries", "store_unavailable leaves it open whether a request took effect."),
    ("retention after 30 days", "8 Records, Retention", "A final handoff is removed so long after its ack, never without."),
    ("a slow reader is told", "9 Events", "lagged names the position to watch again from, or the reader waits."),
    ("not primary", "12 Errors", "A daemon that follows another one says so."),
):  # fmt: skip
    rules.add(_name, _rule, None, section=_section)
