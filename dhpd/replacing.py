"""A file in the place of another: whoever reads it finds the one before, or this one whole, also after a power loss.

Owns that. Whose the file is and who may read it is up to who writes it.
"""

import os
from collections.abc import Callable
from pathlib import Path


def replace(path: Path, text: str, prepare: Callable[[int], None]) -> None:
    """Raises `OSError`, and leaves what was there. `prepare` gets the new file's descriptor while it is empty, of mode 0600."""
    import tempfile  # Most daemons and commands write no such file.

    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            prepare(file.fileno())
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
