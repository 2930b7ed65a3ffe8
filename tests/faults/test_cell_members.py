"""The etcd member of a node: restarted when it dies, replaced when its data is lost, gone with it."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from quoracy.errors import InvalidRequest, Unavailable
from quoracy.server.cell.config import CellMember, CellTls
from quoracy.server.cell.member import supervised_member
from tests.differential.etcd_server import etcd_35_program
from tests.faults.cell_machines import Machine, running_machines
from tests.faults.scale import LONG, rounds
from tests.support.certificates import Authority
from tests.support.ports import free_ports

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(
        shutil.which("etcd") is None and etcd_35_program() is None, reason="there is no etcd to run"
    ),
]

_EVENTUALLY_S = 30.0


async def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _EVENTUALLY_S
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {_EVENTUALLY_S:g} s"
        await asyncio.sleep(0.05)  # a poll with a deadline


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return False
    return "State:\tZ" not in status


async def read(machine: Machine, key: bytes) -> bytes | None:
    async with machine.store() as store:
        kvs = (await store.range(key)).kvs
    return kvs[0].value if kvs else None


def assert_replaced(lost: str, before: dict[str, int], after: dict[str, int]) -> None:
    assert set(after) == set(before)
    assert {name for name in after if after[name] != before[name]} == {lost}, (
        "a member that forgot its votes must not vote again, and the others must stay"
    )


async def serving_again(machine: Machine, dead: int) -> None:
    """Wait for the member that comes after the one that died."""
    await eventually(lambda: machine.member_pid != dead, "a new member")
    member = machine.config.own
    await eventually(lambda: _listens(member.host, member.client_port), "its port")


def _listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


async def write(machine: Machine, key: bytes, value: bytes) -> None:
    async with machine.store() as store:
        await store.put(key, value)


@pytest.mark.skipif(not LONG, reason="etcd takes no new member until all were connected for 5 s")
async def test_lost_members_are_replaced_one_after_the_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_machines(tmp_path, "abc") as machines:
        await machines.start()
        await write(machines["a"], b"k", b"1")
        for lost in 4 * "abc":
            before = await machines[lost].member_ids()
            await machines.stop(lost)
            machines[lost].lose_data()
            caplog.clear()
            await machines.start(lost)
            assert await read(machines[lost], b"k") == b"1"
            assert_replaced(lost, before, await machines[lost].member_ids())
            assert "the lost one is removed" in caplog.text


async def test_member_that_dies_is_started_again_with_its_data(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_machines(tmp_path, "a") as machines:
        machine = machines["a"]
        await machine.start()
        await write(machine, b"k", b"1")
        for _ in range(rounds(1, 10)):
            caplog.clear()
            dead = await machine.kill_member()
            await serving_again(machine, dead)
            assert await read(machine, b"k") == b"1"
            assert "etcd ended (killed by SIGKILL)" in caplog.text


@pytest.mark.skipif(not LONG, reason="etcd takes no new member until all were connected for 5 s")
async def test_member_that_was_removed_while_away_joins_again(tmp_path: Path) -> None:
    async with running_machines(tmp_path, "abc") as machines:
        await machines.start()
        await write(machines["a"], b"k", b"1")
        removed = (await machines["a"].member_ids())["c"]
        await machines.stop("c")
        async with machines["a"].store() as store:
            await store.member_remove(removed)
        await machines.start("c")
        assert await read(machines["c"], b"k") == b"1"
        assert (await machines["a"].member_ids())["c"] != removed
        kept = [path.name for path in (tmp_path / "c").glob("etcd.removed-*")]
        assert len(kept) == 1, "what it had is not deleted"


async def test_lost_member_is_replaced_but_not_while_the_others_have_no_quorum(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running_machines(tmp_path, "abc") as machines:
        await machines.start()
        await write(machines["a"], b"k", b"1")
        before = await machines["a"].member_ids()
        await machines.stop("b", "c")
        machines["c"].lose_data()
        trying = machines["c"].begin()
        await eventually(lambda: "c has no data: the cell exists, as a knows" in caplog.text, "waiting")
        assert not trying.done()
        assert not (tmp_path / "c" / "etcd").exists(), "it must not have begun a cell of its own"
        assert not [record for record in caplog.records if "is removed" in record.message]
        await machines.start("b")
        await eventually(machines["c"].serves.is_set, "the replaced member")
        assert await read(machines["c"], b"k") == b"1"
        assert_replaced("c", before, await machines["a"].member_ids())
        said = [record for record in caplog.records if "the lost one is removed" in record.message]
        assert [record.levelname for record in said] == ["WARNING"]


async def test_new_cell_begins_only_when_every_member_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever is missing may have the data of an older cell, in which the others have voted."""
    caplog.set_level(logging.INFO)
    async with running_machines(tmp_path, "abc") as machines:
        for name in "ab":
            machines[name].begin()
        await eventually(lambda: "a has no data: nothing is heard of c" in caplog.text, "waiting")
        assert not any((tmp_path / name / "etcd").exists() for name in "ab")
        await machines.start("c")
        for name in "ab":
            await eventually(machines[name].serves.is_set, f"{name} serving")


async def test_node_with_the_name_of_a_running_member_is_refused(tmp_path: Path) -> None:
    async with running_machines(tmp_path, "abc") as machines:
        await machines.start()
        before = await machines["a"].member_ids()
        there = machines["c"].config
        # Another machine, told by mistake that it is c.
        peer, client = free_ports(2)
        members = tuple(
            CellMember("c", "127.0.0.1", peer, client) if member.name == "c" else member
            for member in there.members
        )
        impostor = replace(there, members=members, data_dir=tmp_path / "other")
        with pytest.raises(InvalidRequest, match=r"c of the cell test is running.*is --node right"):
            async with supervised_member(impostor):
                pytest.fail("it was let in")
        assert await machines["a"].member_ids() == before


async def test_etcd_that_does_not_start_is_reported_with_its_words(tmp_path: Path) -> None:
    async with running_machines(tmp_path, "a") as machines:
        config = replace(machines["a"].config, flags=("--no-such-flag=1",))
        with pytest.raises(Unavailable, match=r"etcd does not start\. In .*no-such-flag"):
            async with supervised_member(config):
                pytest.fail("it started")


async def test_members_talk_tls_to_each_other_and_to_nodes(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.member()
    tls = CellTls(pair.cert, pair.key, authority.cert)
    async with running_machines(tmp_path, "abc", tls=tls) as machines:
        await machines.start()
        await write(machines["a"], b"k", b"1")
        assert await read(machines["b"], b"k") == b"1"
        without_certificate = Machine(replace(machines["a"].config, tls=None))
        with pytest.raises(Unavailable):
            await read(without_certificate, b"k")


def start_node(directory: Path, *, members: str = "a") -> subprocess.Popen[bytes]:
    """A whole node, the first of a cell of these members."""
    ports = free_ports(2 * len(members))
    cell = ",".join(f"{name}=127.0.0.1:{ports.pop()}:{ports.pop()}" for name in members)
    with (directory / "log").open("wb") as log:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "quoracy", "serve"),
                *("--cell", cell, "--node", members[0], "--data-dir", str(directory)),
                *("--listen-etcd", "127.0.0.1:0", "--listen-http", "off", "--listen-zookeeper", "off"),
            ],
            stdout=log,
            stderr=log,
        )


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
async def test_member_does_not_outlive_a_kill_of_the_node(tmp_path: Path) -> None:
    node = start_node(tmp_path)
    try:
        ready = "Quoracy is ready"
        await eventually(lambda: ready in (tmp_path / "log").read_text(encoding="utf-8"), "ready")
        greeting = (tmp_path / "log").read_text(encoding="utf-8")
        assert f"{tmp_path}/etcd, member a of a in the cell quoracy" in greeting
        member = int((tmp_path / "etcd.pid").read_text(encoding="ascii"))
        assert is_alive(member)
        os.kill(node.pid, signal.SIGKILL)
        await eventually(lambda: not is_alive(member), "the member's end")
    finally:
        node.kill()
        node.wait()


async def test_node_that_waits_for_its_cell_can_be_stopped(tmp_path: Path) -> None:
    node = start_node(tmp_path, members="abc")
    try:
        log = tmp_path / "log"
        await eventually(lambda: "nothing is heard of b" in log.read_text(encoding="utf-8"), "waiting")
        node.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(node.wait, 60) == 0
        assert "Stopped by SIGTERM" in log.read_text(encoding="utf-8")
    finally:
        node.kill()
        node.wait()
