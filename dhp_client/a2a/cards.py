"""The agent card: what this server says of itself.

Owns which kinds a card's skills stand for, and what a card that somebody wrote can't decide: where the server is, and what it can do.
"""

import json
import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0
from google.protobuf.json_format import ParseDict, ParseError

from dhp_protocol.limits import MAX_KIND_CHARS

MODES = ("application/json", "text/plain")

_KIND = re.compile(rf"[A-Za-z0-9._:/-]{{1,{MAX_KIND_CHARS}}}")


class BadCard(ValueError):
    """The file holds no agent card that could be served, or no kind is named; the message says why."""


def card_in(file: str) -> AgentCard:
    """The card that a file holds, as JSON. Raises `BadCard`."""
    card = AgentCard()
    try:
        ParseDict(json.loads(Path(file).read_text("utf-8")), card, ignore_unknown_fields=True)
    except OSError as error:
        raise BadCard(f"The card {file} can't be read: {error.strerror}.") from None
    except (ValueError, ParseError) as error:
        raise BadCard(f"The card {file} is no agent card: {error}.") from None
    return card


def kinds_of(card: AgentCard, further: Sequence[str]) -> tuple[str, ...]:
    """The kinds that are served: one for each of the card's skills, by its id, and those given. Raises `BadCard`."""
    kinds = tuple(dict.fromkeys((*(skill.id for skill in card.skills), *further)))
    if not kinds:
        raise BadCard("There is nothing to serve: name a kind of work with --kind, or a card with skills with --card.")
    for kind in kinds:
        if not _KIND.fullmatch(kind):
            raise BadCard(f"{kind!r} is no kind: it has 1 to {MAX_KIND_CHARS} of A-Z a-z 0-9 . _ : / -")
    return kinds


def served_card(card: AgentCard, kinds: Sequence[str], url: str, *, wants_token: bool) -> AgentCard:
    """`card`, completed: one skill for each kind, the address, and what this server can do."""
    served = AgentCard()
    served.CopyFrom(card)
    served.name = card.name or "dhp"
    served.description = card.description or "Work that outlives whoever is doing it."
    served.version = card.version or version("dhpd")
    for modes in (served.default_input_modes, served.default_output_modes):
        if not modes:
            modes.extend(MODES)
    known = {skill.id for skill in card.skills}
    served.skills.extend(
        AgentSkill(id=kind, name=kind, description=f"Work of the kind {kind}.", tags=["dhp"])
        for kind in kinds
        if kind not in known
    )
    served.ClearField("supported_interfaces")
    served.supported_interfaces.extend(
        AgentInterface(url=f"{url}/", protocol_binding="JSONRPC", protocol_version=spoken)
        for spoken in (PROTOCOL_VERSION_1_0, PROTOCOL_VERSION_0_3)
    )
    served.ClearField("signatures")  # They were made over another card.
    served.capabilities.CopyFrom(AgentCapabilities(streaming=True, push_notifications=False))
    if wants_token:
        scheme = SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="bearer"))
        served.security_schemes["bearer"].CopyFrom(scheme)
        served.security_requirements.append(SecurityRequirement(schemes={"bearer": StringList()}))
    return served
