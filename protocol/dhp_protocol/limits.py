"""Bounds that both sides know: what `hello` tells as `limits`.

Owns the numbers; the message structs and the daemon's settings refer to them.
"""

import msgspec

MAX_SAFE_INTEGER = 2**53 - 1
"""Integers and their sums stay at or below it, so that a double shows each exactly."""

MAX_PRIORITY = 9
DEFAULT_PRIORITY = 5
MAX_KIND_CHARS = 128
MAX_KEY_CHARS = 256
MAX_NAME_CHARS = 128
"""Bounds `worker`, `session`, `nonce`, `client`."""
MAX_TOKEN_CHARS = 1024
MAX_ID_BYTES = 256
MAX_REASON_CHARS = 1024
MAX_ERROR_CHARS = 8192
MAX_KINDS = 64
MAX_LABELS = 64
MAX_LABEL_CHARS = 256
MAX_LEASES = 1_000
MAX_PARENT_DEPTH = 32
MAX_DELAY_MS = 10 * 365 * 86_400_000
MAX_ATTEMPTS = 1_000_000
DEFAULT_MAX_ATTEMPTS = 3
MAX_STEPS = 1_000_000_000
DEFAULT_KEEP_CHECKPOINTS = 16
MAX_KEEP_CHECKPOINTS = 1_000_000
MAX_STEP_CHARS = 256
MAX_ACTION_CHARS = 256
MAX_DIGEST_CHARS = 256
MAX_RESOURCE_CHARS = 1024
MAX_NOTE_CHARS = 4096
MAX_EFFECTS = 1_000
MAX_APPROVALS = 1_000
"""Per handoff: effects and approvals are kept in memory while it lives, and written with its facts."""
MAX_OPEN_APPROVALS = 100
MAX_BUNDLE_LINES = 10_000
"""In one request."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one daemon takes, in bytes, characters, counts and milliseconds."""

    max_frame_bytes: int = 8 * 1024 * 1024
    max_depth: int = 128
    max_state_bytes: int = 4 * 1024 * 1024
    max_result_bytes: int = 4 * 1024 * 1024
    max_intent_bytes: int = 1024 * 1024
    max_details_bytes: int = 64 * 1024
    max_bundle_bytes: int = 64 * 1024 * 1024
    max_bundle_records: int = 10_000
    max_wait_ms: int = 600_000
    max_page: int = 1_000
    max_inflight_requests: int = 1_024
    max_waiting_requests: int = 1_024
    max_unsent_bytes: int = 1024 * 1024
    frame_within_ms: int = 30_000
    idle_ms: int = 600_000
    max_id_bytes: int = MAX_ID_BYTES
    max_kind_chars: int = MAX_KIND_CHARS
    max_key_chars: int = MAX_KEY_CHARS
    max_name_chars: int = MAX_NAME_CHARS
    max_token_chars: int = MAX_TOKEN_CHARS
    max_reason_chars: int = MAX_REASON_CHARS
    max_error_chars: int = MAX_ERROR_CHARS
    max_kinds: int = MAX_KINDS
    max_labels: int = MAX_LABELS
    max_label_chars: int = MAX_LABEL_CHARS
    max_leases: int = MAX_LEASES
    max_parent_depth: int = MAX_PARENT_DEPTH
    max_delay_ms: int = MAX_DELAY_MS
    max_effects: int = MAX_EFFECTS
    max_approvals: int = MAX_APPROVALS
    max_open_approvals: int = MAX_OPEN_APPROVALS
