"""HTTP/2 (RFC 9113) without IO, for servers and clients: bytes in, events out."""

from quoracy.wire.http2.codes import ErrorCode as ErrorCode
from quoracy.wire.http2.connection import Connection as Connection
from quoracy.wire.http2.connection import WholeAnswer as WholeAnswer
from quoracy.wire.http2.events import ConnectionEnded as ConnectionEnded
from quoracy.wire.http2.events import DataReceived as DataReceived
from quoracy.wire.http2.events import Event as Event
from quoracy.wire.http2.events import GoAwayReceived as GoAwayReceived
from quoracy.wire.http2.events import HeadersReceived as HeadersReceived
from quoracy.wire.http2.events import PingAcked as PingAcked
from quoracy.wire.http2.events import SettingsReceived as SettingsReceived
from quoracy.wire.http2.events import StreamDrained as StreamDrained
from quoracy.wire.http2.events import StreamReset as StreamReset
from quoracy.wire.http2.events import TrailersReceived as TrailersReceived
from quoracy.wire.http2.header_block import HeaderBlock as HeaderBlock
from quoracy.wire.http2.hpack import encode_headers as encode_headers
from quoracy.wire.http2.limits import Http2Limits as Http2Limits
