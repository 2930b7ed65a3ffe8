"""HTTP/1.1 on real loopback sockets: what an application is given, and what a peer may not do."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable

import h11
import pytest

from quoracy.faces.common import http1
from quoracy.faces.common.asgi import Receive, Scope, Send, reply_text
from quoracy.faces.common.http1 import HEAD_BYTES_MAX, Http1Connections

WAIT_S_MAX = 30.0


class App:
    """Answers by path; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bytes]] = []
        self.cancelled = asyncio.Event()
        self.begun = asyncio.Event()
        self.may_finish = asyncio.Event()
        self.sent_count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path == "/unread":
            await reply_text(send, 200, "not read")
            return
        body = b""
        if path != "/stream-early":
            message = await receive()
            body = message["body"]
            while message.get("more_body"):
                message = await receive()
                body += message["body"]
        self.asked.append((scope["method"], path, body))
        self.begun.set()
        match path:
            case "/fail":
                raise RuntimeError("meant to fail")
            case "/fail-late":
                await _start(send)
                await send({"type": "http.response.body", "body": b"part", "more_body": True})
                raise RuntimeError("meant to fail")
            case "/wait":
                await self.may_finish.wait()
                await reply_text(send, 200, "waited")
            case "/stream":
                await self._stream(send)
            case _:
                await reply_text(send, 200, f"{scope['method']} {path} {len(body)}\n")

    async def _stream(self, send: Send) -> None:
        try:
            await _start(send)
            while True:
                await send({"type": "http.response.body", "body": bytes(65_536), "more_body": True})
                self.sent_count += 1
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


async def _start(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})


class Client:
    """A client that says exactly what it is told to, and reads with the `h11` package."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._http = h11.Connection(h11.CLIENT)

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, method: bytes = b"GET") -> tuple[int, bytes]:
        """The next response, whatever request it is for."""
        self._http = self._next(method)
        status, body = 0, b""
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._read())
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return status, body

    def _next(self, method: bytes) -> h11.Connection:
        rest = self._http.trailing_data[0]
        connection = h11.Connection(h11.CLIENT)
        connection.send(h11.Request(method=method, target=b"/", headers=[(b"host", b"x")]))
        connection.send(h11.EndOfMessage())
        if rest:
            connection.receive_data(rest)
        return connection

    async def _read(self) -> bytes:
        async with asyncio.timeout(WAIT_S_MAX):
            return await self.reader.read(65_536)

    async def ended(self) -> bytes:
        """What comes until the server hangs up."""
        async with asyncio.timeout(WAIT_S_MAX):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""


class Server:
    def __init__(self, app: App) -> None:
        self.app = app
        self.connections = Http1Connections(app, asyncio.get_running_loop())
        self._clients: list[Client] = []
        self.port = 0

    async def connect(self, *, receive_buffer: int | None = None) -> Client:
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        client = Client(*await asyncio.open_connection(sock=sock, limit=receive_buffer or 65_536))
        self._clients.append(client)
        return client

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Server]:
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(self.connections.make_protocol, "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            listener.close()
            await self.connections.drain(0)
            for client in self._clients:
                client.writer.close()
                with contextlib.suppress(ConnectionError):
                    await client.writer.wait_closed()
            await listener.wait_closed()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(App()).running() as server:
        yield server


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]
    return "\r\n".join(lines).encode()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while not holds():  # noqa: ASYNC110 (no event announces it)
            await asyncio.sleep(0.005)


# -- requests and responses


async def test_connection_is_kept_for_the_next_request(server: Server) -> None:
    client = await server.connect()
    for path in ("/one", "/two"):
        client.send(get(path))
        assert await client.answer() == (200, f"GET {path} 0\n".encode())


async def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    client = await server.connect()
    body = b"x" * 1_000
    client.send(
        b"".join(get(f"/{number}") for number in range(50))
        + get("/post", f"Content-Length: {len(body)}", method="POST")
        + body
        + get("/last")
    )
    answers = [await client.answer() for _ in range(52)]
    assert [text for _, text in answers[:2]] == [b"GET /0 0\n", b"GET /1 0\n"]
    assert [text for _, text in answers[-2:]] == [b"POST /post 1000\n", b"GET /last 0\n"]


async def test_one_request_runs_at_a_time(server: Server) -> None:
    client = await server.connect()
    client.send(get("/wait") + get("/after"))
    await asyncio.wait_for(server.app.begun.wait(), WAIT_S_MAX)
    other = await server.connect()
    other.send(get("/other"))
    assert (await other.answer())[0] == 200
    assert [path for _, path, _ in server.app.asked] == ["/wait", "/other"]
    server.app.may_finish.set()
    assert [text for _, text in (await client.answer(), await client.answer())] == [
        b"waited", b"GET /after 0\n"
    ]  # fmt: skip


async def test_chunked_body_arrives_whole(server: Server) -> None:
    client = await server.connect()
    client.send(get("/", "Transfer-Encoding: chunked", method="POST"))
    for piece in (b"3\r\nabc\r\n", b"5;ext=1\r\nde", b"fgh\r\n0\r\nTrailer: x\r\n\r\n"):
        client.send(piece)
        await client.writer.drain()
    assert await client.answer() == (200, b"POST / 8\n")
    assert server.app.asked == [("POST", "/", b"abcdefgh")]


async def test_large_body_arrives_whole(server: Server) -> None:
    client = await server.connect()
    body = bytes(range(256)) * 20_000
    client.send(get("/", f"Content-Length: {len(body)}", method="PUT") + body)
    assert await client.answer() == (200, f"PUT / {len(body)}\n".encode())
    assert server.app.asked[0][2] == body


async def test_head_has_no_body_and_keeps_the_connection(server: Server) -> None:
    client = await server.connect()
    client.send(get("/head", method="HEAD"))
    assert await client.answer(b"HEAD") == (200, b"")
    client.send(get("/next"))
    assert await client.answer() == (200, b"GET /next 0\n")


async def test_client_that_asks_first_is_told_to_continue(server: Server) -> None:
    client = await server.connect()
    client.send(get("/", "Content-Length: 5", "Expect: 100-continue", method="POST"))
    async with asyncio.timeout(WAIT_S_MAX):
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 \r\n\r\n"
    client.send(b"hello")
    assert await client.answer() == (200, b"POST / 5\n")


async def test_http_1_0_is_answered_and_hung_up_on(server: Server) -> None:
    client = await server.connect()
    client.send(b"GET /old HTTP/1.0\r\n\r\n")
    said = await client.ended()
    assert said.startswith(b"HTTP/1.1 200")
    assert said.endswith(b"GET /old 0\n")


async def test_close_is_honoured(server: Server) -> None:
    client = await server.connect()
    client.send(get("/", "Connection: close") + get("/never"))
    assert (await client.ended()).endswith(b"GET / 0\n")
    assert len(server.app.asked) == 1


async def test_body_that_the_application_leaves_ends_the_connection(server: Server) -> None:
    client = await server.connect()
    client.send(get("/unread", "Content-Length: 10", method="POST"))
    assert (await client.ended()).endswith(b"not read")


# -- what breaks the rules


@pytest.mark.parametrize(
    "data",
    [
        get("/", "Content-Length: 5", "Content-Length: 6", method="POST") + b"hello",
        get("/", "Content-Length: 5, 6", method="POST") + b"hello",
        get("/", "Content-Length: 5", "Transfer-Encoding: identity", method="POST") + b"hello",
        get("/", "Content-Length: 4", "Transfer-Encoding: chunked", method="POST") + b"0\r\n\r\n",
        get("/", "Content-Length: +5", method="POST") + b"hello",
        get("/", "Content-Length: -5", method="POST"),
        get("/", "Transfer-Encoding: chunked, gzip", method="POST"),
        get("/", "Bad Name: x"),
        get("/", " folded-from-nowhere\x00: x"),
        get("/", "X: a\x00b"),
        get("/two words"),
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        get("/", "Host: other"),
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello\r\n\r\n",
        bytes(range(256)) + b"\r\n\r\n",
    ],
    ids=lambda data: repr(data[:60]),
)
async def test_broken_request_gets_400_and_the_end(server: Server, data: bytes) -> None:
    client = await server.connect()
    client.send(data)
    said = await client.ended()
    assert said.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501", b"HTTP/1.1 505")), said
    assert b"\r\nconnection: close\r\n" in said.lower()
    assert server.app.asked == []


async def test_broken_chunks_end_the_connection(server: Server) -> None:
    client = await server.connect()
    client.send(get("/", "Transfer-Encoding: chunked", method="POST") + b"zz\r\nabc\r\n")
    assert (await client.ended()).startswith((b"HTTP/1.1 400", b""))
    assert server.app.asked == []


async def test_head_that_is_too_large_gets_431(server: Server) -> None:
    client = await server.connect()
    client.send(b"GET / HTTP/1.1\r\nHost: x\r\n")
    with contextlib.suppress(ConnectionError):
        for _ in range(2 * HEAD_BYTES_MAX // 1_000):
            client.send(b"X: " + b"y" * 995 + b"\r\n")
            await client.writer.drain()
    said = await client.ended()
    assert said.startswith(b"HTTP/1.1 431") or said == b""  # reset: it sent on after the answer
    assert server.app.asked == []


async def test_head_that_never_ends_is_hung_up_on(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1, "HEAD_S", 0.2)
    client = await server.connect()
    client.send(b"GET / HTTP/1.1\r\n")
    assert await client.ended() == b""
    assert server.app.asked == []


async def test_trickling_does_not_buy_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "HEAD_S", 0.3)
    client = await server.connect()
    ended = asyncio.ensure_future(client.ended())
    client.send(b"GET / HTTP/1.1\r\nX: ")
    async with asyncio.timeout(WAIT_S_MAX):
        while not ended.done():  # a byte every few milliseconds, for as long as anyone listens
            with contextlib.suppress(ConnectionError):
                client.send(b"y")
                await client.writer.drain()
            await asyncio.sleep(0.01)
    assert await ended == b""


async def test_idle_connection_is_hung_up_on(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "IDLE_S", 0.2)
    client = await server.connect()
    client.send(get("/"))
    assert (await client.answer())[0] == 200
    assert await client.ended() == b""


async def test_peer_that_breaks_the_rules_leaves_others_alone(server: Server) -> None:
    good, bad = await server.connect(), await server.connect()
    good.send(get("/wait"))
    await asyncio.wait_for(server.app.begun.wait(), WAIT_S_MAX)
    bad.send(b"\xff\xff\r\n\r\n")
    await bad.ended()
    server.app.may_finish.set()
    assert await good.answer() == (200, b"waited")


# -- clients that leave, and clients that do not read


async def test_client_that_leaves_ends_what_it_asked_for(server: Server) -> None:
    client = await server.connect()
    client.send(get("/stream"))
    assert await client.reader.readuntil(b"\r\n\r\n")
    client.writer.transport.abort()
    await asyncio.wait_for(server.app.cancelled.wait(), WAIT_S_MAX)
    await until(lambda: not server.connections.open)


async def test_client_that_does_not_read_makes_the_application_wait(server: Server) -> None:
    slow = await server.connect(receive_buffer=4_096)
    slow.send(get("/stream"))
    count = -1
    while count != server.app.sent_count:  # until the buffers are full
        count = server.app.sent_count
        await asyncio.sleep(0.1)
    assert count * 65_536 < 16_000_000
    other = await server.connect()
    other.send(get("/other"))
    assert (await other.answer())[0] == 200
    async with asyncio.timeout(WAIT_S_MAX):  # it reads, and the rest comes
        while server.app.sent_count <= count + 10:
            assert await slow.reader.read(1_000_000)


# -- applications that fail, and the end


async def test_application_that_fails_gives_500(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    client = await server.connect()
    with caplog.at_level(logging.ERROR):
        client.send(get("/fail"))
        assert (await client.answer())[0] == 500
    assert "GET /fail failed" in caplog.text
    assert await client.ended() == b""


async def test_application_that_fails_late_cuts_the_response(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    client = await server.connect()
    with caplog.at_level(logging.CRITICAL):
        client.send(get("/fail-late"))
        said = await client.ended()
    assert b"part" in said
    assert not said.endswith(b"0\r\n\r\n")  # so that nobody takes it for all


async def test_drain_lets_a_request_finish(server: Server) -> None:
    busy, idle = await server.connect(), await server.connect()
    idle.send(get("/"))
    assert (await idle.answer())[0] == 200
    server.app.begun.clear()
    busy.send(get("/wait") + get("/never"))
    await asyncio.wait_for(server.app.begun.wait(), WAIT_S_MAX)
    drain = asyncio.ensure_future(server.connections.drain(WAIT_S_MAX))
    assert await idle.ended() == b""
    server.app.may_finish.set()
    said = await busy.ended()
    assert said.endswith(b"waited")
    assert b"\r\nconnection: close\r\n" in said.lower()
    await drain
    assert "/never" not in [path for _, path, _ in server.app.asked]


async def test_drain_does_not_wait_for_ever(server: Server) -> None:
    client = await server.connect()
    client.send(get("/stream"))
    assert await client.reader.readuntil(b"\r\n\r\n")
    await server.connections.drain(0.05)
    await asyncio.wait_for(server.app.cancelled.wait(), WAIT_S_MAX)
    await until(lambda: not server.connections.open)


async def test_answer_before_the_body_ended_arrives(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    size = 16_000_000
    writer.write(b"POST /unread HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % size)
    try:
        async with asyncio.timeout(WAIT_S_MAX):
            for _ in range(size // 1_000_000):
                writer.write(bytes(1_000_000))
                await writer.drain()
            answer = await reader.read()
    finally:
        writer.transport.abort()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"not read")
