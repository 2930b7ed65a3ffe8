"""Fixtures shared by every kind of test: engines, a clock the test owns, an etcd and its network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import hatch_build
from quoracy.clock import ManualClock
from tests.support import profiles
from tests.support.engines import Engines
from tests.support.etcd_cluster import EtcdCluster, etcd_program, running_cluster
from tests.support.tcp_proxy import TcpProxy, tcp_proxy

profiles.load()

if hatch_build.is_compiled() and not hatch_build.is_current():
    pytest.exit(
        "compiled modules are older than their source: make compile, or make pure", returncode=4
    )


# Begun first, so that no process is still at one of them when the others are done.
_LONGEST = ("recipes/test_processes.py", "faults/", "differential/", "interop/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        path = item.nodeid.removeprefix("tests/")
        return next((at for at, name in enumerate(_LONGEST) if path.startswith(name)), len(_LONGEST))

    items.sort(key=place)


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Engines]:
    with Engines(tmp_path) as engines:
        yield engines


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    return ManualClock()


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EtcdCluster]:
    """A cluster of one member: most of what can be lost is lost on the way to it."""
    program = etcd_program("3.4")
    if program is None:
        pytest.skip("etcd is not installed")
    async with running_cluster(program, tmp_path, count=1) as cluster:
        yield cluster


@pytest.fixture
async def proxy(etcd: EtcdCluster) -> AsyncIterator[TcpProxy]:
    """The network on the way to that member."""
    async with tcp_proxy(etcd.ports[0]) as proxy:
        yield proxy
