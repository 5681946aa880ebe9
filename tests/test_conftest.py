"""The harness itself: a hanging async test is cut off, and in CI a skip is a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run_pytest(directory: Path, source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (directory / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    (directory / "test_sample.py").write_text(source)
    clean = {name: value for name, value in os.environ.items() if name != "CI"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-ra", str(directory)],
        cwd=ROOT,
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


SKIPPED_TEST = "import pytest\ndef test_it():\n    pytest.skip('no such machine')\n"
SKIPPED_BY_MARK = "import pytest\n@pytest.mark.skip(reason='no such machine')\ndef test_it(): ...\n"
SKIPPED_MODULE = "import pytest\npytest.skip('no such machine', allow_module_level=True)\n"


@pytest.mark.parametrize("source", [SKIPPED_TEST, SKIPPED_BY_MARK, SKIPPED_MODULE])
def test_a_skip_is_a_failure_in_ci_only(tmp_path: Path, source: str) -> None:
    assert run_pytest(tmp_path, source).returncode in (0, 5)  # 5: the only module was skipped whole.
    in_ci = run_pytest(tmp_path, source, CI="true")
    assert in_ci.returncode in (1, 2)
    assert "skipped where nothing may be: " in in_ci.stdout
    assert "no such machine" in in_ci.stdout


def test_a_hanging_async_test_is_cut_off_and_the_run_goes_on(tmp_path: Path) -> None:
    source = (
        "import asyncio, pytest\n"
        "@pytest.mark.timeout(1.2)\n"
        "async def test_hangs():\n    await asyncio.sleep(3600)\n"
        "async def test_after():\n    assert 'uvloop' in type(asyncio.get_running_loop()).__module__\n"
    )
    done = run_pytest(tmp_path, source)
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "TimeoutError" in done.stdout


def test_a_failing_test_shows_its_seed_and_the_seed_repeats_it(tmp_path: Path) -> None:
    source = "def test_it(rng):\n    assert rng.random() < 0, rng.random()\n"
    first = run_pytest(tmp_path, source, DHP_SEED="7").stdout
    assert "seed 7 (run again with DHP_SEED=7)" in first
    drawn = next(line for line in first.splitlines() if "AssertionError" in line)
    assert drawn in run_pytest(tmp_path, source, DHP_SEED="7").stdout
    assert drawn not in run_pytest(tmp_path, source, DHP_SEED="8").stdout
