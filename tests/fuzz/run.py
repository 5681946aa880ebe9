"""`python -m tests.fuzz.run`: fresh seeds for as long as is asked for; what fails is kept, and told as a regression.

First the targets have their turns, then, for a quarter of the time, a daemon with strangers and an honest client.
"""

import argparse
import secrets
import sys
import tempfile
import time
from pathlib import Path

from .company import keep_company
from .fuzzing import Failure, fuzz
from .targets import TARGETS

ROUND = 100
"""So many inputs of one target, then the next one has its turn."""
ROUND_S = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz everything that reads bytes from strangers.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", default="", help="targets whose names begin so")
    parser.add_argument("--keep", type=Path, default=Path(".fuzz"), help="where failing inputs are kept")
    arguments = parser.parse_args()
    until_s = time.monotonic() + arguments.seconds * (1 if arguments.only else 3 / 4)
    targets = [target for target in TARGETS if target.name.startswith(arguments.only)]
    counts = {target.name: 0 for target in targets}
    failures = 0
    while time.monotonic() < until_s:
        for target in targets:
            try:
                counts[target.name] += fuzz(target, secrets.token_hex(4), examples=ROUND, until_s=until_s)
            except Failure as failure:
                failures += 1
                arguments.keep.mkdir(exist_ok=True)
                kept = arguments.keep / f"{target.name.replace(' ', '-')}-{failures}"
                kept.write_bytes(failure.data)
                print(f"{failure}\nkept in {kept}", flush=True)
    for name, count in counts.items():
        print(f"{name}: {count} inputs")
    if not arguments.only:
        failures += not _company(arguments.seconds / 4)
    print(f"{sum(counts.values())} inputs, {failures} failures.")
    return 1 if failures else 0


def _company(seconds: float) -> bool:
    """A daemon has company, a few seconds at a time, so that what strangers leave behind stays bounded; whether all went well."""
    until_s = time.monotonic() + seconds
    handoffs = 0
    while True:
        seed = secrets.token_hex(4)
        try:
            with tempfile.TemporaryDirectory() as folder:
                handoffs += keep_company(Path(folder), seed, ROUND_S)
        except (AssertionError, OSError) as error:
            print(f"a daemon with company, seed {seed}: {type(error).__name__}: {error}", flush=True)
            return False
        if time.monotonic() >= until_s:
            print(f"a daemon with company: {handoffs} handoffs of an honest client")
            return True


if __name__ == "__main__":
    sys.exit(main())
