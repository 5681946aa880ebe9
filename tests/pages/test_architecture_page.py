"""The map of the code names what is there, and leaves no package out."""

from .blocks import ROOT, block


def test_every_folder_of_the_map_is_there_and_every_package_is_on_it() -> None:
    named = {line.split()[0].rstrip("/") for line in block("docs/architecture.md", "How it is built", "").splitlines()}
    assert [folder for folder in named if not (ROOT / folder).is_dir()] == []
    packages = {str(found.parent.relative_to(ROOT)) for found in (ROOT / "dhpd").glob("*/__init__.py")}
    assert packages | {"protocol/dhp_protocol", "dhp_client"} <= named
