"""gRPC over HTTP/2: what its headers, trailers and length-prefixed messages say.

Sans-IO: the shells on both sides (`faces.etcd.server`, `client.channel`) move the bytes.  The facts are
those of the "gRPC over HTTP2" protocol document of the gRPC project.

Invariants
    * No input raises anything but `GrpcError`, which carries the status the call ends with.
    * A message costs at most `size_max` bytes of memory, compressed or not: a length is refused when it
      is announced, a deflate bomb when it has unpacked that much.
    * Messages are sent uncompressed; identity and gzip are understood.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from quoracy.errors import QuoracyError
from quoracy.wire.grpc_head import RequestHead
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
# Of most messages.  (`to_bytes` is looked up by its name, for each of them.)
_PREFIXES: Final = [size.to_bytes(_PREFIX_BYTES, "big") for size in range(1_024)]
_GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS


def frame(payload: bytes) -> bytes:
    """A message as it travels: not compressed (a 0), four bytes of length, the payload."""
    size = len(payload)
    if size < len(_PREFIXES):
        return _PREFIXES[size] + payload
    return size.to_bytes(_PREFIX_BYTES, "big") + payload


def whole_message(data: bytes, size_max: int) -> bytes | None:
    """The message, if `data` is exactly one that is not compressed and not too large."""
    size = len(data) - _PREFIX_BYTES
    if size < 0 or size > size_max or data[0]:
        return None
    # Not with `int.from_bytes`: that is looked up by its name, for each answer.
    if data[1] << 24 | data[2] << 16 | data[3] << 8 | data[4] != size:
        return None
    return data[_PREFIX_BYTES:]


class MessageReader:
    """Puts one direction of one call together again, however the bytes were cut.

    `encoding` is what the peer's `grpc-encoding` said, if it said anything.
    """

    __slots__ = ("_encoding", "_kept", "_kept_bytes", "_needed_bytes", "_size_max")

    def __init__(self, size_max: int, encoding: bytes | None = None) -> None:
        self._size_max = size_max
        self._encoding = encoding
        # Pieces of a message, put together only when all are there: one copy, however many they are.
        self._kept: list[bytes] = []
        self._kept_bytes = self._needed_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are complete now.

        Raises `GrpcError`: RESOURCE_EXHAUSTED for one over the limit, INTERNAL or UNIMPLEMENTED for a
        compression that was not announced or is not known.
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
        """The peer sends no more.  Raises `GrpcError` if that cuts a message short."""
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
    """What `grpc-timeout` asks for, in seconds.

    >>> parse_timeout_s(b"250m")
    0.25
    """
    match = _TIMEOUT.fullmatch(value)
    if match is None:
        raise GrpcError(StatusCode.INTERNAL, f"grpc-timeout {value!r} is no duration")
    return int(match[1]) * _UNIT_S[match[2]]


def format_timeout(seconds: float) -> bytes:
    """The same the other way round, in the finest unit that has room for it, never longer than asked.

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

# Stateless, so that every connection can send the same bytes.
RESPONSE_HEAD = encode_headers(((b":status", b"200"), _CONTENT_TYPE))
OK_TRAILERS = encode_headers(((b"grpc-status", b"0"),))


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
    # etcd's clients send their token as `token`, its gateway takes it as `authorization`.
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
    """The encoded trailers that end a call whose head was sent."""
    return encode_headers(_status_pairs(code, message))


def trailers_only(code: StatusCode, message: str = "") -> bytes:
    """The encoded head of a call that ends at once: no message, no trailers."""
    return encode_headers(
        ((b":status", b"200"), _CONTENT_TYPE, _ACCEPTED, *_status_pairs(code, message))
    )


def _status_pairs(code: StatusCode, message: str) -> tuple[tuple[bytes, bytes], ...]:
    status = (b"grpc-status", b"%d" % code)
    if not message:
        return (status,)
    # Printable ASCII stays readable; the rest, and the percent sign, is percent-encoded UTF-8.
    text = _UNPRINTABLE.sub(lambda found: b"%%%02X" % found[0][0], message.encode("utf-8", "replace"))
    return (status, (b"grpc-message", text))


_UNPRINTABLE = re.compile(rb"[^ -$&-~]")
_PERCENT_CODED = re.compile(rb"%([0-9A-Fa-f]{2})")

# HTTP status -> gRPC status, for a peer (a proxy) that answered without any: from the gRPC document.
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
    """How a call ended, from its trailers or from a head that is all there is."""
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
