"""No fenced block of any page is there for show: each is taken by a test that runs it, and each of its links leads somewhere."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .blocks import PAGES, ROOT, Block, blocks_of

CLAIMS = {
    "block": ("page", "section", "language", "number"),
    "every_block": ("page",),
    "programs": ("page",),
    "type_page": ("page",),
}
"""The functions that take blocks, and their first arguments, which say which ones. Those left out: all of them."""

BUT = "but"
"""Given by name: all but those of that section."""

SKILLS = [str(page.relative_to(ROOT)) for page in (ROOT / "dhp_client").glob("**/*.md")]
LINKING = (*PAGES, *SKILLS, "CHANGELOG.md", "protocol/SPEC.md")


def claims() -> Iterator[dict[str, object]]:
    """What the tests' calls of these functions name."""
    for file in sorted((ROOT / "tests").glob("**/test_*.py")):
        source = file.read_text()
        if "blocks import" in source or "terminals import" in source:
            yield from claims_in(ast.parse(source), file)


def claims_in(module: ast.Module, file: Path) -> Iterator[dict[str, object]]:
    literals = {
        target.id: node.value.value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(module):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLAIMS):
            continue
        names = CLAIMS[node.func.id]
        given = {**dict(zip(names, node.args, strict=False)), **{word.arg: word.value for word in node.keywords}}
        claim: dict[str, object] = {"number": 0} if node.func.id == "block" else {}
        for name, value in given.items():
            if name is None or name not in (*names, BUT):
                continue
            if isinstance(value, ast.Constant):
                claim[name] = value.value
            else:
                assert isinstance(value, ast.Name), f"{file}:{node.lineno}: write {name} as a literal"
                assert value.id in literals, f"{file}:{node.lineno}: {value.id} is no literal of this module"
                claim[name] = literals[value.id]
        yield claim


def unclaimed(blocks: Iterator[Block], claimed: list[dict[str, object]]) -> list[str]:
    return [str(it) for it in blocks if not any(is_claimed(it, **claim) for claim in claimed)]


def is_claimed(it: Block, but: object = None, **members: object) -> bool:
    return it.section != but and all(getattr(it, name) == value for name, value in members.items())


def test_every_block_of_every_page_is_taken_by_a_test() -> None:
    found = [it for page in PAGES for it in blocks_of(page)]
    assert unclaimed(iter(found), list(claims())) == []


def test_a_block_that_nobody_takes_is_found() -> None:
    module = ast.parse(
        'PAGE = "docs/a.md"\nblock(PAGE, "Install", "sh")\nprograms("docs/b.md")\ntype_page("docs/d.md", folder, but="Install")'
    )
    claimed = list(claims_in(module, Path("test_a.py")))

    def at(page: str, section: str, number: int = 0) -> Block:
        return Block(page, section, "sh", number, "", 7, "")

    taken = [at("docs/a.md", "Install"), at("docs/b.md", "Install", 3), at("docs/d.md", "Start")]
    forgotten = [
        at("docs/a.md", "Install", 1),
        at("docs/a.md", "Start"),
        at("docs/c.md", "Install"),
        at("docs/d.md", "Install"),
    ]
    assert unclaimed(iter([*taken, *forgotten]), claimed) == [str(it) for it in forgotten]


@pytest.mark.parametrize("page", LINKING)
def test_every_link_leads_somewhere(page: str) -> None:
    text = without_blocks((ROOT / page).read_text("utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), f"{page}: there is no {target}"
        if anchor:
            assert anchor in anchors(file.read_text("utf-8")), f"{page}: {path} has no heading #{anchor}"


def anchors(text: str) -> set[str]:
    """What the headings of a page can be linked to by."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *$", without_blocks(text), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        nth = next(n for n in range(100) if (f"{slug}-{n}" if n else slug) not in found)
        found.add(f"{slug}-{nth}" if nth else slug)
    return found


def without_blocks(text: str) -> str:
    return re.sub(r"^ *(```|~~~).*?^ *\1[`~]*$", "", text, flags=re.MULTILINE | re.DOTALL)
