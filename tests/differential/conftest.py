"""The pair of stores the differential tests share, started once and replaced when out of step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.differential.etcd_server import etcd_binary
from tests.differential.lockstep import Pair, running_pair


@pytest.fixture(scope="package")
def etcd() -> str:
    binary = etcd_binary()
    if binary is None:
        pytest.skip("etcd is not installed; on Debian: apt-get install etcd-server")
    return binary


@pytest.fixture
def new_pair(etcd: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A pair of this test's own: both stores are empty, and it may leave them out of step."""
    with running_pair(etcd, tmp_path_factory.mktemp("pair")) as pair:
        yield pair


@pytest.fixture(scope="package")
def _shared_pair(etcd: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Pair]]:
    with ExitStack() as stack:
        pairs: list[Pair] = []

        def current() -> Pair:
            if not pairs or not pairs[-1].lockstep.in_step:
                stack.close()
                pairs.append(stack.enter_context(running_pair(etcd, tmp_path_factory.mktemp("pair"))))
            return pairs[-1]

        yield current


@pytest.fixture
def pair(_shared_pair: Callable[[], Pair]) -> Pair:
    """A pair in step, with no keys and no leases."""
    pair = _shared_pair()
    pair.run(pair.lockstep.begin("this test"))
    return pair
