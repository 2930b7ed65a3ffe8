"""Reliable messages: loss makes them late, and what cannot arrive is reported to its sender."""

from __future__ import annotations

import random
import statistics

import pytest

from quoracy.membership.machine import SendStream
from quoracy.membership.simulator import Constant, Crash, Network, World
from quoracy.membership.simulator.network import Links
from tests.membership.simulator.beats import Beats
from tests.membership.simulator.test_network import beats

LATENCY_S = 0.01


class Given(random.Random):
    """Not at random at all."""

    def __init__(self, draws: list[float]) -> None:
        super().__init__(0)
        self._draws = iter(draws)

    def random(self) -> float:
        return next(self._draws)


def stream_world(**network: float) -> World:
    options: dict[str, object] = {"latency": Constant(LATENCY_S), "stream_timeout_s": 5.0} | network
    world = World(seed=1, network=Network(**options))  # type: ignore[arg-type]
    for name in "ab":
        world.add(
            name,
            Beats(name, [], rng=world.rng(name), every_s=1e9),
            factory=lambda rng, name=name: Beats(name, [], rng=rng, every_s=1e9),  # type: ignore[misc]
        )
    world.run(until=0.0)
    return world


def stream(world: World, data: bytes = b"x", *, at: float | None = None, to: str = "b") -> None:
    world.call("a", lambda machine, now: [SendStream(to, data)], at=at)


def heard(world: World, name: str) -> list[tuple[float, bytes, str]]:
    return [(round(time, 9), data, sender) for time, data, sender in beats(world, name).heard]


def failed(world: World) -> list[tuple[float, str]]:
    return [(round(time, 9), to) for time, to in beats(world, "a").failed]


def test_a_stream_takes_a_round_trip_to_connect_and_one_way_for_the_message() -> None:
    world = stream_world()
    stream(world, b"stream ping")
    world.run(until=1.0)
    assert heard(world, "b") == [(0.03, b"stream ping", "a")]
    assert heard(world, "a") == [(0.06, b"stream pong", "b")]
    a, b = world.counters("a"), world.counters("b")
    assert (a.streams_sent, a.stream_bytes_sent, a.streams_received) == (1, 11, 1)
    assert (b.streams_sent, b.stream_bytes_received, b.packets_received) == (1, 11, 0)


def test_loss_makes_streams_late_but_loses_none() -> None:
    def times(loss: float) -> list[float]:
        world = stream_world(loss=loss, stream_timeout_s=1e6)
        for _ in range(500):
            stream(world)
        world.run(until=1e7)
        assert beats(world, "a").failed == []
        return [time for time, _, _ in beats(world, "b").heard]

    calm, bad = times(0.0), times(0.3)
    assert len(calm) == len(bad) == 500
    assert calm == pytest.approx([3 * LATENCY_S] * 500)
    assert max(bad) > 1.0
    assert statistics.fmean(bad) > 0.1
    # A third of all get through at once: three trips of 0.7 each.
    assert sum(time < 0.1 for time in bad) == pytest.approx(500 * 0.7**3, abs=40)


def test_a_segment_is_sent_again_later_and_later() -> None:
    # The first segment is lost four times, then nothing is.
    given = Given([0.0] * 4 + [0.9] * 3)
    links = Links(Network(latency=Constant(0.0), loss=0.5), given)
    assert links.stream_s("a", "b", 1) == pytest.approx(0.2 + 0.4 + 0.8 + 1.6)


def test_large_messages_suffer_more_from_loss() -> None:
    def mean_s(size: int) -> float:
        world = stream_world(loss=0.05, stream_timeout_s=1e6)
        for _ in range(200):
            stream(world, bytes(size))
        world.run(until=1e7)
        return statistics.fmean(time for time, _, _ in beats(world, "b").heard)

    assert mean_s(100_000) > 2 * mean_s(100)


def test_a_process_that_is_gone_refuses_at_once() -> None:
    world = stream_world()
    world.crash("b", at=1.0, kind="process")
    stream(world, at=2.0)
    world.run(until=10.0)
    assert failed(world) == [(2.02, "b")]


@pytest.mark.parametrize("to", ["b", "nobody"])
def test_a_machine_that_is_gone_is_noticed_by_timeout(to: str) -> None:
    world = stream_world()
    world.crash("b", at=1.0, kind="machine")
    stream(world, at=2.0, to=to)
    world.run(until=10.0)
    assert beats(world, "a").failed == [(7.0, to)]


@pytest.mark.parametrize("one_way", [False, True])
def test_a_stream_across_a_cut_fails_by_timeout(one_way: bool) -> None:
    world = stream_world()
    if one_way:
        world.block(["b"], ["a"])  # the answers of the other side are needed too
    else:
        world.partition(["a"])
    stream(world, at=2.0)
    world.run(until=10.0)
    assert beats(world, "a").failed == [(7.0, "b")]
    assert beats(world, "b").heard == []


def test_a_stream_gets_through_when_a_cut_heals_in_time() -> None:
    world = stream_world()
    world.partition(["a"], at=1.0, until=3.0)
    stream(world, at=2.0)
    world.run(until=10.0)
    assert beats(world, "a").failed == []
    # It is tried again 0.2, 0.6 and 1.4 s after the first time: the last of these after the cut.
    assert [time for time, _, _ in beats(world, "b").heard] == [pytest.approx(3.4 + 3 * LATENCY_S)]


def test_a_stream_under_way_to_a_process_that_ends_is_reset() -> None:
    world = stream_world()
    stream(world, at=2.0)
    world.schedule([Crash("b", at=2.0 + 1.5 * LATENCY_S)])
    world.restart("b", at=2.0 + 2 * LATENCY_S)
    world.run(until=10.0)
    assert beats(world, "b").heard == []
    assert failed(world) == [(2.04, "b")]


def test_a_stopped_member_takes_streams_and_reads_them_later() -> None:
    world = stream_world(streams_waiting_max=3)
    world.pause("b", at=1.0, until=9.0)
    for _ in range(5):
        stream(world, at=2.0)
    world.run(until=20.0)
    assert [time for time, _, _ in beats(world, "b").heard] == [9.0] * 3
    # Those for which there was no room fail.
    assert beats(world, "a").failed == [(7.0, "b")] * 2


def test_a_member_that_started_again_hears_nothing_of_the_streams_of_its_former_life() -> None:
    world = stream_world()
    world.crash("b", kind="machine")
    stream(world, at=2.0)
    world.crash("a", at=3.0)
    world.restart("a", at=4.0)
    world.run(until=20.0)
    assert beats(world, "a").failed == []
