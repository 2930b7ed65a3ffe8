"""ZooKeeper's C client, as a library and as its command line, on a real ZooKeeper and on Quoracy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.interop.kazoo_clients import Clients
from tests.interop.programs import Running, run
from tests.interop.zookeepers import CutProxy

_CLI = Path("/usr/lib/zookeeper/bin/cli_mt")
_LOAD = Path("/usr/lib/zookeeper/bin/load_gen")
_HEADER = Path("/usr/include/zookeeper/zookeeper.h")
_SOURCE = Path(__file__).with_name("c") / "tour.c"

# What the program prints about each call; an indented line tells more about the one before.
CALLS = """
create: ok
  path /node
create again: node exists
create orphan: no node
create sequence: ok
  path /node/s-0000000000
create2 ephemeral: ok
  path /node/e-0000000001 length 3 owned by us
create below ephemeral: no children for ephemerals
create container: ok
create with ttl: ok
create null: ok
get: ok
  data version 0 children 2
get null: ok
  length -1
get nothing: no node
exists: ok
exists not: no node
set: ok
  version 1 length 9
set late: bad version
children: ok
  count 2 cversion 2
delete full: not empty
delete late: bad version
delete: ok
watch what is not: no node
create watched: ok
watch data: ok
set watched: ok
watch children: ok
create child: ok
watch to remove: ok
remove watch: ok
remove none: the watcher couldn't be found
watch child: ok
delete child: ok
multi: ok
  /m /m/s-0000000000 version 1
multi that fails: bad version
  results 0 -103 -2
and nothing was done: ok
  length 2
creator unknown: invalid acl
auth: ok
creator known: ok
get acl: ok
  count 1 perms 31 digest ann:7RJfAeIvrl4zdj6sS2fXrQHDvHM=
set acl late: bad version
set acl: ok
get still: ok
set no more: not authenticated
set acl no more: not authenticated
create target: ok
500 writes in flight: 0 out of order
close: ok
"""
EVENTS = ["event created /w", "event changed /w", "event child /w", "event deleted /w/c"]


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C program of these tests, compiled."""
    gcc = shutil.which("gcc")
    if gcc is None or not _HEADER.is_file():
        pytest.skip(
            "gcc or ZooKeeper's headers are missing; on Debian: apt-get install gcc libzookeeper-mt-dev"
        )
    program = tmp_path_factory.mktemp("c") / "tour"
    done = run(
        gcc, "-Wall", "-Wextra", "-Werror", "-DTHREADED", "-o", program, _SOURCE, "-lzookeeper_mt"
    )
    assert done.code == 0, done.err
    return program


def test_every_call_of_the_library(clients: Clients, tour: Path) -> None:
    done = run(tour, clients.zookeeper.address + clients.directory, "calls")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    # Events are told by a thread of their own, so only their order among themselves is sure.
    assert [line for line in lines if line.startswith("event ")] == EVENTS
    assert [
        line for line in lines if not line.startswith(("event ", "state "))
    ] == CALLS.strip().splitlines()
    client = clients.connect()
    assert client.get_children("/node") == ["s-0000000000"], "the session was closed, its node is there"


def test_watches_are_set_again_after_a_lost_connection(clients: Clients, tour: Path) -> None:
    """The library tells the server what it watches and what it saw last: what it missed comes then."""
    client = clients.connect()
    for name in ("changed", "deleted", "children"):
        client.create(f"/{name}", b"before")
    with CutProxy(clients.zookeeper.port) as proxy:
        with Running([str(tour), f"127.0.0.1:{proxy.port}{clients.directory}", "watch"]) as program:
            program.line_with("watching")
            owner = client.exists("/ephemeral").ephemeralOwner
            proxy.swallow()
            client.set("/changed", b"after")
            client.create("/created")
            client.delete("/deleted")
            client.create("/children/one")
            proxy.cut()
            program.line_with("state connecting")
            assert program.is_silent, "nothing can have been heard"
            proxy.carry()
            assert program.line() == "state connected"
            events = program.lines(4)
            assert sorted(events) == [
                "event changed /changed",
                "event child /children",
                "event created /created",
                "event deleted /deleted",
            ]
            assert client.exists("/ephemeral").ephemeralOwner == owner
            assert program.process.stdin is not None
            program.process.stdin.close()
            assert program.lines(3) == ["get at the end: ok", "  after", "close: ok"]
            assert program.ended() == (0, [])
    assert client.exists("/ephemeral") is None


def test_the_command_line(clients: Clients) -> None:
    if not _CLI.is_file():
        pytest.skip(
            "ZooKeeper's C command line is not installed; on Debian: apt-get install zookeeper-bin"
        )
    with Running([str(_CLI), "-h", clients.zookeeper.address + clients.directory]) as cli:
        cli.line_with("state = CONNECTED_STATE")

        def ask(command: str, *expected: str) -> None:
            cli.say(f"{command}\n")
            for line in expected:
                cli.line_with(line)

        ask("create /cc", "[/cc]: rc = 0", "name = /cc")
        ask("create /cc", "[/cc]: rc = -110")
        ask("create +e /cc/e", "[/cc/e]: rc = 0")
        ask("create +s /cc/s", "[/cc/s]: rc = 0", "name = /cc/s0000000001")
        ask("create2 /cc/two", "[/cc/two]: rc = 0", "name = /cc/two", "version=0")
        ask("create +c /cc/c", "[/cc/c]: rc = 0")
        ask("create +t=60000 /cc/t", "[/cc/t]: rc = 0")
        ask("create /cc/e/child", "[/cc/e/child]: rc = -108")
        ask("get /cc", "/cc: rc = 0", " value_len = 3", "new", "version=0")
        ask(
            "set /cc other",
            "CHANGED_EVENT state = CONNECTED_STATE for path /cc",
            "/cc: rc = 0",
            "version=1",
        )
        ask("get /cc", " value_len = 5", "other", "version=1")
        ask("ls /cc", "/cc: rc = 0", "time = ")
        ask("ls2 /cc", "/cc: rc = 0", "version=1")
        ask("wexists /cc/w", "Error -101 for /cc/w")
        ask("create /cc/w", "CREATED_EVENT", "CHILD_EVENT", "[/cc/w]: rc = 0")
        ask("delete /cc/w", "/cc/w: rc = 0")
        ask("get /none", "/none: rc = -101")
        ask("sync /cc", "[/cc]: rc = 0", "name = /cc")
        ask("addauth digest ann:secret")
        ask("exists /cc")
        ask("aget /cc", "other", "version=1")
        ask("config", "/zookeeper/config: rc = ")
        ask("quit", "Quitting...")
        assert cli.ended()[0] == 0
    assert "e" not in clients.connect().get_children("/cc"), "the session was closed, its node is there"


def test_the_load_generator(clients: Clients) -> None:
    """Hundreds of creates, writes, reads and deletes in flight at a time, round and round."""
    if not _LOAD.is_file():
        pytest.skip(
            "ZooKeeper's load generator is not installed; on Debian: apt-get install zookeeper-bin"
        )
    with Running([str(_LOAD), clients.zookeeper.address + clients.directory, "/load", "500"]) as load:
        said = []
        for cycle in ("Creating children", "write cycle", "read cycle", "delete cycle") * 2:
            while cycle not in (line := load.line()):
                said.append(line)
        # What it deletes is deleted when it creates again.
        load.line_with("Creating children")
    assert not [line for line in said if "ERROR" in line or "WARN" in line]
