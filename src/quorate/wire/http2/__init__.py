"""HTTP/2 (RFC 9113) without IO: bytes in, events out, for servers and clients."""

from quorate.wire.http2.codes import ErrorCode as ErrorCode
from quorate.wire.http2.connection import Connection as Connection
from quorate.wire.http2.connection import WholeAnswer as WholeAnswer
from quorate.wire.http2.events import ConnectionEnded as ConnectionEnded
from quorate.wire.http2.events import DataReceived as DataReceived
from quorate.wire.http2.events import Event as Event
from quorate.wire.http2.events import GoAwayReceived as GoAwayReceived
from quorate.wire.http2.events import HeadersReceived as HeadersReceived
from quorate.wire.http2.events import PingAcked as PingAcked
from quorate.wire.http2.events import SettingsReceived as SettingsReceived
from quorate.wire.http2.events import StreamDrained as StreamDrained
from quorate.wire.http2.events import StreamReset as StreamReset
from quorate.wire.http2.events import TrailersReceived as TrailersReceived
from quorate.wire.http2.header_block import HeaderBlock as HeaderBlock
from quorate.wire.http2.hpack_codec import encode_headers as encode_headers
from quorate.wire.http2.limits import Http2Limits as Http2Limits
