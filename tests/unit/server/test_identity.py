"""Cluster and member ids: drawn once, kept beside the data, never a reason not to serve."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from quoracy.server.identity import ClusterIds, establish_ids


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


def file_of(data: Path) -> Path:
    return data.with_name("q.db.identity")


def test_ids_survive_a_restart(data: Path) -> None:
    first = establish_ids(data)
    assert establish_ids(data) == first
    assert first.cluster_id != first.member_id
    assert 0 < first.cluster_id < 2**64
    assert 0 < first.member_id < 2**64


def test_store_in_memory_is_a_new_one_each_time() -> None:
    assert establish_ids(None) != establish_ids(None)


def test_other_data_has_other_ids(tmp_path: Path) -> None:
    assert establish_ids(tmp_path / "a.db") != establish_ids(tmp_path / "b.db")


def test_ids_are_drawn_from_all_of_64_bits(data: Path) -> None:
    class Highest(random.Random):
        def randint(self, a: int, b: int) -> int:
            return b

    highest = ClusterIds(2**64 - 1, 2**64 - 1)
    assert establish_ids(data, rng=Highest()) == highest
    assert establish_ids(data) == highest
    assert json.loads(file_of(data).read_text()) == {"cluster_id": "f" * 16, "member_id": "f" * 16}


def test_nothing_but_the_file_is_left_behind(data: Path, tmp_path: Path) -> None:
    establish_ids(data)
    assert list(tmp_path.iterdir()) == [file_of(data)]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b'{"cluster_id": 5, "member_id": 6}', b"\xff",
     b'{"cluster_id": "x", "member_id": "1"}', b'{"cluster_id": "0", "member_id": "1"}',
     b'{"cluster_id": "1", "member_id": "10000000000000000"}'],
)  # fmt: skip
def test_damaged_file_is_told_and_replaced(
    data: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file_of(data).write_bytes(content)
    ids = establish_ids(data)
    assert [str(file_of(data)) in message for message in caplog.messages] == [True]
    assert establish_ids(data) == ids
    assert len(caplog.messages) == 1


def test_directory_that_cannot_be_written_is_told_and_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "gone" / "q.db"
    assert establish_ids(data) != establish_ids(data)
    assert len(caplog.messages) == 2
    assert "q.db.identity" in caplog.messages[0]
