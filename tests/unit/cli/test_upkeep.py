"""`quoracy doctor`, `backup` and `restore` from outside."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from quoracy import open_store
from tests.unit.cli.conftest import ServerProcess

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """A data file with three keys."""
    path = tmp_path / "q.db"
    async with open_store(f"sqlite:{path}") as store:
        for number in range(3):
            await store.put(b"jobs/%d" % number, b"waiting")
    return path


def test_doctor_finds_good_data_healthy(quoracy: Run, data: Path) -> None:
    done = quoracy("doctor", data)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f"{data} is healthy.\n")


def test_doctor_takes_an_engine_url_too(quoracy: Run, data: Path) -> None:
    assert quoracy("doctor", f"sqlite:{data}").returncode == 0


def test_doctor_finds_damaged_data_and_says_what_to_do(quoracy: Run, data: Path) -> None:
    content = bytearray(data.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    data.write_bytes(content)
    done = quoracy("doctor", data)
    assert (done.returncode, done.stderr) == (1, "")
    assert "BAD" in done.stdout
    assert "restore" in done.stdout


async def test_restore_brings_back_what_was_backed_up(quoracy: Run, data: Path, tmp_path: Path) -> None:
    saved, again = tmp_path / "saved", tmp_path / "again.db"
    backed_up = quoracy("backup", data, saved)
    assert (backed_up.returncode, backed_up.stderr) == (0, "")
    assert "3 keys" in backed_up.stdout
    restored = quoracy("restore", saved, again)
    assert (restored.returncode, restored.stderr) == (0, "")
    assert "3 keys" in restored.stdout
    async with open_store(f"sqlite:{again}") as store:
        found = await store.range(b"jobs/1")
        assert [kv.value for kv in found.kvs] == [b"waiting"]
        assert found.revision > 1_000_000


def test_restore_never_overwrites_data(quoracy: Run, data: Path, tmp_path: Path) -> None:
    assert quoracy("backup", data, tmp_path / "saved").returncode == 0
    done = quoracy("restore", tmp_path / "saved", data)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert str(data) in done.stderr


def test_backup_of_data_in_use_names_the_owner(
    quoracy: Run, serve: Callable[..., ServerProcess], data: Path, tmp_path: Path
) -> None:
    owner = serve("--engine", f"sqlite:{data}")
    done = quoracy("backup", data, tmp_path / "saved")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"process {owner.pid}" in done.stderr


@pytest.mark.parametrize("verb", ["doctor", "backup", "restore"])
def test_misspelt_path_is_one_line_and_creates_nothing(quoracy: Run, tmp_path: Path, verb: str) -> None:
    others = [] if verb == "doctor" else [tmp_path / "other"]
    done = quoracy(verb, tmp_path / "mispelt.db", *others)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "mispelt.db" in done.stderr
    assert list(tmp_path.iterdir()) == []
