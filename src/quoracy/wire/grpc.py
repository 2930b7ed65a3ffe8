"""gRPC over HTTP/2: headers, trailers and length-prefixed messages, without IO.

The protocol is described in the gRPC project's document "gRPC over HTTP2".  `faces.etcd.serving` and
`remote.channel` move the bytes.

Invariants
    * Malformed input raises `GrpcError` and nothing else; it carries the status that the call ends
      with.
    * A message takes at most `size_max` bytes of memory, compressed or not: a length that is too
      large is refused when it is announced, a gzip bomb when it has unpacked that much.
    * Messages are sent uncompressed; identity and gzip are accepted.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from quoracy.errors import QuoracyError
from quoracy.wire.http2 import HeaderBlock, encode_headers

__all__ = [
    "OK_TRAILERS",
    "RESPONSE_HEAD",
    "GrpcError",
    "MessageReader",
    "RequestHead",
    "StatusCode",
    "format_timeout",
    "frame",
    "parse_timeout_s",
    "read_request_head",
    "request_head",
    "response_head",
    "status_from_headers",
    "status_trailers",
    "trailers_only",
    "whole_message",
]


class StatusCode(IntEnum):
    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class GrpcError(QuoracyError):
    """A call ends, or ended, with this status instead of an answer."""

    def __init__(self, code: StatusCode, message: str) -> None:
        super().__init__(f"{message} ({code.name})")
        self.code, self.message = code, message


# -- messages --------------------------------------------------------------------------------

_PREFIX_BYTES: Final = 5
# The prefixes of short messages: compiled code looks `to_bytes` up by name for each call.
_PREFIXES: Final = [size.to_bytes(_PREFIX_BYTES, "big") for size in range(1_024)]
_GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS


def frame(payload: bytes) -> bytes:
    """A message as it is sent: a 0 (not compressed), four bytes of length, the payload."""
    size = len(payload)
    if size < len(_PREFIXES):
        return _PREFIXES[size] + payload
    return size.to_bytes(_PREFIX_BYTES, "big") + payload


def whole_message(data: bytes, size_max: int) -> bytes | None:
    """The message, if `data` is exactly one message, uncompressed and within the limit."""
    size = len(data) - _PREFIX_BYTES
    if size < 0 or size > size_max or data[0]:
        return None
    # Compiled code looks `int.from_bytes` up by name for each call.
    if data[1] << 24 | data[2] << 16 | data[3] << 8 | data[4] != size:
        return None
    return data[_PREFIX_BYTES:]


class MessageReader:
    """Reassembles the messages of one direction of one call, however the bytes were cut.

    `encoding` is the peer's `grpc-encoding`, if it sent one.
    """

    __slots__ = ("_encoding", "_kept", "_kept_bytes", "_needed_bytes", "_size_max")

    def __init__(self, size_max: int, encoding: bytes | None = None) -> None:
        self._size_max = size_max
        self._encoding = encoding
        # Pieces of an incomplete message.  They are joined once, when all of them have arrived.
        self._kept: list[bytes] = []
        self._kept_bytes = self._needed_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that `data` completes.

        Raises `GrpcError`: RESOURCE_EXHAUSTED for a message over the limit, INTERNAL or
        UNIMPLEMENTED for a compression that was not announced or is not known.
        """
        if self._kept:
            self._kept.append(data)
            self._kept_bytes += len(data)
            if self._kept_bytes < self._needed_bytes:
                return []
            data = b"".join(self._kept)
            self._kept = []
        messages = []
        start, size, needed = 0, len(data), _PREFIX_BYTES
        while size - start >= _PREFIX_BYTES:
            length = int.from_bytes(data[start + 1 : start + _PREFIX_BYTES], "big")
            if length > self._size_max:
                raise _too_large(length, self._size_max)
            end = start + _PREFIX_BYTES + length
            if end > size:
                needed = end - start
                break
            payload = data[start + _PREFIX_BYTES : end]
            messages.append(self._unpack(payload) if data[start] else payload)
            start = end
        if start < size:
            self._kept = [data[start:]]
            self._kept_bytes, self._needed_bytes = size - start, needed
        return messages

    def finish(self) -> None:
        """The peer sends nothing more.  Raises `GrpcError` if a message is incomplete."""
        if self._kept:
            raise GrpcError(StatusCode.INTERNAL, "the stream ended inside a message")

    def _unpack(self, payload: bytes) -> bytes:
        if self._encoding != b"gzip":
            raise GrpcError(
                StatusCode.INTERNAL, "a message is marked as compressed and no grpc-encoding was given"
            )
        unpacker = zlib.decompressobj(_GZIP_WINDOW_BITS)
        try:
            message = unpacker.decompress(payload, self._size_max + 1)
        except zlib.error as error:
            raise GrpcError(StatusCode.INTERNAL, f"a message is not valid gzip: {error}") from error
        if len(message) > self._size_max:
            raise _too_large(len(message), self._size_max)
        if not unpacker.eof:
            raise GrpcError(StatusCode.INTERNAL, "a message is not valid gzip: it ends too early")
        return message


def _too_large(size: int, size_max: int) -> GrpcError:
    return GrpcError(
        StatusCode.RESOURCE_EXHAUSTED, f"grpc: received message larger than max ({size} vs. {size_max})"
    )


# -- deadlines -------------------------------------------------------------------------------

_UNIT_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")


def parse_timeout_s(value: bytes) -> float:
    """The value of `grpc-timeout`, in seconds.

    >>> parse_timeout_s(b"250m")
    0.25
    """
    match = _TIMEOUT.fullmatch(value)
    if match is None:
        raise GrpcError(StatusCode.INTERNAL, f"grpc-timeout {value!r} is no duration")
    return int(match[1]) * _UNIT_S[match[2]]


def format_timeout(seconds: float) -> bytes:
    """The value of `grpc-timeout` for a duration: rounded down, in the finest unit that can hold it.

    >>> format_timeout(0.25)
    b'250000u'
    """
    for unit, unit_s in ((b"u", 1e-6), (b"m", 1e-3), (b"S", 1.0)):
        count = int(seconds / unit_s)
        if count < 10**8:
            return b"%d%s" % (max(count, 0), unit)
    return b"99999999S"


# -- heads and trailers ----------------------------------------------------------------------

_CONTENT_TYPE = (b"content-type", b"application/grpc")
_ACCEPTED = (b"grpc-accept-encoding", b"identity,gzip")

# Encoded without state, so that every connection can send the same bytes.
RESPONSE_HEAD = encode_headers(((b":status", b"200"), _CONTENT_TYPE))
OK_TRAILERS = encode_headers(((b"grpc-status", b"0"),))


class RequestHead:
    """What a server needs of a call's headers.

    `fault` says why the call cannot be served, before any of its body is read.
    """

    __slots__ = ("authorization", "encoding", "fault", "path", "timeout_s")

    def __init__(
        self,
        path: str,
        timeout_s: float | None = None,
        encoding: bytes | None = None,
        authorization: bytes | None = None,
        fault: GrpcError | None = None,
    ) -> None:
        self.path, self.timeout_s, self.encoding = path, timeout_s, encoding
        self.authorization, self.fault = authorization, fault


def response_head(metadata: Sequence[tuple[bytes, bytes]]) -> bytes:
    """`RESPONSE_HEAD` with metadata; names in lower case."""
    return encode_headers(((b":status", b"200"), _CONTENT_TYPE, *metadata))


def read_request_head(block: HeaderBlock) -> RequestHead | None:
    """The head of a call; None if the request is not gRPC at all."""
    content_type = block.get(b"content-type")
    if content_type is None or not _is_grpc(content_type):
        return None
    path = (block.path or b"").decode("latin-1")
    encoding = block.get(b"grpc-encoding")
    timeout = block.get(b"grpc-timeout")
    try:
        if block.method != b"POST":
            raise GrpcError(StatusCode.UNIMPLEMENTED, "a call is made with POST")
        if encoding not in (None, b"identity", b"gzip"):
            raise GrpcError(
                StatusCode.UNIMPLEMENTED,
                f"grpc-encoding {encoding!r} is not known; gzip is",
            )
        timeout_s = None if timeout is None else parse_timeout_s(timeout)
    except GrpcError as fault:
        return RequestHead(path, fault=fault)
    # etcd's clients send their token as `token`; its gateway accepts it as `authorization`.
    authorization = block.get(b"token") or block.get(b"authorization")
    return RequestHead(path, timeout_s, encoding, authorization)


def _is_grpc(content_type: bytes) -> bool:
    return content_type == b"application/grpc" or content_type.startswith(
        (b"application/grpc+", b"application/grpc;")
    )


def request_head(
    path: str,
    authority: str,
    *,
    scheme: str = "http",
    timeout_s: float | None = None,
    metadata: Sequence[tuple[bytes, bytes]] = (),
) -> bytes:
    """The encoded header block that opens a call."""
    pairs = [
        (b":method", b"POST"),
        (b":scheme", scheme.encode()),
        (b":path", path.encode()),
        (b":authority", authority.encode()),
        _CONTENT_TYPE,
        (b"te", b"trailers"),
        _ACCEPTED,
    ]
    if timeout_s is not None:
        pairs.append((b"grpc-timeout", format_timeout(timeout_s)))
    return encode_headers((*pairs, *metadata))


def status_trailers(code: StatusCode, message: str = "") -> bytes:
    """The encoded trailers that end a call after its head."""
    return encode_headers(_status_pairs(code, message))


def trailers_only(code: StatusCode, message: str = "") -> bytes:
    """The encoded head that also ends a call: no messages and no trailers follow."""
    return encode_headers(
        ((b":status", b"200"), _CONTENT_TYPE, _ACCEPTED, *_status_pairs(code, message))
    )


def _status_pairs(code: StatusCode, message: str) -> tuple[tuple[bytes, bytes], ...]:
    status = (b"grpc-status", b"%d" % code)
    if not message:
        return (status,)
    # Printable ASCII except the percent sign is sent as it is, everything else as percent-encoded
    # UTF-8.
    text = _UNPRINTABLE.sub(lambda found: b"%%%02X" % found[0][0], message.encode("utf-8", "replace"))
    return (status, (b"grpc-message", text))


_UNPRINTABLE = re.compile(rb"[^ -$&-~]")
_PERCENT_CODED = re.compile(rb"%([0-9A-Fa-f]{2})")

# The gRPC status for an HTTP status, if a proxy answered without a gRPC status (from the gRPC
# document).
_BY_HTTP_STATUS = {
    b"400": StatusCode.INTERNAL,
    b"401": StatusCode.UNAUTHENTICATED,
    b"403": StatusCode.PERMISSION_DENIED,
    b"404": StatusCode.UNIMPLEMENTED,
    b"429": StatusCode.UNAVAILABLE,
    b"502": StatusCode.UNAVAILABLE,
    b"503": StatusCode.UNAVAILABLE,
    b"504": StatusCode.UNAVAILABLE,
}


def status_from_headers(block: HeaderBlock) -> tuple[StatusCode, str]:
    """The status of a call, from its trailers or from a head that ends it."""
    status = block.get(b"grpc-status")
    if status is None:
        http = block.status
        if http is not None and http != b"200":
            code = _BY_HTTP_STATUS.get(http, StatusCode.UNKNOWN)
            return code, f"the peer answered HTTP {http.decode('latin-1')} and no gRPC status"
        return StatusCode.UNKNOWN, "the call ended without a gRPC status"
    coded = block.get(b"grpc-message") or b""
    plain = _PERCENT_CODED.sub(lambda found: bytes((int(found[1], 16),)), coded)
    message = plain.decode("utf-8", "replace")
    try:
        return StatusCode(int(status)), message
    except ValueError:
        return StatusCode.UNKNOWN, message or f"the peer sent the unknown gRPC status {status!r}"
