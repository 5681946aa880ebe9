"""`dhpd check` finds whatever is wrong with a store, says what to do, and finds nothing in one that is whole."""

import contextlib
import io
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from dhpd import upkeep
from dhpd.engine.facts import Handoff
from dhpd.store.backend import StoreError
from tests.support.daemon_process import DaemonProcess
from tests.support.wire_client import WireClient

PAGE_BYTES = 4_096


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with something of everything: ended, live and forgotten work, pruned checkpoints, a tail that a kill left."""
    path = tmp_path_factory.mktemp("lived") / "data"
    with DaemonProcess(path) as daemon, WireClient(daemon.tcp) as client:
        pruned = client.dispatch(key="pruned", keep_checkpoints=2)
        fence = client.claim(handoff=pruned)["fence"]
        for n in range(40):
            client.call("checkpoint", handoff=pruned, fence=fence, state=n)
        client.call("complete", handoff=pruned, fence=fence, result={"n": 40})
        forgotten = client.dispatch(key="forgotten")
        client.call("cancel", handoff=forgotten)
        client.call("forget", handoff=forgotten)
        assert client.dispatch(key="forgotten") == forgotten
        capped = client.dispatch(key="capped", budget={"max_steps": 1})
        fence = client.claim(handoff=capped)["fence"]
        client.call("checkpoint", handoff=capped, fence=fence, state=1)
        client.refused("checkpoint", handoff=capped, fence=fence, state=2)
        client.call("redrive", handoff=capped, budget_add={"max_steps": 5})
        client.call("list")  # Waits for the table of facts to say all this.
        daemon.terminate()
        daemon.start()
        with WireClient(daemon.tcp) as again:
            again.call("cancel", handoff=forgotten)
            again.call("forget", handoff=forgotten)
            assert again.dispatch(key="forgotten") == forgotten
            held = again.dispatch(key="held")
            fence = again.claim(handoff=held, detached=True)["fence"]
            again.call("effect_begin", handoff=held, fence=fence, step="mail")
            again.call("effect_done", handoff=held, fence=fence, step="mail", result="sent")
            again.call("checkpoint", handoff=held, fence=fence, state="here")
            daemon.kill()
    return path / "dhpd.sqlite"


@pytest.fixture
def store(lived: Path, tmp_path: Path) -> Path:
    """A copy of it, to be broken."""
    copy = tmp_path / "dhpd.sqlite"
    with closing(sqlite3.connect(lived)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return copy


def check(file: Path) -> tuple[int, str]:
    """The exit code, and what is told. In this process, where a foreign exception would be the test's."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        try:
            code = upkeep.check(file)
        except StoreError as error:
            code = 1
            print(error)
    return code, told.getvalue()


def test_a_store_that_was_killed_is_whole(lived: Path) -> None:
    command = [sys.executable, "-m", "dhpd", "check", str(lived)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout


BREAKAGES = {
    "a changed state": ("journal", "update journal set payload = cast('41' as blob) where seq is not null and n = 42"),
    "a changed intent": ("journal", "update journal set payload = cast('{}' as blob) where n = 1"),
    "a lost payload": ("journal", "update journal set payload = null where n = 1"),
    "a lost record": ("journal", "delete from journal where cast(body as text) like '%claimed%'"),
    "a record that can't be read": ("journal", "update journal set body = cast('{' as blob) where n = 2"),
    "a fence that falls": (
        "journal",
        "update journal set body = cast(replace(cast(body as text), '\"fence\":1', '\"fence\":0') as blob) where n > 2",
    ),
    "a row of another record": ("journal", "update journal set n = n + 1 where n = 2"),
    "a wrong way back": ("journal", "update journal set anchor = 1 where n > 4 and anchor > 1"),
    "facts that can't be read": ("table of facts", "update handoffs set facts = cast('x' as blob) where number = 1"),
    "facts of before": ("table of facts", "update handoffs set status = 'pending' where status = 'completed'"),
    "a handoff without facts": ("table of facts", "delete from handoffs where number = 1"),
    "facts of nobody": ("table of facts", "delete from journal where handoff = (select id from handoffs limit 1)"),
    "a tail without a beginning": (
        "tail",
        "update meta set value = (select max(position) from journal where n = 1) where name = 'covered';"
        "delete from handoffs where number = (select max(position) from journal where n = 1)",
    ),
    "a tail that is taken for covered": ("table of facts", "update meta set value = 1000000 where name = 'covered'"),
    "an extension of nobody's lease": ("numbers", "insert into extensions select id, 99, 1 from handoffs limit 1"),
    "another schema": ("schema", "pragma user_version = 99"),
    "a record nested too deep": (
        "journal",
        f'update journal set body = cast(\'{{"type":"cancelled","x":{"[" * 50_000}{"]" * 50_000}}}\' as blob) where n = 2',
    ),
    "a trigger": ("schema", "create trigger later after insert on meta begin delete from journal; end"),
    "an endless view in place of a table": (
        "schema",
        "drop table journal; create view journal as with recursive endless (position) as "
        "(select 1 union all select position + 1 from endless) select * from endless",
    ),
    "a table that takes any type": (
        "schema",
        "alter table journal rename to other; create table journal (position, handoff, n, seq, prev, anchor, body, payload);"
        "insert into journal select position, 'text', n, seq, 'text', anchor, 17, payload from other",
    ),
    "another program's file": ("schema", "pragma application_id = 1"),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_what_is_broken_is_found_and_what_to_do_is_said(store: Path, breakage: str) -> None:
    point, statements = BREAKAGES[breakage]
    with closing(sqlite3.connect(store)) as db:
        db.executescript(statements)
    code, told = check(store)
    assert code == 1, told
    assert f"FAILED  {point}:" in told
    assert f"What to do ({point})" in told
    assert "NOT whole" in told


FOREIGN_FACTS = {"result_position": 2**63, "id": "\x1b[2J", "ancestors": ["no digits"], "number": 2**64 - 1}


@pytest.mark.parametrize("member", FOREIGN_FACTS)
def test_facts_that_no_daemon_wrote_are_told_in_one_line(store: Path, member: str) -> None:
    with closing(sqlite3.connect(store)) as db:
        (text,) = db.execute("select facts from handoffs where number = 1").fetchone()
        members = msgspec.msgpack.decode(text)
        members[Handoff.__struct_fields__.index(member)] = FOREIGN_FACTS[member]
        db.execute("update handoffs set facts = ? where number = 1", (msgspec.msgpack.encode(members),))
        db.commit()
    code, told = check(store)
    assert code == 1, told
    assert "FAILED  table of facts" in told


def test_what_a_file_holds_reaches_no_terminal_as_it_is(store: Path) -> None:
    with closing(sqlite3.connect(store)) as db:
        db.execute('create trigger "\x1b[2J" after insert on meta begin delete from journal; end')
    code, told = check(store)
    assert code == 1, told
    assert "\\u001b[2J" in told
    assert "\x1b" not in told


def test_a_broken_page_is_found(store: Path) -> None:
    with closing(sqlite3.connect(store)) as db:
        (page,) = db.execute("select rootpage from sqlite_schema where name = 'journal'").fetchone()
    with store.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(b"\xff" * PAGE_BYTES)
    code, told = check(store)
    assert code == 1, told
    assert "FAILED  file" in told


def test_a_file_that_is_no_store_is_refused_in_one_line(tmp_path: Path) -> None:
    assert check(tmp_path / "nothing")[0] == 1
    text = tmp_path / "text"
    text.write_text("not a database, but long enough to be looked at as one " * 100)
    code, told = check(text)
    assert code == 1
    assert "can't be read" in told
