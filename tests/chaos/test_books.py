"""A book is what its writer wrote, and no more: also when the writer was killed in the middle of a line."""

from pathlib import Path

import pytest

from dhp_client.chaos.books import DAEMON, DISPATCHED, FAULTS, WORKERS, read_books, write_all, write_options
from dhp_client.chaos.run import ChaosFailed, judged
from dhp_client.chaos.telling import Telling
from tests.chaos.forging import Forgery, good_run


def written(folder: Path, run: Forgery) -> Path:
    books = run.books()
    write_options(folder, books.options)
    write_all(folder / DISPATCHED, books.dispatched)
    write_all(folder / DAEMON, books.daemon)
    write_all(folder / FAULTS, books.faults)
    for worker, entries in books.workers.items():
        write_all(folder / WORKERS / f"{worker}.jsonl", entries)
    return folder


def test_books_read_back_as_they_were_written(tmp_path: Path) -> None:
    assert read_books(written(tmp_path, good_run())) == good_run().books()


def test_a_line_that_its_writer_did_not_finish_is_none(tmp_path: Path) -> None:
    with (written(tmp_path, good_run()) / WORKERS / "a.jsonl").open("ab") as book:
        book.write(b'{"entry":"begun","at_')
    assert read_books(tmp_path) == good_run().books()


def test_a_book_that_is_none_is_told_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    written(tmp_path, good_run())
    (tmp_path / DAEMON).write_text("[]\n")
    with pytest.raises(ChaosFailed, match="can't be read"):
        judged(tmp_path, Telling(sys.stdout))
