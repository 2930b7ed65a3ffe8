"""What happens at each bound: our own writes raise, what is foreign is dropped and counted."""

from __future__ import annotations

import pytest

from quoracy.errors import InvalidRequest, TooLarge
from quoracy.membership.gossip import Gossip, GossipSettings
from quoracy.membership.gossip.messages import Delta, Entry, News, encode
from quoracy.membership.gossip.rumours import Rumours
from tests.membership.gossip.wire import participant

SMALL = GossipSettings(
    key_bytes_max=8,
    value_bytes_max=16,
    entries_max=3,
    owner_bytes_max=40,
    tombstones_max=2,
    owners_max=4,
)


def view(gossip: Gossip) -> object:
    return gossip.root, {owner: dict(gossip.of(owner)) for owner in gossip.owners}


@pytest.mark.parametrize(
    ("key", "value", "setting"),
    [
        ("k" * 9, b"", "key_bytes_max"),
        ("ö" * 5, b"", "key_bytes_max"),
        ("k", bytes(17), "value_bytes_max"),
        ("fourth", b"", "entries_max"),
        ("a", bytes(16), "owner_bytes_max"),
    ],
)
def test_a_write_over_a_bound_says_which_and_changes_nothing(
    key: str, value: bytes, setting: str
) -> None:
    gossip = participant("a", settings=SMALL)
    for name in ("a", "b", "c"):
        gossip.set(name, bytes(12 if name == "c" else 10), 0.0)
    before = view(gossip)
    with pytest.raises(TooLarge, match=setting) as caught:
        gossip.set(key, value, 0.0)
    assert "delete keys" in str(caught.value)
    assert view(gossip) == before


def test_an_empty_key_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="empty"):
        participant("a").set("", b"", 0.0)


def test_a_key_may_be_written_again_at_every_bound_and_a_deletion_makes_room() -> None:
    gossip = participant("a", settings=SMALL)
    for name in ("a", "b", "c"):
        gossip.set(name, bytes(12), 0.0)
    gossip.set("a", b"x" * 12, 0.0)
    gossip.delete("b", 0.0)
    gossip.set("d", bytes(12), 0.0)
    assert set(gossip.of("a")) == {"a", "c", "d"}


@pytest.mark.parametrize(
    "entries",
    [
        [Entry("k" * 9, 5, b"")],
        [Entry("k", 5, bytes(17))],
        [Entry(name, version, b"") for version, name in enumerate("wxyz", 5)],
        [Entry(name, version, bytes(16)) for version, name in enumerate("xyz", 5)],
    ],
)
@pytest.mark.parametrize("after", [0, 1])
def test_a_foreign_delta_over_a_bound_is_dropped_whole_and_counted(
    entries: list[Entry], after: int
) -> None:
    gossip = participant("a", settings=SMALL)
    first = Delta("b", 1, 0, 1, 0, [Entry("k", 1, b"old")])
    gossip.receive(encode(News([first])), "b", 0.0)
    before = view(gossip)
    assert gossip.receive(encode(News([Delta("b", 1, after, 9, 0, entries)])), "b", 0.0) == []
    assert view(gossip) == before
    assert gossip.statistics().refused == 1


def test_more_owners_than_are_kept_are_passed_over_and_counted() -> None:
    gossip = participant("a", settings=SMALL)
    for number in range(6):
        delta = Delta(f"owner {number}", 1, 0, 1, 0, [Entry("k", 1, b"v")])
        gossip.receive(encode(News([delta])), "b", 0.0)
    assert gossip.owners == {f"owner {number}" for number in range(4)}
    assert gossip.statistics().owners_refused == 2
    newer = Delta("owner 0", 1, 1, 2, 0, [Entry("k", 2, b"w")])
    gossip.receive(encode(News([newer])), "b", 0.0)
    assert gossip.get("owner 0", "k") == b"w"


def test_as_many_forgotten_owners_are_remembered_as_there_may_be_owners() -> None:
    gossip = participant("a", settings=SMALL)
    for number in range(9):
        delta = Delta(f"owner {number}", 1, 0, 1, 0, [])
        gossip.receive(encode(News([delta])), "b", 0.0)
        gossip.forget(f"owner {number}", 0.0)
    assert gossip.statistics().forgotten_count == 4


def test_deleting_again_and_again_keeps_few_tombstones() -> None:
    gossip = participant("a", settings=SMALL)
    for number in range(100):
        gossip.set(f"{number}", b"v", 0.0)
        gossip.delete(f"{number}", 0.0)
    assert len(gossip._state.mine.entries) == 2
    assert gossip.version_of("a") == (1, 200)


def test_the_rumour_that_was_told_most_makes_room_for_a_new_one() -> None:
    rumours = Rumours(hot_max=2)
    rumours.heat("old", generation=1, after=1, times=3)
    rumours.heat("told", generation=1, after=1, times=3)
    rumours.told("told")
    rumours.heat("new", generation=1, after=1, times=3)
    assert {owner for owner, _, _ in rumours} == {"old", "new"}


def test_an_owner_that_never_stops_writing_has_only_recent_steps_in_its_rumours() -> None:
    rumours = Rumours(hot_max=2)
    for version in range(1, 1_000):
        rumours.heat("a", generation=1, after=version, times=4)
        rumours.heat("a", generation=1, after=version, times=4)
        [(_, _, after)] = rumours
        assert after == max(1, version - 3)
        rumours.told("a")


def test_a_burst_of_writes_is_one_step_of_a_rumour() -> None:
    rumours = Rumours(hot_max=2)
    for version in range(1_000):
        rumours.heat("a", generation=1, after=version, times=4)
    assert len(rumours._hot["a"].steps) == 1
    assert list(rumours) == [("a", 1, 0)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"push_fanout": 0},
        {"exchange_interval_s": 0.0},
        {"exchange_interval_s": float("nan")},
        {"tombstones_max": -1},
        {"packet_bytes_max": 500},
        {"buckets": 1_024},
        {"stream_bytes_max": 1_000},
        {"owners_max": 10**9},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(wrong)).split("s_max")[0][:4]):
        GossipSettings(**wrong)  # type: ignore[arg-type]
