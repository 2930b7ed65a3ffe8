"""Peers that abuse HTTP/1.1 on the port that speaks both, while another client goes on."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from tests.interop.hostile import Bystander
from tests.interop.programs import WAIT_S_MAX, QuoracyServer

PUT = b"POST /v3/kv/put HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(autouse=True)
def unharmed(server: QuoracyServer) -> Iterator[None]:
    with Bystander(server.port):
        before = server.rss_bytes
        yield
        assert server.rss_bytes - before < 64_000_000


def said_to(server: QuoracyServer, data: bytes) -> bytes:
    """Say something, and hear what comes until the server hangs up."""
    heard = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S_MAX) as peer:
        with contextlib.suppress(ConnectionError):
            peer.sendall(data)
            while more := peer.recv(65_536):
                heard += more
    return heard


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (PUT + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", b"400"),
        (PUT + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"400"),
        (PUT + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", b"501"),
        (PUT + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", b"400"),
        (b"POST /v3/kv/put HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", b"400"),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"Name: value\r\n" * 10_000 + b"\r\n", b"431"),
        (b"\0\1\2\3 garbage\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00 a TLS hello to a plain port\r\n\r\n", b"400"),
        (b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", b""),
    ],
    ids=[
        "two lengths", "length and chunks", "unknown coding", "space before colon", "no host",
        "two hosts", "many headers", "garbage", "tls", "nearly http/2",
    ],
)  # fmt: skip
def test_broken_requests_are_refused(server: QuoracyServer, data: bytes, status: bytes) -> None:
    heard = said_to(server, data)
    # Who sends on after the answer may get a reset instead of it.
    assert heard.startswith(b"HTTP/1.1 " + status) or (status == b"431" and not heard), heard


def test_chunks_without_end_are_refused(server: QuoracyServer) -> None:
    chunk = b"10000\r\n" + bytes(65_536) + b"\r\n"
    heard = said_to(server, PUT + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 200)
    assert heard.startswith(b"HTTP/1.1 429") or heard == b"", heard[:200]


def test_many_that_never_finish_their_request(server: QuoracyServer) -> None:
    with contextlib.ExitStack() as stalled:
        for _ in range(200):
            peer = socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S_MAX)
            stalled.enter_context(peer)
            peer.sendall(b"GET /health HTTP/1.1\r\nHost: local")
        heard = said_to(server, b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert heard.endswith(b"ok\n")
