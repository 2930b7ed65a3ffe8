"""The services on a store in memory, called without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Self

import pytest

from quoracy.clock import ManualClock
from quoracy.engines.opening import open_embedded
from quoracy.errors import QuoracyError
from quoracy.faces.etcd.errors import status_of
from quoracy.faces.etcd.methods import Method, Streaming, Unary, answer_of
from quoracy.faces.etcd.services.all import etcd_methods
from quoracy.faces.etcd.services.member import Identity
from quoracy.store.api import Store
from quoracy.store.rules import Limits
from quoracy.wire.grpc import StatusCode
from quoracy.wire.protobuf import Message

IDENTITY = Identity(cluster_id=11, member_id=22, name="q1", client_urls=("http://127.0.0.1:2379",))
SMALL = Limits(request_bytes_max=4096, lease_ttl_max_s=1000.0)


class Face:
    """Every procedure by its last name, with each message sent through the codec as on the wire."""

    def __init__(self, methods: dict[str, Method]) -> None:
        self.methods = methods

    async def call(self, path: str, request: Message) -> Any:
        method = self.methods[path]
        assert isinstance(method, Unary)
        data, _ = await answer_of(method, request.encode())
        return method.response.decode(data)

    async def refused(self, path: str, request: Message) -> tuple[StatusCode, str]:
        """The status a call ends with that must not succeed."""
        try:
            response = await self.call(path, request)
        except QuoracyError as error:
            return status_of(error)
        pytest.fail(f"{path} answered {response}")

    def stream(self, path: str) -> StreamCall:
        method = self.methods[path]
        assert isinstance(method, Streaming)
        return StreamCall(method)


class StreamCall:
    """A running streaming call: what the client says goes in, what the server says comes out.

    Until `reads` is set, `send` waits as it does for a client that does not read.
    """

    def __init__(self, method: Streaming[Any, Any]) -> None:
        self._method = method
        self._requests: asyncio.Queue[Message | None] = asyncio.Queue()
        self._responses: asyncio.Queue[Any] = asyncio.Queue()
        self.sent_count = self.sends_count = 0
        self.reads = asyncio.Event()
        self.reads.set()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await self._method.handle(self._incoming(), self._send)

    async def _incoming(self) -> AsyncIterator[Message]:
        while (request := await self._requests.get()) is not None:
            yield self._method.request.decode(request.encode())

    async def _send(self, *responses: Message) -> None:
        await self.reads.wait()
        self.sends_count += 1
        for response in responses:
            self.sent_count += 1
            self._responses.put_nowait(self._method.response.decode(response.encode()))

    def say(self, request: Message) -> None:
        self._requests.put_nowait(request)

    def say_no_more(self) -> None:
        self._requests.put_nowait(None)

    async def hear(self) -> Any:
        """The next response; the call must not end before."""
        getting = asyncio.ensure_future(self._responses.get())
        await asyncio.wait((getting, self.task), return_when=asyncio.FIRST_COMPLETED)
        if not getting.done():
            getting.cancel()
            pytest.fail(f"the call ended: {self.task!r}")
        return getting.result()

    async def hears_nothing(self) -> bool:
        for _ in range(50):
            await asyncio.sleep(0)
        return self._responses.empty()

    async def ended(self) -> tuple[StatusCode, str]:
        """How the call ends by itself."""
        try:
            await self.task
        except QuoracyError as error:
            return status_of(error)
        return StatusCode.OK, ""

    async def cancel(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cancel()


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with open_embedded("memory:") as store:
        yield store


@pytest.fixture
def face(store: Store) -> Face:
    return Face(etcd_methods(store, IDENTITY))


@pytest.fixture
async def timed_store(clock: ManualClock) -> AsyncIterator[Store]:
    async with open_embedded("memory:", clock=clock) as store:
        yield store


@pytest.fixture
def timed_face(timed_store: Store, clock: ManualClock) -> Face:
    return Face(etcd_methods(timed_store, IDENTITY, clock=clock, progress_notify_s=10.0))


@pytest.fixture
async def small_face() -> AsyncIterator[Face]:
    """A face on a store with small limits."""
    async with open_embedded("memory:", limits=SMALL) as store:
        yield Face(etcd_methods(store, IDENTITY, limits=SMALL, watches_max=3))
