"""The protocol dhp/1 as code: framing, messages, intent and its id, errors.

Owns everything that a daemon and a client must agree on. Pure: no sockets, no clock, no files. The same objects
serve the daemon, the clients, the fuzzers and the conformance vectors; ``protocol/SPEC.md`` says it in prose.
"""

PROTOCOL = "dhp/1"
"""What `hello` tells as `protocol`."""
