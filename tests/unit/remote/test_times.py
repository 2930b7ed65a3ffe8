"""`RemoteStore.revision_at`: a server's times over the network, and what servers without any answer."""

from __future__ import annotations

import math
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from quoracy.clock import ManualClock
from quoracy.engines.opening import open_embedded
from quoracy.errors import Compacted, InvalidRequest, Unsupported
from quoracy.faces.etcd.services.member import Identity
from quoracy.faces.etcd.serving.server import serve_etcd
from quoracy.remote.store import RemoteStore, open_remote
from quoracy.remote.urls import Address, Target
from tests.differential.etcd_server import etcd_35_program, running_etcd


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@asynccontextmanager
async def served(clock: ManualClock) -> AsyncIterator[RemoteStore]:
    """A store whose time is the test's, behind a server in this process."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        async with (
            open_embedded("memory:", clock=clock) as store,
            serve_etcd(store, listener, host="127.0.0.1", identity=Identity(cluster_id=1, member_id=2)),
            open_remote(Target((Address("127.0.0.1", port),))) as remote,
        ):
            yield remote


async def test_a_server_tells_which_revision_it_was(clock: ManualClock) -> None:
    async with served(clock) as remote:
        for value in (b"one", b"two"):
            await remote.put(b"k", value)
            await clock.advance(60.0)
        assert [await remote.revision_at(age_s) for age_s in (0.0, 59.5, 60.5, 119.0)] == [3, 3, 2, 2]
        then = await remote.range(b"k", at=await remote.revision_at(100.0))
        assert then.kvs[0].value == b"one"


async def test_times_a_server_does_not_know_are_named_as_such(clock: ManualClock) -> None:
    async with served(clock) as remote:
        await clock.advance(90.0)
        with pytest.raises(Unsupported, match=r"^which revision .* 3,600 s ago is not known"):
            await remote.revision_at(3_600.0)
        with pytest.raises(Unsupported, match="is not known"):
            await remote.revision_at(math.inf)
        with pytest.raises(InvalidRequest, match="age_s is -1"):
            await remote.revision_at(-1.0)


async def test_times_of_history_a_server_has_compacted(clock: ManualClock) -> None:
    async with served(clock) as remote:
        for _ in range(5):
            await remote.put(b"k")
            await clock.advance(60.0)
        await remote.compact(5)
        assert await remote.revision_at(61.0) == 5
        with pytest.raises(Compacted) as compacted:
            await remote.revision_at(200.0)
        assert (compacted.value.wanted, compacted.value.oldest) == (4, 5)


async def test_etcd_keeps_no_times(tmp_path: Path) -> None:
    program = etcd_35_program()
    if program is None:
        pytest.skip("etcd 3.5 is not installed")
    with running_etcd(program, tmp_path) as port:
        async with open_remote(Target((Address("127.0.0.1", port),))) as remote:
            with pytest.raises(Unsupported, match=r"etcd keeps no times\. Give a revision\.$"):
                await remote.revision_at(300.0)
