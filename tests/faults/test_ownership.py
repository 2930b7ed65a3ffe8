"""One owner at a time, whatever name the data is reached by, and never longer than the owner lives."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from quoracy.engines.embedded.disk.doctor import examine
from quoracy.engines.opening import open_embedded
from quoracy.errors import DataError, DataInUse
from tests.faults.child import Child
from tests.faults.holder import Options
from tests.faults.reports import Closed, Note, Opened
from tests.faults.scale import rounds

pytestmark = pytest.mark.faults


def test_a_second_process_is_told_who_has_the_data(tmp_path: Path) -> None:
    options = Options(str(tmp_path / "store.db"))
    with Child("holder", options) as owner:
        owner.wait_for(Opened)
        with Child("holder", options) as second:
            refusal = second.wait_for(Note)
            second.end()
        assert refusal.name == "DataInUse"
        assert refusal.number == owner.pid
        assert str(owner.pid) in refusal.text
        with pytest.raises(DataInUse, match=str(owner.pid)):
            examine(options.path)
        owner.tell("close")
        owner.wait_for(Closed)
        owner.end()
    with Child("holder", options) as third:
        third.wait_for(Opened)


def test_after_kill_9_of_the_owner_the_data_opens_at_once(tmp_path: Path) -> None:
    options = Options(str(tmp_path / "store.db"))
    for _ in range(rounds(2, 20)):
        with Child("holder", options) as owner:
            owner.wait_for(Opened)
            owner.kill()
    with Child("holder", options) as next_owner:
        next_owner.wait_for(Opened)


async def test_one_process_cannot_open_the_same_data_twice(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'store.db'}"
    async with open_embedded(url) as store:
        with pytest.raises(DataInUse) as refusal:
            async with open_embedded(url):
                pass
        assert refusal.value.pid == os.getpid()
        # And the refused one has not taken the lock of the first with it.
        with pytest.raises(DataInUse):
            async with open_embedded(url):
                pass
        await store.put(b"k", b"v")
    async with open_embedded(url) as store:
        assert (await store.range(b"k")).count == 1


@pytest.mark.parametrize("way", ["link to the file", "link to the directory", "relative"])
async def test_another_way_to_the_same_data_is_refused_too(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "store.db"
    async with open_embedded(f"sqlite:{path}"):
        match way:
            case "link to the file":
                other = tmp_path / "link.db"
                other.symlink_to(path)
            case "link to the directory":
                (tmp_path / "link").symlink_to(path.parent)
                other = tmp_path / "link" / "store.db"
            case _:
                monkeypatch.chdir(tmp_path)
                other = Path("data/../data/store.db")
        with pytest.raises(DataInUse) as refusal:
            async with open_embedded(f"sqlite:{other}"):
                pass
        assert refusal.value.pid == os.getpid()
        with Child("holder", Options(str(other.absolute()))) as second:
            assert second.wait_for(Note).name == "DataInUse"


async def test_a_hard_link_to_the_same_data_is_refused_too(tmp_path: Path) -> None:
    path, other = tmp_path / "store.db", tmp_path / "other.db"
    async with open_embedded(f"sqlite:{path}") as store:
        await store.put(b"k", b"v")
        os.link(path, other)
        with pytest.raises(DataError):
            async with open_embedded(f"sqlite:{other}"):
                pass
        with Child("holder", Options(str(other))) as second:
            assert second.wait_for(Note).name in ("DataInUse", "DataUnreadable")
        await store.put(b"k", b"w")
    async with open_embedded(f"sqlite:{path}") as store:
        assert (await store.range(b"k")).kvs[0].value == b"w"
