"""One way in: the URL decides where the store is, and an option that would do nothing is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from quoracy import Limits, Retention, open_store
from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.errors import InvalidRequest, Unavailable
from quoracy.remote.store import RemoteStore
from quoracy.remote.urls import TlsOptions


async def test_memory_and_files_are_opened_in_this_process(tmp_path: Path) -> None:
    for url in ("memory:", f"sqlite:{tmp_path / 'q.db'}"):
        async with open_store(url, limits=Limits(), retention=Retention()) as store:
            assert isinstance(store, EmbeddedStore)
            assert (await store.put(b"k")).revision == 2


@pytest.mark.parametrize("scheme", ["etcd", "quoracy"])
async def test_servers_are_not_spoken_to_before_they_are_asked(scheme: str) -> None:
    async with open_store(f"{scheme}://127.0.0.1:1", timeout_s=5) as store:
        assert isinstance(store, RemoteStore)
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
            await store.put(b"k")


@pytest.mark.parametrize("url", ["", "q.db", "mongodb://host", "memory:x", "sqlite:", "etcd:host"])
async def test_what_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        async with open_store(url):
            pass


async def test_options_that_would_do_nothing_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"tls, user"):
        async with open_store("memory:", tls=TlsOptions(), user="root"):
            pass
    with pytest.raises(InvalidRequest, match="retention"):
        async with open_store("etcd://host", retention=Retention()):
            pass
    with pytest.raises(InvalidRequest, match="password needs a user"):
        async with open_store("etcd://host", password="secret"):
            pass
    with pytest.raises(InvalidRequest, match="timeout_s"):
        async with open_store("etcd://host", timeout_s=0):
            pass
