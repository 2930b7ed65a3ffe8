"""What the network does: latency, loss, duplicates, order, cuts, links of their own."""

from __future__ import annotations

import random
import statistics

import pytest

from quoracy.errors import InvalidRequest
from quoracy.membership.machine import SendPacket
from quoracy.membership.simulator import (
    Constant,
    Latency,
    Link,
    LogNormal,
    Loss,
    Network,
    Normal,
    Pareto,
    Uniform,
    World,
)
from tests.membership.simulator.beats import Beats


def world_of(*names: str, network: Network | None = None, seed: int = 1) -> World:
    world = World(seed, network=network)
    for name in names:
        world.add(name, Beats(name, [], rng=world.rng(name), every_s=1e9))
    world.run(until=0.0)
    return world


def beats(world: World, name: str) -> Beats:
    machine = world.machine(name)
    assert isinstance(machine, Beats)
    return machine


def send(world: World, sender: str, to: str, data: bytes = b"x", *, at: float | None = None) -> None:
    world.call(sender, lambda machine, now: [SendPacket(to, data)], at=at)


def arrivals(network: Network, *, count: int = 4_000) -> list[float]:
    world = world_of("a", "b", network=network)
    for _ in range(count):
        send(world, "a", "b")
    world.run(until=1_000.0)
    return [time for time, _, _ in beats(world, "b").heard]


@pytest.mark.parametrize(
    ("latency", "mean_s", "median_s"),
    [
        (Constant(0.25), 0.25, 0.25),
        (Uniform(0.1, 0.3), 0.2, 0.2),
        (Normal(0.2, 0.02), 0.2, 0.2),
        (LogNormal(0.1, 0.5), 0.1 * 2.718281828 ** (0.125), 0.1),
        (Pareto(0.1, 3.0), 0.15, 0.1 * 2 ** (1 / 3)),
    ],
)
def test_latency_has_the_distribution_it_claims(
    latency: Latency, mean_s: float, median_s: float
) -> None:
    took = arrivals(Network(latency=latency))
    assert len(took) == 4_000
    assert statistics.fmean(took) == pytest.approx(mean_s, rel=0.05)
    assert statistics.median(took) == pytest.approx(median_s, rel=0.05)


@pytest.mark.parametrize(
    ("latency", "low_s", "high_s"),
    [
        (Uniform(0.1, 0.3), 0.1, 0.3),
        (Normal(0.01, 1.0, least_s=0.005), 0.005, 6.0),
        (Pareto(0.1, 0.5, most_s=2.0), 0.1, 2.0),
    ],
)
def test_latency_stays_within_its_bounds(latency: Latency, low_s: float, high_s: float) -> None:
    rng = random.Random(1)
    drawn = [latency.draw(rng) for _ in range(5_000)]
    assert low_s <= min(drawn) <= max(drawn) <= high_s


@pytest.mark.parametrize("loss", [0.0, 0.05, 0.5, 1.0])
@pytest.mark.parametrize("duplicate", [0.0, 1e-9])
def test_as_many_datagrams_are_lost_as_was_asked_for(loss: float, duplicate: float) -> None:
    # A chance of duplication, however small, takes the way that is not the short one.
    got = len(arrivals(Network(loss=loss, duplicate=duplicate)))
    assert got == pytest.approx(4_000 * (1 - loss), abs=120)
    if loss in (0.0, 1.0):
        assert got == 4_000 * (1 - loss)


def test_as_many_datagrams_arrive_twice_as_was_asked_for() -> None:
    assert len(arrivals(Network(duplicate=0.25))) == pytest.approx(5_000, abs=120)


def test_datagrams_overtake_each_other_only_where_delays_differ() -> None:
    def order(network: Network) -> list[bytes]:
        world = world_of("a", "b", network=network)
        for number in range(200):
            send(world, "a", "b", b"%d" % number, at=number * 0.001)
        world.run(until=10.0)
        return [data for _, data, _ in beats(world, "b").heard]

    sent = [b"%d" % number for number in range(200)]
    assert order(Network(latency=Constant(0.01))) == sent
    for shaken in (Network(latency=Uniform(0, 0.1)), Network(latency=Constant(0.01), reorder=0.5)):
        got = order(shaken)
        assert got != sent
        assert sorted(got) == sorted(sent)


def test_nothing_crosses_a_partition_until_it_heals() -> None:
    world = world_of("a", "b", "c", "d", network=Network(latency=Constant(0.001)))
    world.partition(["a", "b"], ["c"], at=1.0, until=3.0)
    for time in (0.5, 2.0, 3.5):
        for sender, to in ("ab", "ac", "ca", "cd", "da"):
            send(world, sender, to, b"%.1f" % time, at=time)
    world.run(until=5.0)
    heard = {(sender, name, data) for name in "abcd" for _, data, sender in beats(world, name).heard}
    everyone = {"ab", "ac", "ca", "cd", "da"}
    assert {s + to for s, to, data in heard if data == b"0.5"} == everyone
    assert {s + to for s, to, data in heard if data == b"2.0"} == {"ab"}
    assert {s + to for s, to, data in heard if data == b"3.5"} == everyone


def test_a_one_way_block_stops_one_way_only() -> None:
    world = world_of("a", "b", "c")
    world.block(["a"], ["b"], at=1.0, until=2.0)
    for sender, to in ("ab", "ba", "ac"):
        send(world, sender, to, b"during", at=1.5)
        send(world, sender, to, b"after", at=2.5)
    world.run(until=3.0)
    assert [data for _, data, _ in beats(world, "b").heard] == [b"after"]
    assert [data for _, data, _ in beats(world, "a").heard] == [b"during", b"after"]
    assert [data for _, data, _ in beats(world, "c").heard] == [b"during", b"after"]


def test_partitions_may_overlap_and_heal_each_on_its_own() -> None:
    world = world_of("a", "b", "c")
    world.partition(["a"], at=1.0, until=3.0)
    world.partition(["b"], at=2.0, until=4.0)
    for time in (2.5, 3.5, 4.5):
        for sender, to in ("ac", "bc"):
            send(world, sender, to, b"%.1f" % time, at=time)
    world.run(until=5.0)
    assert [(data, sender) for _, data, sender in beats(world, "c").heard] == [
        (b"3.5", "a"), (b"4.5", "a"), (b"4.5", "b"),
    ]  # fmt: skip


def test_heal_ends_every_cut() -> None:
    world = world_of("a", "b")
    world.partition(["a"])
    world.block(["a"], ["b"])
    send(world, "a", "b", b"before")
    world.heal()
    send(world, "a", "b", b"after")
    world.run(until=1.0)
    assert [data for _, data, _ in beats(world, "b").heard] == [b"after"]


def test_a_link_can_differ_from_the_rest() -> None:
    world = world_of("a", "b", "c", network=Network(latency=Constant(0.001)))
    world.set_link("a", "b", Link(latency=Constant(0.5)))
    world.set_link("a", "c", Link(loss=1.0))
    for sender, to in ("ab", "ac", "ba", "ca"):
        send(world, sender, to)
    world.run(until=1.0)
    assert [time for time, _, _ in beats(world, "b").heard] == [0.5]
    assert beats(world, "c").heard == []
    assert [time for time, _, _ in beats(world, "a").heard] == [0.001, 0.001]
    world.set_link("a", "c", None)
    send(world, "a", "c")
    world.run(until=2.0)
    assert len(beats(world, "c").heard) == 1


def test_loss_for_a_while_is_that_of_everyone_or_of_the_members_named() -> None:
    world = world_of("a", "b", "c", network=Network(latency=Constant(0.001)))
    world.schedule([Loss(1.0, at=1.0, until=2.0), Loss(1.0, at=3.0, until=4.0, members=("a",))])
    for time in (0.5, 1.5, 2.5, 3.5, 4.5):
        for sender, to in ("ab", "ba", "cb"):
            send(world, sender, to, b"%.1f" % time, at=time)
    world.run(until=5.0)
    got = [(data, sender) for _, data, sender in beats(world, "b").heard]
    assert [data for data, sender in got if sender == "a"] == [b"0.5", b"2.5", b"4.5"]
    assert [data for data, sender in got if sender == "c"] == [b"0.5", b"2.5", b"3.5", b"4.5"]
    assert [data for _, data, _ in beats(world, "a").heard] == [b"0.5", b"2.5", b"4.5"]


def test_what_is_sent_to_nobody_is_gone() -> None:
    world = world_of("a")
    send(world, "a", "nobody")
    world.run(until=1.0)
    assert world.counters("a").packets_sent == 1
    assert world.counters().packets_received == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Network(loss=1.5), "loss is a chance from 0 to 1, not 1.5"),
        (lambda: Network(stream_timeout_s=0), "stream_timeout_s must be more than 0"),
        (lambda: Link(loss=-1), "loss is a chance"),
        (lambda: Constant(-1), "cannot be negative"),
        (lambda: Uniform(0.2, 0.1), "low_s <= high_s"),
        (lambda: Pareto(0.1, 0.0), "shape > 0"),
        (lambda: World(1).partition("ab", "bc"), "b is in two groups"),
    ],
)
def test_a_network_that_cannot_be_is_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidRequest, match=message):
        make()
