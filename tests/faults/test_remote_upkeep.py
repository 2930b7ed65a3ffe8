"""What servers offer beyond the Store contract: a copy of their data, who they are, how they do."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quoracy.errors import DataError, Unavailable
from quoracy.remote.store import RemoteStore, open_remote
from quoracy.remote.urls import Address, Target
from quoracy.store.model import Put, Txn
from tests.support.asking import turns
from tests.support.engines import Engines
from tests.support.etcd_process import EtcdProcess
from tests.support.tcp_proxy import tcp_proxy


@pytest.fixture
async def store(engines: Engines) -> AsyncIterator[RemoteStore]:
    async with engines.get("remote-etcd35").open() as store:
        assert isinstance(store, RemoteStore)
        yield store


async def _fill(store: RemoteStore) -> None:
    for i in range(20):
        await store.txn(Txn(then=tuple(Put(b"%d/%d" % (i, j), bytes(5_000)) for j in range(50))))


async def test_a_snapshot_is_one_that_etcd_takes(store: RemoteStore, tmp_path: Path) -> None:
    await _fill(store)
    path = tmp_path / "copy.db"
    size = await store.snapshot(path)
    assert path.stat().st_size == size > 5_000_000
    data = path.read_bytes()
    assert hashlib.sha256(data[:-32]).digest() == data[-32:]
    etcd = EtcdProcess.find(tmp_path)
    assert etcd is not None
    said = json.loads(await etcd.etcdctl("snapshot", "status", str(path), "-w", "json"))
    assert (said["revision"], said["totalKey"] >= 1000) == (21, True)
    assert os.listdir(tmp_path) == ["copy.db"]


async def test_a_snapshot_overwrites_nothing(store: RemoteStore, tmp_path: Path) -> None:
    path = tmp_path / "copy.db"
    path.write_text("mine")
    with pytest.raises(DataError, match="exists already"):
        await store.snapshot(path)
    assert path.read_text() == "mine"


async def test_a_snapshot_that_cannot_be_written_says_where(store: RemoteStore, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not/there"):
        await store.snapshot(tmp_path / "not" / "there" / "copy.db")


async def test_a_snapshot_that_breaks_off_or_is_given_up_leaves_nothing(
    store: RemoteStore, tmp_path: Path
) -> None:
    await _fill(store)
    async with tcp_proxy(store.target.addresses[0].port) as proxy:
        async with open_remote(Target((Address("127.0.0.1", proxy.port),))) as broken:
            await broken.put(b"k")
            proxy.hold_answers()
            copying = asyncio.ensure_future(broken.snapshot(tmp_path / "cut.db"))
            await proxy.answers_held.wait()
            proxy.cut()
            with pytest.raises(Unavailable, match="snapshot"):
                await copying
            proxy.pass_all()
            for moment in range(0, 60, 5):
                copying = asyncio.ensure_future(broken.snapshot(tmp_path / "given up.db"))
                await turns(moment)
                copying.cancel()
                await asyncio.wait([copying])
                assert copying.cancelled()
            assert (await broken.range(b"k")).count == 1
    assert os.listdir(tmp_path) == []


async def test_every_server_says_how_it_does_or_why_not(store: RemoteStore) -> None:
    (address,) = store.target.addresses
    nobody = Address("127.0.0.1", 1)
    async with open_remote(Target((nobody, address))) as both:
        down, up = await both.endpoint_status()
    assert (down.address, down.status) == (nobody, None)
    assert "refused" in str(down.error)
    assert (up.address, up.error) == (address, None)
    assert up.status is not None
    assert up.status.version.startswith("3.5.")


async def test_the_members_know_each_other(store: RemoteStore) -> None:
    (member,) = await store.member_list()
    assert list(member.clientURLs) == [f"http://{store.target.addresses[0]}"]
