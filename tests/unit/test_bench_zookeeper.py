"""The ZooKeeper load generator: it checks what it is answered, and leaves a real server as it was."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from bench.servers import Server, serve_zookeeper
from bench.zookeeper_crowd import fan_out_s, sessions_s
from bench.zookeeper_frames import Op, Session, get_data
from bench.zookeeper_load import load
from bench.zookeeper_locks import lock_cycles_rate
from bench.zookeeper_operations import OPERATIONS, Exchange, Operation
from tests.support.zookeeper_server import zookeeper_missing

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if missing := zookeeper_missing():
        pytest.skip(missing)
    with serve_zookeeper(tmp_path_factory.mktemp("zookeeper") / "data") as server:
        yield server


@pytest.fixture
def address(server: Server) -> tuple[str, int]:
    return "127.0.0.1", server.port


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(("connections", "in_flight"), [(1, 1), (3, 5)])
def test_every_operation_gets_through_and_leaves_only_the_connections_nodes(
    server: Server, address: tuple[str, int], name: str, connections: int, in_flight: int
) -> None:
    done = load(
        address,
        OPERATIONS[name](100),
        connections=connections,
        in_flight=in_flight,
        seconds=0.2,
        pid=server.process.pid,
    )
    assert done.rate > 0
    assert 0 < done.median_s <= done.p99_s
    assert done.generator_share > 0
    assert done.server_share > 0
    assert done.rate_per_server_s == pytest.approx(1000 / done.server_s_per_1000)
    client = KazooClient(hosts=f"127.0.0.1:{server.port}")
    client.start()
    try:
        left = {f"/bench/{child}": client.get_children(f"/bench/{child}") for child in _bench(client)}
    finally:
        client.stop()
        client.close()
    assert all(path.removeprefix("/bench/").isdigit() and not below for path, below in left.items())


def _bench(client: KazooClient) -> Sequence[str]:
    children: Sequence[str] = client.get_children("/bench")
    assert children
    return children


class _AskForWhatIsNotThere(Operation):
    def exchanges(self, connection: int, in_flight: int) -> Sequence[Exchange]:
        return [Exchange(Op.GET_DATA, get_data(b"/not-there"), 100)]


class _ExpectTooMuch(Operation):
    def exchanges(self, connection: int, in_flight: int) -> Sequence[Exchange]:
        return [Exchange(Op.GET_DATA, get_data(b"/zookeeper"), 100)]


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        (_AskForWhatIsNotThere, r"xid 1, error -101 and 16 bytes"),
        (_ExpectTooMuch, r"error 0 and 88 bytes"),
    ],
)
@pytest.mark.parametrize("in_flight", [1, 7])
def test_a_reply_that_is_not_the_expected_one_ends_the_run(
    address: tuple[str, int], operation: type[Operation], said: str, in_flight: int
) -> None:
    with pytest.raises(RuntimeError, match=said):
        load(address, operation(0), connections=2, in_flight=in_flight, seconds=5.0)


def test_a_crowd_gets_its_sessions_and_its_events(address: tuple[str, int]) -> None:
    assert sessions_s(address, number=70) > 0
    assert fan_out_s(address, watchers=70, writes=2) > 0


@pytest.mark.parametrize("clients", [1, 3])
def test_kazoo_clients_pass_a_lock_on(address: tuple[str, int], clients: int) -> None:
    assert lock_cycles_rate(address, clients=clients, seconds=0.2) > 0


def test_the_command_line_prints_rate_latency_and_processor_time(server: Server) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bench.zookeeper_load", f"127.0.0.1:{server.port}"),
            *("--op", "setData", "--connections", "2", "--in-flight", "3", "--seconds", "0.2"),
            *("--pid", str(server.process.pid)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.split()[0] for line in done.stdout.splitlines() if line[0] != " "] == [
        *("rate", "p50", "p99", "generator", "machine", "server")
    ]


def test_more_in_flight_than_a_socket_takes_is_refused(address: tuple[str, int]) -> None:
    with pytest.raises(ValueError, match="ask for fewer or smaller"):
        load(address, OPERATIONS["setData"](4096), connections=1, in_flight=100, seconds=1.0)


def test_a_server_that_ends_ends_the_run(tmp_path: Path) -> None:
    if missing := zookeeper_missing():
        pytest.skip(missing)
    with serve_zookeeper(tmp_path / "data") as server:
        soon = threading.Timer(1.0, server.process.kill)
        soon.start()
        try:
            with pytest.raises(ConnectionError):
                load(
                    ("127.0.0.1", server.port),
                    OPERATIONS["getData"](100),
                    connections=3,
                    in_flight=2,
                    seconds=60.0,
                )
        finally:
            soon.join()


@contextmanager
def _peer(*answers: bytes) -> Iterator[tuple[str, int]]:
    """Somebody who has an answer for the first that comes, another for the next, and hangs up."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            for answer in answers:
                connection.recv(1 << 16)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            thread.join()


def _greeting(session_id: int) -> bytes:
    return struct.pack(">iiiqi16s?", 37, 0, 4000 if session_id else 0, session_id, 16, b"", False)


def test_a_session_that_is_refused_is_an_error() -> None:
    with _peer(_greeting(0)) as address, pytest.raises(ConnectionError, match="granted no session"):
        Session.open(address)


def test_a_server_that_hangs_up_is_an_error() -> None:
    with _peer(_greeting(1), b"\0\0") as address, pytest.raises(ConnectionError, match="hung up"):
        with Session.open(address) as session:
            session.calls([(Op.GET_DATA, get_data(b"/"))])
