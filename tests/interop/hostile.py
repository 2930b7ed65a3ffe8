"""A peer that says over HTTP/2 whatever a test wants, and one that wants nothing but to be served."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Self

import grpc
from hpack import Encoder

from quoracy.wire.etcd import rpc
from quoracy.wire.http2.codes import PREFACE, ErrorCode, FrameType, Setting
from tests.interop.programs import WAIT_S_MAX

__all__ = ["Bystander", "Peer", "frame", "grpc_message", "window_update"]

_HEAD = struct.Struct(">BHBBI")


def frame(kind: FrameType, *, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return _HEAD.pack(len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload


def window_update(stream: int, increment: int) -> bytes:
    return frame(FrameType.WINDOW_UPDATE, stream=stream, payload=increment.to_bytes(4, "big"))


def grpc_message(payload: bytes) -> bytes:
    return b"\0" + len(payload).to_bytes(4, "big") + payload


class Peer:
    """A raw connection.  What the server sends is read all the time, unless the peer is told not to."""

    def __init__(
        self, port: int, *, settings: Mapping[Setting, int] | None = None, reads: bool = True
    ) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S_MAX)
        self._encoder = Encoder()
        self._received = b""
        self._is_over = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        payload = b"".join(struct.pack(">HI", *each) for each in (settings or {}).items())
        self.send(PREFACE + frame(FrameType.SETTINGS, payload=payload))
        if reads:
            self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self._reader.ident is not None:
            self._reader.join(WAIT_S_MAX)

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._socket.recv(1 << 16):
                self._received += data
        self._is_over.set()

    def send(self, data: bytes) -> bool:
        """Whether the server still listens."""
        try:
            self._socket.sendall(data)
        except OSError:
            return False
        return not self._is_over.is_set()

    def flood(self, data: bytes, times: int) -> None:
        """Say the same again and again, until the server has had enough."""
        for _ in range(times):
            if not self.send(data):
                return

    def request(self, path: str, *, stream: int = 1, end: bool = False, more: bool = False) -> bytes:
        """HEADERS of a call; with `more`, CONTINUATION frames are still to come."""
        fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ]
        block = self._encoder.encode(fields)
        flags = (0 if more else 0x4) | (0x1 if end else 0)
        return frame(FrameType.HEADERS, flags=flags, stream=stream, payload=block)

    def call(self, path: str, message: bytes, *, stream: int) -> bytes:
        data = frame(FrameType.DATA, flags=0x1, stream=stream, payload=grpc_message(message))
        return self.request(path, stream=stream) + data

    def frames(self) -> Iterator[tuple[int, int, bytes]]:
        """Type, stream and payload of everything received so far."""
        at, data = 0, self._received
        while at + 9 <= len(data):
            high, low, kind, _, stream = _HEAD.unpack_from(data, at)
            end = at + 9 + (high << 16) + low
            yield kind, stream, data[at + 9 : end]
            at = end

    def ended_with(self) -> ErrorCode:
        """The code of the GOAWAY with which the server hung up."""
        assert self._is_over.wait(WAIT_S_MAX), "the server did not hang up"
        codes = [payload[4:8] for kind, _, payload in self.frames() if kind == FrameType.GOAWAY]
        assert codes, "the server hung up without a word"
        return ErrorCode(int.from_bytes(codes[-1], "big"))

    def reset_codes(self) -> list[ErrorCode]:
        return [
            ErrorCode(int.from_bytes(payload, "big"))
            for kind, _, payload in self.frames()
            if kind == FrameType.RST_STREAM
        ]


class Bystander:
    """An honest client on a connection of its own: it keeps writing and watches what it writes."""

    def __init__(self, port: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=options)
        self._put: Any = self._channel.unary_unary("/etcdserverpb.KV/Put")
        self._stop = threading.Event()
        self._puts_count = 0
        self._failure: Exception | None = None
        watch: Any = self._channel.stream_stream("/etcdserverpb.Watch/Watch")
        self._events = watch(self._requests())
        assert self._next().created
        self._thread = threading.Thread(target=self._write, daemon=True)

    def _requests(self) -> Iterator[bytes]:
        yield rpc.WatchRequest(create_request=rpc.WatchCreateRequest(key=b"bystander")).encode()
        self._stop.wait()

    def _next(self) -> rpc.WatchResponse:
        response = rpc.WatchResponse.decode(next(self._events))
        assert isinstance(response, rpc.WatchResponse)
        return response

    def _write(self) -> None:
        try:
            while not self._stop.wait(0.005):
                self.put()
        except grpc.RpcError as error:
            self._failure = error

    def put(self) -> None:
        value = b"%d" % self._puts_count
        self._put(rpc.PutRequest(key=b"bystander", value=value).encode(), timeout=WAIT_S_MAX)
        self._puts_count += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stop.set()
        self._thread.join(WAIT_S_MAX)
        try:
            if kind is None:
                assert self._failure is None, self._failure
                self.put()
                seen: list[bytes] = []
                while len(seen) < self._puts_count:
                    seen += [event.kv.value for event in self._next().events if event.kv is not None]
                assert seen == [b"%d" % number for number in range(self._puts_count)]
        finally:
            self._events.cancel()
            self._channel.close()
