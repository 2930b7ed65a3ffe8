"""Many peers, a detector each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.errors import InvalidRequest
from quoracy.membership.detectors import FixedDetector, PeerDetectors, PhiDetector


def fixed(peers_max: int = 100) -> PeerDetectors:
    return PeerDetectors(lambda: FixedDetector(timeout_s=10.0), peers_max=peers_max)


def test_each_peer_has_a_level_of_its_own() -> None:
    peers = PeerDetectors(PhiDetector)
    for second in range(30):
        peers.heartbeat("quick", float(second))
        if second % 10 == 0:
            peers.heartbeat("gone", float(second))
    assert peers.level("quick", 30.0) < 1e-9
    assert peers.level("gone", 30.0) > 100
    assert peers.suspected(30.0) == ["gone"]
    assert peers.is_suspected("gone", 30.0)
    assert not peers.is_suspected("quick", 30.0)
    assert peers.levels(30.0) == {name: peers.level(name, 30.0) for name in ("gone", "quick")}


def test_an_unknown_peer_is_not_suspected() -> None:
    peers = fixed()
    assert peers.level("nobody", 1e9) == 0
    assert not peers.is_suspected("nobody", 1e9)
    assert peers.get("nobody") is None
    peers.reset("nobody")
    peers.forget("nobody")
    assert len(peers) == 0  # and asking does not make it known


def test_the_next_suspicion_is_the_earliest_that_is_still_to_come() -> None:
    peers = fixed()
    assert peers.next_suspicion(0.0) is None
    for number, name in enumerate("abc"):
        peers.heartbeat(name, float(number))
    assert peers.next_suspicion(0.0) == 10.0
    assert peers.next_suspicion(10.0) == 11.0
    assert peers.next_suspicion(12.0) is None
    peers.heartbeat("a", 12.0)
    assert peers.next_suspicion(12.0) == 22.0


def test_a_reset_peer_is_not_suspected_and_one_that_is_forgotten_is_gone() -> None:
    peers = fixed()
    peers.heartbeat("a", 0.0)
    peers.heartbeat("b", 0.0)
    peers.reset("a")
    peers.forget("b")
    assert peers.suspected(99.0) == []
    assert ("a" in peers, "b" in peers) == (True, False)


def test_a_refused_heartbeat_makes_no_peer_known_and_moves_none() -> None:
    peers = fixed(peers_max=2)
    peers.heartbeat("a", 5.0)
    peers.heartbeat("b", 5.0)
    for name, now in (("a", 4.0), ("new", float("nan"))):
        with pytest.raises(InvalidRequest):
            peers.heartbeat(name, now)
    assert list(peers) == ["a", "b"]


@given(st.lists(st.integers(0, 9), max_size=80), st.integers(1, 6))
def test_the_peer_heard_from_longest_ago_makes_room(names: list[int], peers_max: int) -> None:
    peers = fixed(peers_max)
    latest: dict[str, int] = {}
    for now, number in enumerate(names):
        latest.pop(str(number), None)
        latest[str(number)] = now
        peers.heartbeat(str(number), float(now))
        assert len(peers) <= peers_max
    assert list(peers) == list(latest)[-peers_max:]


def test_a_registry_has_room_for_somebody() -> None:
    with pytest.raises(InvalidRequest, match="peers_max"):
        fixed(peers_max=0)
