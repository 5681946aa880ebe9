"""`python -m tests.fuzz.run`: fresh seeds for as long as is asked for; what fails is kept, and told as a regression."""

import argparse
import secrets
import sys
import time
from pathlib import Path

from .fuzzing import Failure, fuzz
from .targets import TARGETS

ROUND = 500
"""So many inputs of one target, then the next one has its turn."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz everything that reads bytes from strangers.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", default="", help="targets whose names begin so")
    parser.add_argument("--keep", type=Path, default=Path(".fuzz"), help="where failing inputs are kept")
    arguments = parser.parse_args()
    until_s = time.monotonic() + arguments.seconds
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
    print(f"{sum(counts.values())} inputs, {failures} failures.")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
