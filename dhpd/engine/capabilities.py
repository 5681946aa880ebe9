"""Rules for capabilities: what a handoff may touch, as its intent says.

Owns the form of a capability set and when a resource is within it. Everything that isn't granted is refused. Pure.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from dhp_protocol.errors import InvalidRequest
from dhp_protocol.limits import MAX_LABEL_CHARS, MAX_RESOURCE_CHARS

MAX_DOMAINS = 64
MAX_RESOURCES = 1_000

Capabilities = Mapping[str, list[str]]
_decode = msgspec.json.Decoder(dict[str, list[str]]).decode


def capabilities_of(raw: Raw) -> Capabilities:
    """An intent's capabilities, `{domain: [resource or prefix*, …]}`; raises `InvalidRequest`."""
    try:
        found = _decode(raw)
    except msgspec.ValidationError:
        sentence = (
            "Capabilities are an object that gives for each domain a list of resources, or prefixes that end in *."
        )
        raise InvalidRequest(sentence, member="capabilities") from None
    for domain, resources in found.items():
        if not 1 <= len(domain) <= MAX_LABEL_CHARS or len(found) > MAX_DOMAINS:
            sentence = f"Capabilities may name {MAX_DOMAINS} domains of 1 to {MAX_LABEL_CHARS} characters."
            raise InvalidRequest(sentence, member="capabilities")
        fit = all(0 < len(resource) <= MAX_RESOURCE_CHARS for resource in resources)
        if len(resources) > MAX_RESOURCES or not fit:
            sentence = f"A domain may have {MAX_RESOURCES} resources of 1 to {MAX_RESOURCE_CHARS} characters."
            raise InvalidRequest(sentence, member=f"capabilities.{domain[:64]}")
        if any("*" in resource[:-1] for resource in resources):
            sentence = "A * may only stand at the end of a resource: it stands for anything that begins so."
            raise InvalidRequest(sentence, member=f"capabilities.{domain[:64]}")
    return found


def granted(capabilities: Capabilities, domain: str, resource: str) -> bool:
    """Whether `resource` is one that `domain` names, or begins with a prefix that it names."""
    return any(
        resource.startswith(allowed[:-1]) if allowed.endswith("*") else resource == allowed
        for allowed in capabilities.get(domain, ())
    )
