"""A real daemon under random bytes: an honest client's dialogue beside them stays exact, and the daemon stays well."""

from pathlib import Path

from .company import keep_company

SECONDS = 3.0


def test_an_honest_dialogue_stays_exact_beside_random_bytes(tmp_path: Path, seed: int) -> None:
    assert keep_company(tmp_path, f"{seed}", SECONDS) >= 5
