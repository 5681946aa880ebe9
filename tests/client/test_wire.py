"""The client's side of framing."""

import msgspec
import pytest
from msgspec import Raw

from dhp_client.exceptions import BadReply
from dhp_client.wire import Inbox, Reply, decode_reply, encode_request
from dhp_protocol.errors import BadJson, FrameTooLarge, InvalidRequest, LeaseLost, TooLarge
from dhp_protocol.limits import Limits
from dhp_protocol.messages import Checkpoint, Ping
from dhp_protocol.replies import CheckpointReply, DrainingEvent

STREAM = b"""\
{"id":1,"ok":true,"seq":4,"sha256":"ab","duplicate":false,"new":[1]}
{"event":"weather","handoff":"x"}
{"event":"draining","after_ms":5,"why":"new"}
{"id":"x","ok":false,"error":{"code":"lease_lost","message":"Gone.","retry":"no","details":{"why":"expired"}}}
{"ok":true}
"""


@pytest.mark.parametrize("step", [1, 7, len(STREAM)])
def test_replies_and_events_are_told_apart_however_the_bytes_arrive(step: int) -> None:
    inbox = Inbox()
    found = [item for at in range(0, len(STREAM), step) for item in inbox.feed(STREAM[at : at + step])]
    first, draining, refused, nameless = found
    assert isinstance(first, Reply)
    assert decode_reply(first.body, CheckpointReply) == CheckpointReply(seq=4, sha256="ab", duplicate=False)
    assert draining == DrainingEvent(after_ms=5)
    assert isinstance(refused, Reply)
    assert refused.id == "x"
    assert isinstance(refused.error, LeaseLost)
    assert refused.error.details == {"why": "expired"}
    assert isinstance(nameless, Reply)
    assert nameless.id is msgspec.UNSET


@pytest.mark.parametrize(
    "stream", [b"hello\n", b"{nothing\n", b"[1]\n", b'{"id":1}\n', b'{"event":"draining","after_ms":"x"}\n']
)
def test_what_is_neither_reply_nor_event_is_bad(stream: bytes) -> None:
    with pytest.raises(BadReply):
        list(Inbox().feed(stream))


def test_a_reply_of_another_shape_is_bad() -> None:
    with pytest.raises(BadReply, match="CheckpointReply"):
        decode_reply(b'{"ok":true,"seq":"four"}', CheckpointReply)


def test_the_same_request_is_the_same_bytes() -> None:
    request = Checkpoint(id=7, handoff="a" * 64, fence=1, seq=1, state=Raw(b'{"a": 1e2}'))
    assert encode_request(request, Limits()) == encode_request(request, Limits())
    assert b'"state":{"a": 1e2}' in encode_request(request, Limits())


def test_what_the_daemon_could_only_answer_without_an_id_is_refused_before_it_is_sent() -> None:
    with pytest.raises(FrameTooLarge):
        encode_request(Ping(id="x" * 200), Limits(max_frame_bytes=100))
    large = Checkpoint(id=1, handoff="a" * 64, fence=1, state=Raw(b"1" * 200))
    with pytest.raises(TooLarge, match="state has 200 bytes and may have 50") as refused:
        encode_request(large, Limits(max_frame_bytes=100, max_state_bytes=50))
    assert refused.value.details == {"member": "state", "limit": 50, "size": 200}
    deep = Raw(b"[" * 10 + b"]" * 10)
    with pytest.raises(BadJson):
        encode_request(Checkpoint(id=1, handoff="a" * 64, fence=1, state=deep), Limits(max_depth=10))
    with pytest.raises(InvalidRequest):
        encode_request(Ping(id="\ud800"), Limits())
