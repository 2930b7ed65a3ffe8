"""`quoracy cell`: a whole cell comes up, is hit and healed, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quoracy.cli.cell import node
from quoracy.cli.cell.control import ask, control_path, listening
from quoracy.cli.cell.node import Layout, Ports, find_layout
from quoracy.cli.cell.screen import Row, cells_of, how_to_connect
from quoracy.errors import InvalidRequest, Unavailable
from tests.differential.etcd_server import etcd_35_program
from tests.unit.cli.conftest import QUORACY
from tests.unit.cli.test_terminal import ESCAPES, Terminal

needs_etcd = pytest.mark.skipif(
    shutil.which("etcd") is None and etcd_35_program() is None, reason="there is no etcd to run"
)
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc")

Run = Callable[..., subprocess.CompletedProcess[str]]

_EVENTUALLY_S = 40.0


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a name short enough for a socket."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="qct-") as name:
        yield Path(name)


def left_behind(place: Path) -> list[str]:
    """Processes that were called with something in `place`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            called = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it ended meanwhile
            continue
        if str(place) in called and process.name != str(os.getpid()):
            found.append(called)
    return found


def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _EVENTUALLY_S
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {_EVENTUALLY_S:g} s"
        time.sleep(0.1)  # a poll with a deadline


# -- where the nodes are


def test_ports_count_up_and_are_remembered(place: Path) -> None:
    layout = find_layout(place, 3, is_free=lambda _: True)
    assert [ports.etcd for ports in layout.nodes] == [12379, 12380, 12381]
    assert layout.cell == ",".join(f"n{n}=127.0.0.1:{12580 + n}:{12480 + n}" for n in (1, 2, 3))
    assert find_layout(place, 3, is_free=lambda _: False) == layout
    with pytest.raises(InvalidRequest, match="has 3 nodes"):
        find_layout(place, 5)


def test_ports_in_use_are_left_alone(place: Path) -> None:
    layout = find_layout(place, 3, is_free=lambda port: port != 12181)
    assert [ports.zookeeper for ports in layout.nodes] == [12191, 12192, 12193]
    assert layout.nodes[0].etcd == 12389


def test_no_ports_at_all_is_an_error(place: Path) -> None:
    with pytest.raises(Unavailable, match="no free ports"):
        find_layout(place, 3, is_free=lambda _: False)


def test_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert not node._is_free(taken.getsockname()[1])


def test_directory_of_something_else_is_not_touched(place: Path) -> None:
    (place / "cell.json").write_text("{}[")
    with pytest.raises(InvalidRequest, match="is not what"):
        find_layout(place, 3)


def test_cell_is_found_in_its_directory_or_by_its_user(place: Path) -> None:
    assert control_path(place) == place / "control.sock"
    assert control_path(None, environ={"XDG_RUNTIME_DIR": str(place)}) == place / "quoracy-cell.sock"
    assert control_path(None, environ={}).parent.name == f"quoracy-{os.getuid()}"
    with pytest.raises(InvalidRequest, match="too long"):
        control_path(place / ("x" * 100))


# -- how it is told


async def answer(request: dict[str, Any]) -> dict[str, Any]:
    if request == {"do": "fail"}:
        raise InvalidRequest("that cannot be done.")
    return {"said": request}


async def asked(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    return await asyncio.to_thread(ask, path, request)


async def test_requests_are_answered_and_errors_are_the_askers(place: Path) -> None:
    path = place / "c.sock"
    async with listening(path, answer):
        assert await asked(path, {"do": "x"}) == {"said": {"do": "x"}}
        with pytest.raises(InvalidRequest, match="cannot be done"):
            await asked(path, {"do": "fail"})
    assert not path.exists()


async def test_second_cell_in_one_place_is_refused_but_not_after_a_crash(place: Path) -> None:
    path = place / "c.sock"
    async with listening(path, answer):
        with pytest.raises(Unavailable, match="up already"):
            async with listening(path, answer):
                pytest.fail("there are two")
        assert (await asked(path, {}))["said"] == {}
    with socket.socket(socket.AF_UNIX) as crashed:
        crashed.bind(str(path))
    async with listening(path, answer):
        assert (await asked(path, {}))["said"] == {}


async def test_place_that_others_can_write_to_is_refused(place: Path) -> None:
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(Unavailable, match="others than you"):
        async with listening(shared / "c.sock", answer):
            pytest.fail("it listened")


def test_verbs_without_a_cell_say_so(place: Path, quoracy: Run) -> None:
    for verb in (["kill", "1"], ["status"]):
        done = quoracy("cell", *verb, "--dir", place)
        assert done.returncode == 1
        assert done.stderr.startswith(f"quoracy: no cell is up here ({place}/control.sock). ")


# -- what is shown


def test_row_shows_what_is_known_and_a_dash_for_what_is_not() -> None:
    places = {"etcd": "127.0.0.1:1", "zookeeper": "127.0.0.1:2", "http": "127.0.0.1:3"}
    up = Row("n1", 7, "serving", "", "leader", 8, "3.4.23", 1234, 0, **places)
    down = Row("n2", None, "down", "SIGKILL", "", None, "", None, None, **places)
    assert cells_of(up) == ("n1", "7", "serving", "leader pid 8", 1234, 0, ":1", ":2", ":3")
    assert cells_of(down)[1:6] == ("-", "down (SIGKILL)", "-", "-", "-")


def test_lines_to_copy_name_every_node_and_the_directory() -> None:
    layout = Layout(Path("/x"), (Ports(1, 2, 3, 4, 5), Ports(6, 7, 8, 9, 10)))
    lines = "\n".join(how_to_connect(layout, directory="/x"))
    assert "quoracy://127.0.0.1:1,127.0.0.1:6" in lines
    assert "'127.0.0.1:2,127.0.0.1:7'" in lines
    assert "quoracy cell kill 1 --dir /x" in lines


# -- the whole of it


@needs_etcd
@needs_proc
def test_cell_holds_while_a_node_is_killed_and_leaves_nothing_behind(place: Path, quoracy: Run) -> None:
    def status() -> list[dict[str, Any]]:
        nodes = json.loads(quoracy("cell", "status", "--dir", place, "-o", "json").stdout)["nodes"]
        assert isinstance(nodes, list)
        return nodes

    def all_serve() -> bool:
        nodes = status()
        leaders = [node["node"] for node in nodes if node["role"] == "leader"]
        return {node["state"] for node in nodes} == {"serving"} and len(leaders) == 1

    # Nobody reads this terminal in the meantime: one that stands still must not hold up the cell.
    terminal = Terminal("cell", "up", "--dir", str(place))
    try:
        terminal.read_until("Ctrl-C takes it all down.")
        eventually(all_serve, "three nodes and a leader")
        assert quoracy("cell", "kill", "1", "--dir", place).stdout == "n1 was killed\n"
        assert status()[0]["state"] == "down"
        again = quoracy("cell", "kill", "1", "--dir", place)
        assert (again.returncode, "down already" in again.stderr) == (2, True)
        endpoints = ",".join(str(node["etcd"]) for node in status())
        eventually(
            lambda: quoracy("put", "k", "v", "-e", f"quoracy://{endpoints}").returncode == 0, "a write"
        )
        assert quoracy("cell", "pause", "2", "--dir", place).stdout == "n2 is paused\n"
        assert status()[1]["state"] == "paused"
        healed = quoracy("cell", "heal", "--dir", place).stdout
        assert healed == "n1 started again, n2 continues\n"
        eventually(all_serve, "three nodes again")
        first = status()[0]["etcd"]
        assert quoracy("get", "k", "-e", f"quoracy://{first}").stdout == "v\n"
        terminal.type("\x03")
        shown = ESCAPES.sub("", terminal.read_all())
    finally:
        terminal.process.kill()
        terminal.process.wait()
    assert terminal.process.returncode == 0
    assert "NODE" in shown
    assert "down (SIGKILL)" in shown
    assert shown.rstrip().endswith("It is down, and nothing is left running.")
    assert left_behind(place) == []
    assert not (place / "control.sock").exists()


@needs_etcd
@needs_proc
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_cell_without_a_directory_is_gone_when_its_terminal_is(
    place: Path, number: signal.Signals
) -> None:
    environment = os.environ | {"TMPDIR": str(place), "XDG_RUNTIME_DIR": str(place)}
    up = subprocess.Popen(
        [*QUORACY, "cell", "up", "--nodes", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    assert up.stdout is not None
    with up.stdout:
        for line in up.stdout:
            if line.startswith("n1  serving"):
                break
        assert left_behind(place) != []
        up.send_signal(number)
        assert up.wait(timeout=60) == 0, up.stdout.read()
    assert left_behind(place) == []
    assert list(place.iterdir()) == []


@needs_proc
def test_node_that_does_not_start_is_named_with_the_end_of_its_log(place: Path) -> None:
    broken = place / "etcd"
    broken.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "etcd Version: 3.4.9"; exit; fi\n'
        "echo no luck today; exit 7\n"
    )
    broken.chmod(0o755)
    done = subprocess.run(
        [*QUORACY, "cell", "up", "--nodes", "1", "--dir", place / "cell", "--etcd-program", broken],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "n1 ended with exit code 1 before it was ready" in done.stderr
    assert "no luck today" in done.stderr
    assert left_behind(place / "cell") == []
