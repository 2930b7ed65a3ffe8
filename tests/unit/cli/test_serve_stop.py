"""How `quoracy serve` ends while clients hold on to it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import grpc
import pytest

from quoracy.wire.etcd.rpc import (
    PutRequest,
    PutResponse,
    WatchCreateRequest,
    WatchRequest,
    WatchResponse,
)
from tests.unit.cli.conftest import FREE_PORTS, QUORACY, ServerProcess

Serve = Callable[..., ServerProcess]


@pytest.fixture
def server(serve: Serve, tmp_path: Path) -> ServerProcess:
    return serve("--engine", f"sqlite:{tmp_path}/q.db")


@pytest.fixture
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel("{}:{}".format(*server.etcd)) as channel:
        yield channel


def put(channel: grpc.Channel, key: bytes) -> PutResponse:
    call: Any = channel.unary_unary(
        "/etcdserverpb.KV/Put",
        request_serializer=PutRequest.encode,
        response_deserializer=PutResponse.decode,
    )
    answer = call(PutRequest(key=key), timeout=30)
    assert isinstance(answer, PutResponse)
    return answer


def open_watch(channel: grpc.Channel) -> tuple[Any, Queue[WatchRequest]]:
    """A watch on everything that stays open: its responses, and where more requests go."""
    call: Any = channel.stream_stream(
        "/etcdserverpb.Watch/Watch",
        request_serializer=WatchRequest.encode,
        response_deserializer=WatchResponse.decode,
    )
    requests: Queue[WatchRequest] = Queue()
    requests.put(WatchRequest(create_request=WatchCreateRequest(key=b"\0", range_end=b"\0")))
    responses = call(iter(requests.get, None))
    assert next(responses).created
    return responses, requests


def test_watches_and_idle_clients_do_not_keep_it(server: ServerProcess, channel: grpc.Channel) -> None:
    with (
        socket.create_connection(server.etcd, timeout=30),
        socket.create_connection(server.etcd, timeout=30) as half,
    ):
        half.sendall(b"POST /v3/kv/put HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        responses, requests = open_watch(channel)
        put(channel, b"seen")
        assert [event.kv.key for event in next(responses).events] == [b"seen"]
        assert server.end(signal.SIGTERM) == (0, "Stopped by SIGTERM; the store is closed.\n", "")
        with pytest.raises(grpc.RpcError) as ended:
            next(responses)
        assert ended.value.code() == grpc.StatusCode.UNAVAILABLE  # try another, or this one later
        requests.put(None)  # type: ignore[arg-type]


def test_what_was_answered_is_there_after_the_end(serve: Serve, tmp_path: Path) -> None:
    first = serve("--engine", f"sqlite:{tmp_path}/q.db")
    with grpc.insecure_channel("{}:{}".format(*first.etcd)) as channel:
        before = put(channel, b"kept")
    assert first.end(signal.SIGTERM)[0] == 0
    again = serve("--engine", f"sqlite:{tmp_path}/q.db")
    assert "revision 2, 1 key," in again.greeting
    with grpc.insecure_channel("{}:{}".format(*again.etcd)) as channel:
        after = put(channel, b"more")
    assert before.header is not None
    assert after.header is not None
    assert after.header.revision == 3
    assert (after.header.cluster_id, after.header.member_id) == (
        before.header.cluster_id,
        before.header.member_id,
    )


IMPATIENT = """
import os, signal
from quoracy.server.config import ServerConfig
from quoracy.server.run import run_server

def signal_twice(_):
    os.kill(os.getpid(), signal.SIGTERM)
    print("the first was taken note of", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print("never printed", flush=True)

run_server(ServerConfig("memory:", listen_etcd=None, listen_http=None), on_started=signal_twice)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals do not end processes there")
def test_second_signal_ends_it_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPATIENT], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "the first was taken note of\n")


# Run with a terminal as stdin: makes it the one that controls the process, and then is the server.
TAKE_TERMINAL = """
import fcntl, os, signal, sys, termios

fcntl.ioctl(0, termios.TIOCSCTTY, 0)
if sys.argv[1] == "nohup":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no terminals like these")
@pytest.mark.parametrize("how", ["plainly", "nohup"])
def test_server_ends_with_its_terminal_unless_told_otherwise(how: str) -> None:
    terminal, end = os.openpty()
    serving = [*QUORACY, "serve", *FREE_PORTS, "--engine", "memory:", "--log-format", "json"]
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE_TERMINAL, how, *serving],
        stdin=end,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        os.close(end)
        assert process.stderr is not None
        assert b"ready" in process.stderr.readline()
        os.close(terminal)
        if how == "nohup":
            assert b"settings read again" in process.stderr.readline()
            process.terminate()
        assert (b"SIGTERM" if how == "nohup" else b"SIGHUP") in process.stderr.readline()
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.communicate()
