"""Gossiped heartbeat counters among many, over networks that lose, delay and part."""

from __future__ import annotations

import pytest

from quoracy.membership.detectors import HeartbeatChangeKind, HeartbeatSettings
from tests.faults.scale import rounds
from tests.membership.detectors.network import Network

APPEARED, SUSPECTED = HeartbeatChangeKind.APPEARED, HeartbeatChangeKind.SUSPECTED
RESTARTED, FORGOTTEN = HeartbeatChangeKind.RESTARTED, HeartbeatChangeKind.FORGOTTEN

pytestmark = pytest.mark.faults

SEEDS = range(rounds(8, 300))
FAIL_S = 30.0


def cluster(seed: str, count: int = 12, loss: float = 0.0, fail_s: float = FAIL_S) -> Network:
    """Everyone knows the first; they find each other."""
    network = Network(seed, HeartbeatSettings(interval_s=1.0, fail_s=fail_s), loss=loss)
    for number in range(count):
        network.start(f"peer-{number}", ["peer-0"])
    return network


@pytest.mark.parametrize("seed", SEEDS)
def test_peers_find_each_other_and_nobody_is_suspected(seed: int) -> None:
    network = cluster(f"calm {seed}", loss=0.1)
    network.run(200.0)
    assert all(len(peer.present) == 11 for peer in network.peers.values())
    assert [told for told in network.told if told[2].kind is not APPEARED] == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_crashed_peer_is_suspected_forgotten_and_not_brought_back(seed: int) -> None:
    network = cluster(f"crash {seed}", loss=0.2)
    network.run(60.0)
    network.crash("peer-5")
    network.run(60.0 + 5 * FAIL_S)
    suspected, forgotten = network.told_of("peer-5", SUSPECTED), network.told_of("peer-5", FORGOTTEN)
    assert set(suspected) == set(forgotten) == set(network.peers)
    assert max(suspected.values()) < 60.0 + 2 * FAIL_S
    assert max(network.told_of("peer-5", APPEARED).values()) < 60.0
    assert {change.peer for _, _, change in network.told if change.kind is SUSPECTED} == {"peer-5"}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("generation", [0, 1])
def test_a_restarted_peer_is_back_everywhere_soon(seed: int, generation: int) -> None:
    network = cluster(f"restart {seed}", loss=0.1)
    network.run(60.0)
    network.crash("peer-5")
    network.run(75.0)  # nobody has noticed
    network.start("peer-5", ["peer-0"], generation=generation)
    network.run(75.0 + FAIL_S)
    back = network.told_of("peer-5", RESTARTED)
    assert set(back) == set(network.peers) - {"peer-5"}
    network.run(75.0 + 4 * FAIL_S)
    assert all("peer-5" in peer.present for name, peer in network.peers.items() if name != "peer-5")


def test_a_parted_network_forgets_and_heals() -> None:
    network = cluster("parted")
    network.run(60.0)
    one_side = {f"peer-{number}" for number in range(6)}
    network.is_cut = lambda sender, to: (sender in one_side) != (to in one_side)
    network.run(60.0 + 3 * FAIL_S)
    assert set(network.peers["peer-1"].present) == one_side - {"peer-1"}
    network.is_cut = lambda sender, to: False
    network.run(60.0 + 5 * FAIL_S)
    assert all(len(peer.present) == 11 for peer in network.peers.values())


def test_a_broken_link_between_two_makes_nobody_suspected() -> None:
    network = cluster("link")
    network.is_cut = lambda sender, to: {sender, to} == {"peer-3", "peer-4"}
    network.run(300.0)
    assert all(told[2].kind is APPEARED for told in network.told)


def test_a_table_larger_than_a_packet_spreads_all_the_same() -> None:
    network = Network("large", HeartbeatSettings(interval_s=1.0, fail_s=60.0))
    names = [f"peer-{number}.cluster.somewhere.example:7946" for number in range(50)]
    for name in names:
        network.start(name, names[:1])
    network.run(100.0)
    assert 1_250 < network.largest_packet <= 1_350
    assert all(len(peer.present) == 49 for peer in network.peers.values())
    assert all(told[2].kind is APPEARED for told in network.told)


def test_the_same_seed_gives_the_same_run() -> None:
    runs = []
    for _ in range(2):
        network = cluster("twice", loss=0.3)
        network.run(30.0)
        network.crash("peer-2")
        network.run(120.0)
        runs.append(network.told)
    assert runs[0] == runs[1]
