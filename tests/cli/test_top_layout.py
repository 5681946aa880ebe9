"""What `dhp top` shows fits the screen, whatever is written in it and however small it is."""

from dhp_client.cli.top.gathering import Facts, Listed
from dhp_client.cli.top.layout import lines
from dhp_client.cli.top.picture import Known, Picture, answered, picture_of, silent
from dhp_client.cli.top.table import Span, cut, width_of, wrapped
from dhp_protocol.replies import ActivityView

from . import top_answers as made


def picture(facts: Facts | None, refusal: str | None = None, **health: str) -> Picture:
    known = answered(Known(), made.health(**health), facts, refusal, at=made.NOW, at_ms=0)
    return picture_of(known, now_ms=0, address="tcp://127.0.0.1:8471")


def text(shown: Picture, width: int | None = None, height: int | None = None) -> list[str]:
    return ["".join(span.text for span in line) for line in lines(shown, width, height)]


def crowd() -> Picture:
    counts = {**made.stats().handoffs, "running": 12_345, "dead": 40}
    return picture(
        made.facts(
            *(made.held(number, kind="k" * 40, holder="長い名前" * 9) for number in range(30)),
            stats=made.stats(handoffs=counts),
            asked=[made.asked(number, action="x" * 200) for number in range(9)],
            dead=[made.handoff(number, status="dead", reason="r" * 300) for number in range(40)],
            orphaned=[made.handoff(number, status="orphaned") for number in range(20)],
            pending=Listed([made.handoff(number) for number in range(25)], more=True),
        )
    )


def test_a_picture_fits_every_screen() -> None:
    shown = crowd()
    for width in (1, 20, 39, 80, 300):
        for height in (1, 5, 24, 500):
            found = text(shown, width, height)
            assert len(found) <= height
            assert max(map(width_of, found)) <= width


def test_a_usual_screen_is_used_to_its_end_by_every_section() -> None:
    found = "\n".join(text(crowd(), 100, 40))
    assert found.count("\n") >= 37
    for title in ("WAITS FOR A PERSON 5 of 9", "DEAD 5 of 40", "ORPHANED", "LEASES", "PENDING"):
        assert title in found


def test_a_command_is_never_cut_where_forty_columns_are_there() -> None:
    assert f"dhp approve 1{'0' * 11}-01234567" in "\n".join(text(crowd(), 40, 24))


def test_the_least_important_columns_give_way_first() -> None:
    shown = picture(
        made.facts(made.held(activity=ActivityView(repeats=2, ago_ms=1_000), seq=3, checkpoint_at=made.before(4)))
    )
    wide, narrow = "\n".join(text(shown, 120)), "\n".join(text(shown, 50))
    for told in ("FENCE", "ATTEMPT", "ada", "5.2 s", "3, 4 s ago", "repeats 2, 1 s ago"):
        assert told in wide
    assert "3, 4 s ago" in narrow
    assert "FENCE" not in narrow


def test_what_strangers_write_is_harmless() -> None:
    evil = "\x1b[2J\x07\u202e\n[red]"
    shown = picture(
        made.facts(
            made.held(kind=evil, holder=evil),
            asked=[made.asked(action=evil, details={"a": evil})],
            dead=[made.handoff(status="dead", reason=evil)],
        ),
        refusal=evil,
        durability=evil,
    )
    found = text(shown, 200, 60)
    assert all(line.isprintable() for line in found)
    assert "\n".join(found).count("\\u001b[2J\\u0007\\u202e\\n[red]") >= 4


def test_how_the_daemon_is_stands_above_all() -> None:
    for told, health in (
        ("STORE UNAVAILABLE", {"store": "unavailable", "status": "store_unavailable"}),
        ("DISK FULL", {"disk": "full", "status": "disk_full"}),
        ("DRAINING", {"status": "draining"}),
        ("process crash", {"durability": "process crash"}),
    ):
        assert told in "\n".join(text(picture(made.facts(), **health), 80, 6))
    known = silent(answered(Known(), made.health(), made.facts(), None, at=made.NOW, at_ms=0), at="x", at_ms=1)
    shown = picture_of(known, now_ms=90_000, address="")
    assert "NOBODY ANSWERS since 18:00:00Z, for 90 s" in "\n".join(text(shown, 80, 6))


def test_how_many_there_are_is_told_as_exactly_as_it_is_known() -> None:
    counts = {**made.stats().handoffs, "pending": 100_000}
    some = Listed([made.handoff()], more=True)
    shown = picture(made.facts(stats=made.stats(handoffs=counts), pending=some, suspended=some))
    found = "\n".join(text(shown))
    assert "PENDING 1 of 100,000" in found
    assert "SUSPENDED 1 of 1 or more" in found


def test_where_nothing_is_wrong_that_is_told() -> None:
    assert text(picture(made.facts()))[-1] == "Nothing is held, nothing is stuck, and nobody is asked anything."


def test_wide_characters_count_for_two_and_combining_ones_for_none() -> None:
    assert [width_of(text) for text in ("ab", "長a", "e\u0301")] == [2, 3, 1]
    assert [cut("長い名前", width) for width in (8, 7, 4, 1, 0)] == ["長い名前", "長い名…", "長…", "…", ""]


def test_what_stands_beside_each_other_goes_on_in_the_next_line() -> None:
    spans = [Span("aaaa"), Span("bbbb"), Span("cccc")]
    assert [len(line) for line in wrapped(spans, 10)] == [2, 1]
    assert [len(line) for line in wrapped(spans, 3)] == [1, 1, 1]
    assert [len(line) for line in wrapped(spans, None)] == [3]
