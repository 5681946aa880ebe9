"""What `dhpd` and its extras bring along when they are installed, and whether anything is known against it: `make audit`.

Two parts. What needs no network: with `dhpd` nothing is brought along but what is listed here by name, and whatever comes with an
extra has a licence of the families that are listed here. What does: the Python Package Index tells of each installed version whether
vulnerabilities are known, and whether it was withdrawn; of what comes with the extras, a hundred packages, only if asked to
(`make audit ARGS=--look-up-extras`). Exit code 1 where either part finds something. Where the index can't be asked, or doesn't know
the version, that is said loudly in a line that begins with NOT AUDITED, and isn't a failure: it says nothing about the dependencies.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .licences import is_permissive, licences_of

ALLOWED = ("uvloop", "msgspec", "aiosqlite", "rfc8785", "click")
"""Every package that comes with `dhpd`: each was read."""
EXTRAS = ("rich", "mcp", "a2a", "langgraph", "pydantic-ai")
COPYLEFT = {
    "certifi": "MPL-2.0: a list of certificates, unchanged; the licence covers its own files only",
    "orjson": "MPL-2.0: parts of its compiled code, unchanged; the licence covers its own files only",
}
"""What comes with an extra under a licence that asks for something of whoever changes it, and why that is harmless."""
INDEX = "https://pypi.org"
INDEX_VARIABLE = "DHPD_AUDIT_INDEX"
ASK_WITHIN_S = 10.0


class Unanswered(Exception):
    """The index can't be asked, or doesn't know; the message says which."""


def brought_along(name: str, extras: Iterable[str] = ()) -> dict[str, Distribution]:
    """What is installed because of `name` with these extras, by its name, without `name` itself."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()

    def walk(name: str, extra: str) -> None:
        for text in distribution(name).requires or ():
            wanted = Requirement(text)
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
                continue
            other = canonicalize_name(wanted.name)
            found[other] = distribution(other)
            for its in ("", *wanted.extras):
                if (other, its) not in seen:
                    seen.add((other, its))
                    walk(other, its)

    for extra in ("", *extras):
        walk(name, extra)
    found.pop(name, None)
    return found


def faults_at_hand(base: dict[str, Distribution], with_extras: dict[str, Distribution]) -> Iterator[str]:
    """What is wrong that needs no network to be seen."""
    for name in sorted(base.keys() - set(ALLOWED)):
        yield f"{name} is brought along and isn't listed: read it, its licence and its own dependencies"
    for name in sorted((set(ALLOWED) - base.keys()) | (COPYLEFT.keys() - with_extras.keys())):
        yield f"{name} is listed, but isn't brought along"
    for name, each in sorted(with_extras.items()):
        told = licences_of(each.metadata)
        allowed = {"MPL-2.0"} if name in COPYLEFT else set()
        if not is_permissive(told, allowed):
            yield f"{name} {each.version} has a licence that isn't listed: {'; '.join(told)[:200] or 'none is told'}"


def known_against(name: str, version: str, index: str) -> list[str]:
    """What the index knows against this version; raises `Unanswered`."""
    url = f"{index}/pypi/{name}/{version}/json"
    try:
        with urllib.request.urlopen(url, timeout=ASK_WITHIN_S) as answer:
            document = json.load(answer)
        vulnerabilities, files = document["vulnerabilities"], document["urls"]
        known = [
            f"{name} {version}: {each['id']} {(each.get('summary') or each.get('details') or '').strip()[:120]}"
            f" (mended in {', '.join(each.get('fixed_in') or ()) or 'no version yet'})"
            for each in vulnerabilities
            if not each.get("withdrawn")
        ]
        if files and all(file["yanked"] for file in files):
            known.append(f"{name} {version} was withdrawn: {files[0].get('yanked_reason')}")
    except urllib.error.HTTPError as error:
        raise Unanswered(f"{url} answers {error.code}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unanswered(f"{url} gave no answer that can be read ({error})") from None
    return known


def main(index: str, *, look_up_extras: bool = False) -> int:
    base = brought_along("dhpd")
    with_extras = brought_along("dhpd", EXTRAS)
    faults = list(faults_at_hand(base, with_extras))
    unanswered = []
    looked_up = with_extras if look_up_extras else base
    for name, each in looked_up.items():
        try:
            faults += known_against(name, each.version, index)
        except Unanswered as error:
            unanswered.append(f"{name} {each.version}: {error}")
    for fault in faults:
        print(f"AUDIT: {fault}")
    for each_unanswered in unanswered:
        print(f"NOT AUDITED for vulnerabilities: {each_unanswered}")
    checked = len(looked_up) - len(unanswered)
    print(
        f"{len(base)} packages come with dhpd, {len(with_extras)} with all of its extras; {checked} of them were looked up; "
        f"{len(faults)} faults."
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(os.environ.get(INDEX_VARIABLE, INDEX), look_up_extras="--look-up-extras" in sys.argv[1:]))
