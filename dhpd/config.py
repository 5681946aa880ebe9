"""Settings: one frozen struct, built once at start.

Owns names, defaults and bounds, and where a setting comes from: defaults < FILE (TOML) < `DHPD_*` < flags. Does not own
what a setting does.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from dhp_protocol.limits import Limits

MOST = 3_153_600_000_000
"""Of anything: 100 years in milliseconds. What can be more is of no use to anybody, and of none to a timer."""
Positive = Annotated[int, Meta(ge=1, le=MOST)]


class ConfigError(Exception):
    """A setting can't be used; the message names it and says what to do."""


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that can be set. Names in the file are these; in the environment `DHPD_` and the name in capitals."""

    data: str = "./dhpd-data"
    listen: list[str] | None = None
    """`HOST:PORT` (port 0 takes a free one) or `unix:PATH`; None: 127.0.0.1:8471 and DATA/dhpd.sock."""
    tokens: str | None = None
    """The token file, which whoever comes over TCP must have a token of; None: nobody needs one."""
    hello_within_ms: Positive = 5_000
    """How long a connection that needs a token may take until its `hello` is accepted."""
    tls_cert: str | None = None
    """The daemon's certificate, and those between it and its CA, in PEM form; with it, TCP speaks TLS and nothing else."""
    tls_key: str | None = None
    """The certificate's key, in PEM form, which nobody else may read."""
    tls_client_ca: str | None = None
    """Whoever comes over TLS shows a certificate signed by one of those in this file; its name is the worker's."""
    handshake_within_ms: Positive = 5_000
    """How long a connection may take until TLS is agreed on."""
    insecure: bool = False
    """Allows addresses that aren't loopback without TLS, or without tokens."""
    power_safe: bool = True
    """Whether every answer waits for an fsync; without, answers survive a crash but not a power loss."""
    idle_exit_ms: Positive | None = None
    """Ends the daemon when nobody was connected and nothing was live for so long."""

    ballast_bytes: Annotated[int, Meta(ge=1024 * 1024, le=1024 * 1024 * 1024)] = 16 * 1024 * 1024
    """So much room is held back in DATA, for the ends of work on a disk that is full otherwise."""

    retention_ms: Annotated[int, Meta(ge=1_000, le=MOST)] = 30 * 86_400_000
    """So long after its `ack` a handoff is kept; one that nobody acknowledged is kept for good. At most 100 years."""

    ttl_ms: Positive = 6_000
    min_ttl_ms: Positive = 500
    max_ttl_ms: Positive = 3_600_000

    drain_grace_ms: Annotated[int, Meta(ge=0, le=MOST)] = 0
    """So long SIGTERM waits for the leases that live to end, before it stops; a second one stops at once."""

    max_connections: Positive = 10_000
    """Where a token is required, half of these at most are of those who haven't said hello yet."""
    idle_ms: Positive = Limits().idle_ms
    """A connection without `hello` and with nothing open that says nothing for so long is closed."""
    vanished_ms: Annotated[int, Meta(ge=1_000, le=MOST)] = 45_000
    """A connection whose peer's host confirms nothing for so long, not even that it is there, is closed."""
    frame_within_ms: Positive = Limits().frame_within_ms
    """So long a frame may take to come, and as long again for each 64 KiB of it."""
    max_inflight_requests: Positive = Limits().max_inflight_requests
    """Per connection: requests taken in and not yet answered, waiting ones apart."""
    max_inflight_bytes: Positive = 16 * 1024 * 1024
    """Per connection: what those requests are long, at most, and one frame more."""
    max_waiting_requests: Positive = Limits().max_waiting_requests
    """Per connection: claims, results and approvals that wait."""
    max_waiting_in_all: Positive = 262_144
    """Of those, all connections together; a claim counts once for each of its kinds."""
    max_unsent_bytes: Annotated[int, Meta(ge=1, le=1024 * 1024 * 1024)] = Limits().max_unsent_bytes
    """Per connection: beyond it, nothing more is read from the peer until it reads."""
    max_buffered_bytes: Positive = 128 * 1024 * 1024
    """In all: input that isn't whole yet, or isn't answered, but for 16 KiB of each connection."""
    max_unsent_bytes_in_all: Positive = 128 * 1024 * 1024
    """In all: answers and events that peers don't read, but for 16 KiB of each connection."""
    max_queued_bytes: Positive = 64 * 1024 * 1024
    """In all: what waits for the disk."""

    max_frame_bytes: Annotated[int, Meta(ge=4096, le=1024 * 1024 * 1024)] = Limits().max_frame_bytes
    max_depth: Annotated[int, Meta(ge=100, le=500)] = Limits().max_depth
    max_state_bytes: Positive = Limits().max_state_bytes
    max_result_bytes: Positive = Limits().max_result_bytes
    max_intent_bytes: Positive = Limits().max_intent_bytes
    max_bundle_bytes: Positive = Limits().max_bundle_bytes
    """A bundle is taken over in one commit, and held in memory until then."""
    max_bundle_records: Positive = Limits().max_bundle_records
    max_wait_ms: Positive = Limits().max_wait_ms
    max_page: Positive = Limits().max_page

    def limits(self) -> Limits:
        """What `hello` tells."""
        return Limits(
            max_frame_bytes=self.max_frame_bytes,
            max_depth=self.max_depth,
            max_state_bytes=self.max_state_bytes,
            max_result_bytes=self.max_result_bytes,
            max_intent_bytes=self.max_intent_bytes,
            max_bundle_bytes=self.max_bundle_bytes,
            max_bundle_records=self.max_bundle_records,
            max_wait_ms=self.max_wait_ms,
            max_page=self.max_page,
            max_inflight_requests=self.max_inflight_requests,
            max_waiting_requests=self.max_waiting_requests,
            max_unsent_bytes=self.max_unsent_bytes,
            frame_within_ms=self.frame_within_ms,
            idle_ms=self.idle_ms,
        )


def load_config(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> Config:
    """The settings in force; raises `ConfigError`. A flag that is None wasn't given."""
    members: dict[str, Any] = {}
    if file is not None:
        import tomllib

        try:
            members.update(tomllib.loads(file.read_text()))
        except (
            OSError,
            ValueError,
            RecursionError,
        ) as error:  # TOML has numbers longer than Python reads, and any depth.
            raise ConfigError(f"The settings file {file} can't be read: {error}.") from None
    members.update(_from_environment(environment))
    members.update({name: value for name, value in flags.items() if value is not None})
    try:
        config = msgspec.convert(members, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"A setting can't be used: {error}.") from None
    if not config.min_ttl_ms <= config.ttl_ms <= config.max_ttl_ms:
        raise ConfigError("ttl_ms must lie between min_ttl_ms and max_ttl_ms.")
    if config.max_frame_bytes < max(config.max_state_bytes, config.max_result_bytes) + config.max_intent_bytes + 4096:
        raise ConfigError("max_frame_bytes must hold a state or result and an intent together, and 4096 bytes more.")
    if config.max_buffered_bytes < config.max_frame_bytes:
        raise ConfigError("max_buffered_bytes must hold a frame: at least max_frame_bytes.")
    if config.max_unsent_bytes_in_all < config.max_frame_bytes:
        raise ConfigError("max_unsent_bytes_in_all must hold an answer: at least max_frame_bytes.")
    return config


_TEXTS = ("data", "tokens", "tls_cert", "tls_key", "tls_client_ca")


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in Config.__struct_fields__:
        text = environment.get(f"DHPD_{name.upper()}")
        if text is None:
            continue
        if name == "listen":
            found[name] = text.split()
        elif name in _TEXTS:
            found[name] = text
        else:
            found[name] = _number_or_flag(name, text)
    return found


def _number_or_flag(name: str, text: str) -> int | bool:
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"DHPD_{name.upper()} must be a whole number, true or false, not {text!r}.") from None


def environment() -> Mapping[str, str]:
    """The process's environment."""
    return os.environ
