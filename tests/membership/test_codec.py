"""Bytes that are nested deeper than any message are refused by every codec, as all other rubbish is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quoracy.errors import ProtocolError
from quoracy.membership.detectors.heartbeat_messages import unpacked
from quoracy.membership.elections.messages import terms_codec
from quoracy.membership.gossip.messages import decode as decode_gossip
from quoracy.membership.runtime.member_view import decode_meta
from quoracy.membership.runtime.queries import Asker
from quoracy.membership.swim.messages import decode_packet, decode_stream

_DEEP = b"\x91" * 5_000 + b"\xc0"
# An Ack is [2, seq]; one with more fields is read by skipping what is not known.
_DEEP_ACK = b"\x93\x02\x07" + _DEEP


def _report(data: bytes) -> object:
    return Asker("h:1").receive_stream(data, "h:1", 0.0)


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (decode_packet, b"\x91" + _DEEP_ACK),
        (decode_stream, _DEEP_ACK),
        (lambda data: decode_gossip(data, bytes_max=100_000), _DEEP),
        (terms_codec.decode, _DEEP),
        (lambda data: unpacked(data, "h:1"), b"\x91" + _DEEP),
        (_report, b"\x92\x01" + _DEEP),
    ],
    ids=["packet", "stream", "gossip", "terms", "heartbeats", "report"],
)
def test_what_is_nested_too_deep_is_a_protocol_error(
    decode: Callable[[bytes], object], data: bytes
) -> None:
    with pytest.raises(ProtocolError):
        decode(data)


def test_metadata_that_is_nested_too_deep_is_shown_as_it_came() -> None:
    assert decode_meta(_DEEP) == ({}, _DEEP)
