"""Where a run of `dhp demo` or `dhp chaos` puts what it leaves behind: a folder of its own, so that runs never mix.

Owns the names. Does not own what is put there.
"""

from pathlib import Path


def fresh_folder(parent: Path) -> Path:
    """A folder for this run alone, `run-N` in `parent`, which is made where it is missing. Raises OSError."""
    parent.mkdir(parents=True, exist_ok=True)
    number = 1 + max((int(path.name[4:]) for path in parent.glob("run-*") if path.name[4:].isdigit()), default=0)
    while True:
        folder = parent.resolve() / f"run-{number}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder
