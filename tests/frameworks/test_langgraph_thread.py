"""The fold of a thread's entries, by itself."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from dhp_client.langgraph.entries import ChannelValue, Entry, Put, Value, Write, Writes
from dhp_client.langgraph.thread import Thread


def value(text: str) -> Value:
    return Value("text", text.encode())


def put(id: str, namespace: str = "", parent: str | None = None, **changed: tuple[int, str | None]) -> Put:
    channels = [ChannelValue(n, v, None if text is None else value(text)) for n, (v, text) in changed.items()]
    return Put(namespace, id, parent, value("c"), value("m"), channels)


def writes(task: str, *written: tuple[int, str], path: str = "", id: str = "1", namespace: str = "") -> Writes:
    return Writes(namespace, id, task, path, [Write("done", number, value(text)) for number, text in written])


def folded(*entries: Entry) -> Thread:
    thread = Thread()
    for entry in entries:
        thread.add(entry)
    return thread


def pending(thread: Thread, put: Put) -> list[tuple[str, int, bytes]]:
    return [(write.task, write.number, write.value.data) for write in thread.pending_writes(put)]


def test_the_newest_checkpoint_of_a_namespace_is_the_last_one_whatever_the_clocks_in_ids_say() -> None:
    one, two, inner = put("1"), put("2"), put("3", "inner")
    thread = folded(two, inner, one)
    assert (thread.find("", None), thread.find("", "2"), thread.find("", "3")) == (one, two, None)
    assert (thread.find("inner", None), thread.find("other", None)) == (inner, None)
    assert [found.id for found in thread.newest_first("")] == ["1", "2"]
    assert sorted(found.id for found in thread.newest_first(None)) == ["1", "2", "3"]
    assert [found.id for found in thread.newest_first("", "1")] == ["2"]
    assert [found.id for found in thread.newest_first("", "2")] == []
    assert [found.id for found in thread.newest_first("inner", "4")] == ["3"]
    assert folded(one, two, one).find("", None) == one


def test_a_channel_has_the_value_of_the_version_that_is_asked_for() -> None:
    thread = folded(put("1", a=(1, "x"), b=(1, "y")), put("2", a=(2, None)), put("3", "inner", a=(1, "z")))
    found = [thread.value(*key) for key in (("", "a", 1), ("", "a", 2), ("", "b", 1), ("", "b", 2), ("inner", "a", 1))]
    assert found == [value("x"), None, value("y"), None, value("z")]


def test_a_task_that_ran_twice_has_written_once_but_its_newest_error_counts() -> None:
    one = put("1")
    thread = folded(
        one, writes("t", (0, "first"), (-1, "error")), writes("t", (0, "again"), (-1, "another"), (1, "more"))
    )
    assert pending(thread, one) == [("t", -1, b"another"), ("t", 0, b"first"), ("t", 1, b"more")]


def test_writes_come_in_the_order_in_which_a_run_applies_them_and_belong_to_one_checkpoint() -> None:
    one, two = put("1"), put("2", parent="1")
    later, earlier = writes("a", (0, "later"), path="~2"), writes("b", (1, "second"), (0, "first"), path="~1")
    thread = folded(later, one, earlier, two, writes("c", (0, "elsewhere"), namespace="inner"))
    assert pending(thread, one) == [("b", 0, b"first"), ("b", 1, b"second"), ("a", 0, b"later")]
    assert pending(thread, two) == []


versions = st.one_of(st.integers(0, 2**53 - 1), st.text(max_size=8), st.floats(allow_nan=False, allow_infinity=False))
values = st.builds(Value, st.text(max_size=8), st.binary(max_size=32))
entries = st.one_of(
    st.builds(Put, changed=st.lists(st.builds(ChannelValue, version=versions, value=st.none() | values), max_size=3)),
    st.builds(Writes, writes=st.lists(st.builds(Write, value=values), max_size=3)),
)


@settings(max_examples=50)
@given(entries)
def test_an_entry_comes_back_as_it_was_written(entry: Entry) -> None:
    assert msgspec.convert(msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(entry))), Entry) == entry
