"""The events that a connection reports to the layer above."""

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
    """A request (server), or the head of a response (client).  Informational heads are skipped."""

    stream_id: int
    headers: HeaderBlock
    end_stream: bool


class DataReceived(msgspec.Struct, frozen=True, gc=False):
    """Part of a body.

    `flow_bytes` is its size in our flow-control windows, padding included.  `Connection.consumed`
    must be called with it once the application has taken the data, even if the stream has ended.
    """

    stream_id: int
    data: bytes
    flow_bytes: int
    end_stream: bool


class TrailersReceived(msgspec.Struct, frozen=True, gc=False):
    """Headers after the body: the peer sends nothing more on this stream."""

    stream_id: int
    headers: HeaderBlock


class StreamReset(msgspec.Struct, frozen=True, gc=False):
    """A stream was reset by the peer, or by us because the peer broke a rule on it.

    A client also receives REFUSED_STREAM for streams that were not processed according to a GOAWAY; any
    such request can safely be sent again elsewhere.
    """

    stream_id: int
    code: int


class StreamDrained(msgspec.Struct, frozen=True, gc=False):
    """All data of this stream that flow control held back has been queued for sending."""

    stream_id: int


class PingAcked(msgspec.Struct, frozen=True, gc=False):
    """The answer to `Connection.ping`."""

    data: bytes


class GoAwayReceived(msgspec.Struct, frozen=True, gc=False):
    """The peer accepts no new streams; those up to `last_stream_id` continue."""

    last_stream_id: int
    code: int
    debug: bytes


class SettingsReceived(msgspec.Struct, frozen=True, gc=False):
    """The peer's settings were received and applied; the limit on streams may have changed."""


class ConnectionEnded(msgspec.Struct, frozen=True, gc=False):
    """The peer broke the protocol or a limit: send what is queued (a GOAWAY), then close."""

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
