"""Fuzzing in small: fresh seeds in every run, a few hundred inputs of each target. `make fuzz SECONDS=…` goes on for longer."""

import json
import random

import pytest

import dhp_protocol.decoding
import dhp_protocol.framing
import dhp_protocol.intent
from dhp_protocol.framing import Framer
from tests.protocol.vectors import load, spelled

from . import inputs
from .fuzzing import Alarm, Failure, fuzz, problem_of
from .models import frames_in
from .regressions import REGRESSIONS
from .shrinking import shrunk
from .targets import TARGETS, Target

EXAMPLES = 200
BY_NAME = {target.name: target for target in TARGETS}


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name.replace(" ", "-"))
def test_every_input_is_parsed_or_gets_its_documented_error(target: Target, seed: int) -> None:
    assert fuzz(target, f"{seed}", examples=EXAMPLES) == EXAMPLES


@pytest.mark.parametrize(("name", "data"), REGRESSIONS)
def test_what_once_showed_a_fault_shows_none(name: str, data: bytes) -> None:
    with Alarm():
        assert problem_of(BY_NAME[name], data) is None


@pytest.mark.parametrize(
    "case", [case for case in load("frames") if case["max_frame_bytes"] == 8192], ids=lambda c: c["name"]
)
def test_the_slow_reading_of_frames_is_that_of_the_vectors(case: dict[str, object]) -> None:
    expected = [
        (event["fault"], event["counted"], event["closes"])
        if "fault" in event
        else (spelled(event["frame"]), event["counted"])
        for event in case["events"]  # type: ignore[attr-defined]
    ]
    stream = b"".join(spelled(chunk) for chunk in case["chunks"])  # type: ignore[attr-defined]
    assert frames_in(stream, 8192) == expected


def test_a_seed_is_enough_to_have_an_input_again() -> None:
    for target in TARGETS:
        assert target.example(random.Random("1:2")) == target.example(random.Random("1:2"))


def test_inputs_are_neither_all_good_nor_all_bad(seed: int) -> None:
    """A fuzzer whose inputs all fall at the first hurdle looks at nothing."""
    taken = 0
    for number in range(300):
        try:
            dhp_protocol.decoding.decode_request(inputs.request(random.Random(f"{seed}:{number}")), 128)
            taken += 1
        except dhp_protocol.decoding.RequestFault:
            pass
    assert 10 < taken < 250


# --- it finds things ---------------------------------------------------------------------------------------------------


def found(name: str, *, examples: int = 6_000) -> Failure:
    """The failure that fuzzing this target comes to."""
    with pytest.raises(Failure) as caught:
        fuzz(BY_NAME[name], "found", examples=examples)
    return caught.value


def test_a_framer_that_forgets_what_it_had_searched_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Framer._next_bare

    def searches_one_byte_too_late(self: Framer, buffer: bytes, start: int, available: int) -> object:
        taken, item = whole(self, buffer, start, available)
        if not taken:
            self._searched_bytes = available + 1
        return taken, item

    monkeypatch.setattr(Framer, "_next_bare", searches_one_byte_too_late)
    assert len(found("frames").data) <= 8


def test_a_framer_that_takes_a_cr_for_an_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Framer._next_counted

    def takes_any_end(self: Framer, buffer: bytes, start: int) -> object:
        buffer = bytes(buffer)
        return whole(self, buffer.replace(b"\r", b"\n"), start)

    monkeypatch.setattr(Framer, "_next_counted", takes_any_end)
    assert b"\r" in found("frames").data


def test_a_decoder_that_doesnt_look_for_utf8_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dhp_protocol.decoding, "check_text", lambda body: None)
    assert found("requests").data


def test_a_decoder_that_passes_doubled_names_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dhp_protocol.decoding, "doubled_member", lambda body: None)
    assert "a name stands twice" in str(found("requests"))


def test_a_decoder_that_lets_a_foreign_exception_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_json(body: bytes, error: Exception) -> dhp_protocol.decoding.RequestFault:
        raise KeyError("member")

    monkeypatch.setattr(dhp_protocol.decoding, "_not_json", not_json)
    assert "KeyError" in str(found("requests"))


def test_a_canonical_form_that_rounds_in_silence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    loose = json.JSONDecoder(parse_int=float).decode
    monkeypatch.setattr(dhp_protocol.intent, "_read_exactly", loose)
    assert found("intents").data


def test_a_pattern_that_hangs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.fuzzing.ONE_INPUT_WITHIN_S", 0.2)

    def check(data: bytes) -> None:
        while b"(" in data:
            pass

    hanging = Target("hanging", lambda rng: b"(((", check)
    with Alarm():
        assert "Hangs" in str(problem_of(hanging, b"((("))


def test_a_failing_input_is_made_small() -> None:
    assert (
        shrunk(b"some long text with {the} fault (in it) and more", lambda data: b"{" in data and b")" in data) == b"{)"
    )
