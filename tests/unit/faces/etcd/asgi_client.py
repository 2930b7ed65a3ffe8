"""An ASGI server's side of one request, in the test's hands: what arrives when, what was answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from quoracy.faces.common.asgi import AsgiApp, Message

__all__ = ["Answer", "Exchange", "ask", "exchange"]


class Answer:
    """A whole response."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


class Exchange:
    """One request under way."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[Message] = asyncio.Queue()
        self.outgoing: asyncio.Queue[Message] = asyncio.Queue()
        self.reading = asyncio.Event()  # cleared: the client does not read
        self.reading.set()

    def send(self, body: bytes, *, more: bool = True) -> None:
        self.incoming.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def disconnect(self) -> None:
        self.incoming.put_nowait({"type": "http.disconnect"})

    async def status(self) -> int:
        message = await self.outgoing.get()
        assert message["type"] == "http.response.start"
        self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        status: int = message["status"]
        return status

    async def piece(self) -> bytes:
        """The next piece of the body; b"" at its end."""
        message = await self.outgoing.get()
        assert message["type"] == "http.response.body"
        body: bytes = message.get("body", b"")
        return body

    async def line(self) -> Any:
        return json.loads(await self.piece())

    async def receive(self) -> Message:
        return await self.incoming.get()

    async def put(self, message: Message) -> None:
        await self.reading.wait()
        self.outgoing.put_nowait(message)


@asynccontextmanager
async def exchange(app: AsgiApp, path: str, **options: Any) -> AsyncIterator[Exchange]:
    """One request whose body and answer go piece by piece; afterwards the application must end."""
    each = Exchange()
    running = asyncio.create_task(_run(app, each, path, **options))
    try:
        yield each
        each.disconnect()
        await running
    finally:
        running.cancel()


async def ask(app: AsgiApp, path: str, body: bytes = b"", **options: Any) -> Answer:
    """One request, whole, and its answer."""
    each = Exchange()
    each.send(body, more=False)
    await _run(app, each, path, **options)
    status = await each.status()
    pieces = []
    while not each.outgoing.empty():
        pieces.append(await each.piece())
    return Answer(status, each.headers, b"".join(pieces))


async def _run(
    app: AsgiApp,
    each: Exchange,
    path: str,
    *,
    method: str = "POST",
    headers: dict[str, str] | None = None,
) -> None:
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [
            (name.encode(), value.encode("latin-1"))
            for name, value in ({"host": "localhost:2379"} | (headers or {})).items()
        ],
    }
    await app(scope, each.receive, each.put)
