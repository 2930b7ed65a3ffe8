"""The limits that `quoracy serve` was given, as its clients meet them."""

from __future__ import annotations

import socket
from collections.abc import Callable

import grpc
import pytest

from quoracy.wire.etcd.rpc import PutRequest
from tests.unit.cli.conftest import ServerProcess

Serve = Callable[..., ServerProcess]

# What a client begins with: the preface, and SETTINGS that change nothing.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
MAX_CONCURRENT_STREAMS = 3


def connect(server: ServerProcess) -> socket.socket:
    client = socket.create_connection(server.etcd, timeout=30)
    client.sendall(PREFACE)
    return client


def test_one_connection_too_many_is_closed(serve: Serve) -> None:
    server = serve("--engine", "memory:", "--connections-max", "1")
    with connect(server) as first:
        assert first.recv(1) != b""
        with connect(server) as second:
            try:
                answer = second.recv(1)
            except ConnectionResetError:
                answer = b""
            assert answer == b""


def test_clients_are_told_how_many_streams_they_may_open(serve: Serve) -> None:
    server = serve("--engine", "memory:", "--streams-max", "100")
    with connect(server) as client, client.makefile("rb") as received:
        head = received.read(9)
        settings = received.read(int.from_bytes(head[:3], "big"))
    pairs = [settings[at : at + 6] for at in range(0, len(settings), 6)]
    assert MAX_CONCURRENT_STREAMS.to_bytes(2, "big") + (100).to_bytes(4, "big") in pairs


def test_request_that_is_too_large_is_refused(serve: Serve) -> None:
    server = serve("--engine", "memory:", "--request-bytes-max", "100")
    with grpc.insecure_channel("{}:{}".format(*server.etcd)) as channel:
        put = channel.unary_unary("/etcdserverpb.KV/Put")
        put(PutRequest(key=b"k", value=b"v" * 50).encode(), timeout=30)
        with pytest.raises(grpc.RpcError) as refusal:
            put(PutRequest(key=b"k", value=b"v" * 200).encode(), timeout=30)
        assert refusal.value.code() == grpc.StatusCode.INVALID_ARGUMENT
