"""What a connection tells the layer above: one value per thing that happened."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from quoracy.wire.http2.header_block import HeaderBlock

__all__ = [
    "ConnectionEnded",
    "DataReceived",
    "Event",
    "GoAwayReceived",
    "HeadersReceived",
    "PingAcked",
    "SettingsReceived",
    "StreamDrained",
    "StreamReset",
    "TrailersReceived",
]


class HeadersReceived(msgspec.Struct, frozen=True, gc=False):
    """A request (server) or the head of a response (client; informational heads are skipped)."""

    stream_id: int
    headers: HeaderBlock
    end_stream: bool


class DataReceived(msgspec.Struct, frozen=True, gc=False):
    """Part of a body.

    `flow_bytes` is what it took from our windows, padding included.  It is given back with
    `Connection.consumed` once the application took the data, also if the stream ended meanwhile.
    """

    stream_id: int
    data: bytes
    flow_bytes: int
    end_stream: bool


class TrailersReceived(msgspec.Struct, frozen=True, gc=False):
    """Headers after the body: nothing more comes on this stream."""

    stream_id: int
    headers: HeaderBlock


class StreamReset(msgspec.Struct, frozen=True, gc=False):
    """The stream is gone: reset by the peer, or by us because the peer broke a rule of streams.

    A client gets REFUSED_STREAM also for streams that a GOAWAY says were not looked at; such a request
    can be sent again elsewhere, whatever it was.
    """

    stream_id: int
    code: int


class StreamDrained(msgspec.Struct, frozen=True, gc=False):
    """What flow control had held back of this stream has all been queued for sending."""

    stream_id: int


class PingAcked(msgspec.Struct, frozen=True, gc=False):
    """The answer to `Connection.ping`."""

    data: bytes


class GoAwayReceived(msgspec.Struct, frozen=True, gc=False):
    """The peer takes no new streams; those up to `last_stream_id` go on."""

    last_stream_id: int
    code: int
    debug: bytes


class SettingsReceived(msgspec.Struct, frozen=True, gc=False):
    """The peer's settings came and apply (limits on streams may have changed)."""


class ConnectionEnded(msgspec.Struct, frozen=True, gc=False):
    """The peer broke the protocol or asked for too much: send what is queued (a GOAWAY), then close."""

    code: int
    reason: str


Event: TypeAlias = (
    HeadersReceived
    | DataReceived
    | TrailersReceived
    | StreamReset
    | StreamDrained
    | PingAcked
    | GoAwayReceived
    | SettingsReceived
    | ConnectionEnded
)
