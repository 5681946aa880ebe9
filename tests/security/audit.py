"""What `dhpd` brings along when it is installed, and whether anything is known against it: `make audit`.

Two parts. What needs no network: nothing is brought along but what is listed here, under licences that are listed here. What
does: the Python Package Index tells of each installed version whether vulnerabilities are known, and whether it was withdrawn.
Exit code 1 where either part finds something. Where the index can't be asked, or doesn't know the version, that is said loudly
in a line that begins with NOT AUDITED, and isn't a failure: it says nothing about the dependencies.
"""

import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution

ALLOWED = {
    "uvloop": ("MIT", "Apache-2.0"),
    "msgspec": ("BSD-3-Clause",),
    "aiosqlite": ("MIT",),
    "rfc8785": ("Apache-2.0",),
    "click": ("BSD-3-Clause",),
}
"""Every package that comes with `dhpd`, and the licences that it was read to have."""
INDEX = "https://pypi.org"
INDEX_VARIABLE = "DHPD_AUDIT_INDEX"
ASK_WITHIN_S = 10.0

_NAME = re.compile(r"^[A-Za-z0-9._-]+")


class Unanswered(Exception):
    """The index can't be asked, or doesn't know; the message says which."""


def brought_along(name: str, seen: set[str] | None = None) -> Iterator[Distribution]:
    """What is installed because of `name`, without extras and without `name` itself."""
    seen = set() if seen is None else seen
    for requirement in distribution(name).requires or ():
        wanted = _NAME.match(requirement)
        if wanted is None or "extra ==" in requirement:
            continue
        other = wanted[0].lower().replace("_", "-")
        if other not in seen and not _for_another_system(requirement):
            seen.add(other)
            yield distribution(other)
            yield from brought_along(other, seen)


def _for_another_system(requirement: str) -> bool:
    return bool(re.search(r"(platform_system|sys_platform) == ['\"](Windows|win32)['\"]", requirement))


def faults_at_hand(found: list[Distribution]) -> list[str]:
    """What is wrong that needs no network to be seen."""
    faults = []
    names = {each.metadata["Name"].lower() for each in found}
    faults += [
        f"{name} is brought along and isn't listed: read it, its licence and its own dependencies"
        for name in sorted(names - ALLOWED.keys())
    ]
    faults += [f"{name} is listed, but isn't brought along" for name in sorted(ALLOWED.keys() - names)]
    for each in found:
        name = each.metadata["Name"].lower()
        told = licences_of(each)
        if name in ALLOWED and not any(_names_licence(told, licence) for licence in ALLOWED[name]):
            faults.append(f"{name} {each.version} has another licence than {' or '.join(ALLOWED[name])}: {told[:200]}")
    return faults


def licences_of(found: Distribution) -> str:
    """All that its metadata says of its licence."""
    metadata = found.metadata
    fields = [*metadata.get_all("License-Expression", []), *metadata.get_all("License", [])]
    return "; ".join([*fields, *(line for line in metadata.get_all("Classifier", []) if line.startswith("License"))])


def _names_licence(told: str, licence: str) -> bool:
    family = licence.partition("-")[0]
    return licence.lower() in told.lower() or re.search(rf"\b{family}\b", told, re.IGNORECASE) is not None


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


def main(index: str) -> int:
    found = list(brought_along("dhpd"))
    faults = faults_at_hand(found)
    unanswered = []
    for each in found:
        name, version = each.metadata["Name"].lower(), each.version
        try:
            faults += known_against(name, version, index)
        except Unanswered as error:
            unanswered.append(f"{name} {version}: {error}")
    for fault in faults:
        print(f"AUDIT: {fault}")
    for each_unanswered in unanswered:
        print(f"NOT AUDITED for vulnerabilities: {each_unanswered}")
    checked = len(found) - len(unanswered)
    print(f"{len(found)} packages come with dhpd; {checked} of them were looked up; {len(faults)} faults.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(os.environ.get(INDEX_VARIABLE, INDEX)))
