"""`--at`: revisions and times, on a data file and on servers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from quoracy.clock import ManualClock
from quoracy.engines.opening import open_embedded
from tests.unit.cli.asking import Ask
from tests.unit.cli.conftest import ServerProcess, assert_one_line
from tests.unit.cli.servers import running
from tests.unit.cli.test_terminal import on_terminal, plain


@pytest.fixture
def lived(tmp_path: Path) -> Path:
    """The data file of `ask`, an hour old: revisions 2, 3 and 4 were made 30, 20 and 10 minutes ago."""
    path = tmp_path / "q.db"

    async def live() -> None:
        clock = ManualClock(wall=time.time() - 3_600.0)
        async with open_embedded(f"sqlite:{path}", clock=clock) as store:
            await clock.advance(1_800.0)
            for value in (b"one", b"two", b"three"):
                await store.put(b"jobs/" + value, value)
                await store.put(b"k", value)
                await clock.advance(600.0)

    asyncio.run(live())
    return path


@pytest.mark.usefixtures("lived")
def test_get_reads_what_it_was_so_long_ago(ask: Ask) -> None:
    assert ask("get", "k", "--at", "5m").out == b"three\n"
    assert ask("get", "k", "--at", "15m").out == b"two\n"
    assert ask("get", "k", "--at", "0.4h1m").out == b"one\n"
    assert ask("get", "k", "--at", "45m").err == "quoracy: k does not exist at that revision.\n"
    said = ask("get", "k", "--at", "15m", "-o", "json")
    assert (said.json["revision"], said.json["at"], said.err) == (7, 5, "")
    assert "at" not in ask("get", "k", "-o", "json").json


@pytest.mark.usefixtures("lived")
def test_ls_shows_what_there_was(ask: Ask) -> None:
    assert ask("ls", "jobs/", "--at", "15m").rows == [["jobs/one", "1", "2"], ["jobs/two", "1", "4"]]
    assert ask("ls", "jobs/", "--at", "2").rows == [["jobs/one", "1", "2"]]
    tree = ask("ls", "jobs/", "--at", "-3", "-o", "json").json
    assert (tree["revision"], tree["at"], tree["count"]) == (7, 4, 2)


@pytest.mark.usefixtures("lived")
def test_a_terminal_is_told_which_revision_it_was(ask: Ask) -> None:
    assert plain(on_terminal("get", "k", "--at", "15m")) == "15m ago: revision 5\ntwo"
    assert plain(on_terminal("ls", "jobs/", "--at", "25m")).startswith("25m ago: revision 3\njobs/")
    assert plain(on_terminal("get", "k", "--at", "5")) == "two"
    assert ask("get", "k", "--at", "15m").err == ""


@pytest.mark.usefixtures("lived")
def test_a_time_before_the_store_is_refused_with_what_is_known(ask: Ask) -> None:
    said = ask("get", "k", "--at", "2h")
    assert said.code == 1
    assert re.search(r"7,200 s ago is not known.*for 3,6\d\d s\.", assert_one_line(said.err))


@pytest.mark.parametrize("text", ["soon", "5 m", "5m ago", "m", "--5", ""])
def test_what_is_neither_a_revision_nor_a_time_is_refused(ask: Ask, text: str) -> None:
    said = ask("get", "k", f"--at={text}")
    assert said.code == 2
    assert "is neither a revision nor a time" in assert_one_line(said.err)


def test_a_server_is_asked_for_its_times(
    ask: Ask, lived: Path, serve: Callable[..., ServerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    host, port = serve("--engine", f"sqlite:{lived}").etcd
    monkeypatch.setenv("QUORACY_ENDPOINT", f"quoracy://{host}:{port}")
    assert ask("get", "k", "--at", "15m").out == b"two\n"
    assert ask("get", "k", "--at", "25m", "-o", "json").json["at"] == 3
    said = ask("get", "k", "--at", "2h")
    assert said.code == 1
    assert "7,200 s ago is not known" in assert_one_line(said.err)


def test_etcd_is_said_to_keep_no_times(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running("etcd", tmp_path) as url:
        monkeypatch.setenv("QUORACY_ENDPOINT", url)
        said = ask("get", "k", "--at", "5m")
        assert said.code == 1
        assert assert_one_line(said.err).endswith("etcd keeps no times. Give a revision.\n")
