"""What can befall a member: timers, pauses, slowness, clocks that drift, ends and new beginnings."""

from __future__ import annotations

import math

import pytest

from quoracy.errors import InvalidRequest
from quoracy.membership.machine import Effect, SendPacket, SendStream
from quoracy.membership.simulator import (
    Constant,
    Crash,
    Drift,
    Join,
    Leave,
    Network,
    Restart,
    Slow,
    Stall,
    World,
)
from quoracy.membership.simulator.engine import Resume
from quoracy.membership.simulator.node import Node
from tests.membership.simulator.beats import Beats
from tests.membership.simulator.test_network import beats, send

LATENCY_S = 0.001


class Alarm:
    """A machine whose owner moves its timer about."""

    def __init__(self, due: float = math.inf) -> None:
        self.next_due = due
        self.rang: list[float] = []
        self.log: list[str] = []

    def start(self, now: float) -> list[Effect]:
        return []

    def tick(self, now: float) -> list[Effect]:
        assert now >= self.next_due, "it was called too early"
        self.rang.append(now)
        self.log.append("timer")
        self.next_due = math.inf
        return []

    def receive(self, data: bytes, sender: str, now: float) -> list[Effect]:
        self.log.append(data.decode())
        return []

    receive_stream = receive

    def unreachable(self, to: str, now: float) -> list[Effect]:
        return []

    def set(self, due: float) -> list[Effect]:
        self.next_due = due
        return []


def small_world(resume: Resume = "timers", **network: int) -> World:
    return World(
        seed=1,
        network=Network(latency=Constant(LATENCY_S), **network),
        resume=resume,
    )


def alarm_world(**options: float) -> tuple[World, Alarm]:
    world, alarm = small_world(), Alarm()
    world.add("a", alarm, **options)  # type: ignore[arg-type]
    world.add("b", Beats("b", [], rng=world.rng("b"), every_s=1e9))
    world.run(until=0.0)
    return world, alarm


def set_at(world: World, at: float, due: float) -> None:
    def move(machine: object, now: float) -> list[Effect]:
        assert isinstance(machine, Alarm)
        return machine.set(due)

    world.call("a", move, at=at)


def test_a_timer_that_moves_earlier_rings_earlier() -> None:
    world, alarm = alarm_world()
    set_at(world, 0.0, 10.0)
    set_at(world, 1.0, 5.0)
    set_at(world, 2.0, 3.0)
    world.run(until=20.0)
    assert alarm.rang == [3.0]


def test_a_timer_that_moves_later_rings_later_and_once() -> None:
    world, alarm = alarm_world()
    set_at(world, 0.0, 3.0)
    set_at(world, 1.0, 7.0)
    set_at(world, 2.0, 5.0)
    world.run(until=20.0)
    assert alarm.rang == [5.0]


def test_a_timer_that_is_taken_back_does_not_ring_but_may_be_set_again() -> None:
    world, alarm = alarm_world()
    set_at(world, 0.0, 3.0)
    set_at(world, 1.0, math.inf)
    set_at(world, 4.0, 5.0)
    world.run(until=20.0)
    assert alarm.rang == [5.0]


def test_a_timer_in_the_past_rings_now() -> None:
    world, alarm = alarm_world()
    set_at(world, 2.0, 1.0)
    world.run(until=20.0)
    assert alarm.rang == [2.0]


def test_timers_that_move_to_and_fro_do_not_fill_the_heap() -> None:
    world, alarm = alarm_world()
    for step in range(1_000):
        set_at(world, step * 0.01, 100.0 if step % 2 else step * 0.01 + 0.005)
    world.run(until=10.0)
    assert alarm.rang == pytest.approx([step * 0.01 + 0.005 for step in range(0, 1_000, 2)])
    assert len(world._heap) <= 3


def test_packets_to_a_member_that_waits_for_long_add_no_timers() -> None:
    world, _ = alarm_world()
    set_at(world, 0.0, 100.0)
    for number in range(100):
        send(world, "b", "a", b"x", at=1.0 + number / 100)
    world.run(until=10.0)
    assert world.counters("a").packets_received == 100
    assert len(world._heap) == 2


def test_a_machine_that_is_always_due_is_named_instead_of_hanging() -> None:
    class Stuck(Alarm):
        def tick(self, now: float) -> list[Effect]:
            return []

    world = World(seed=42)
    world.add("stuck", Stuck(due=1.0))
    with pytest.raises(RuntimeError, match=r"stuck was due 10,000 times at 1\.0 s") as raised:
        world.run(until=2.0)
    assert raised.value.__notes__ == ["simulation with seed 42, at 1.000000 s of true time"]


def test_an_error_of_a_machine_ends_the_run_and_says_the_seed() -> None:
    class Broken(Alarm):
        def receive(self, data: bytes, sender: str, now: float) -> list[Effect]:
            raise ZeroDivisionError

    world = World(seed=43)
    world.add("a", Broken())
    world.call("a", lambda machine, now: [SendPacket("a", b"x")], at=1.0)
    with pytest.raises(ZeroDivisionError) as raised:
        world.run(until=2.0)
    assert "seed 43" in raised.value.__notes__[0]


def test_what_a_machine_refuses_is_counted_and_dropped() -> None:
    world, _ = alarm_world()
    for data in (b"nonsense", b"ok"):
        send(world, "a", "b", data)
    world.run(until=1.0)
    assert world.counters("b").rejected == 1
    assert [data for _, data, _ in beats(world, "b").heard] == [b"ok"]


# -- pauses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resume", "order"),
    [("timers", ["timer", "one", "two"]), ("packets", ["one", "two", "timer"])],
)
def test_a_stopped_member_does_everything_when_it_runs_again(resume: Resume, order: list[str]) -> None:
    world, alarm = small_world(resume), Alarm(due=2.0)
    world.add("a", alarm)
    world.add("b", Beats("b", [], rng=world.rng("b"), every_s=1e9))
    world.pause("a", at=1.0, until=5.0)
    send(world, "b", "a", b"one", at=1.5)
    send(world, "b", "a", b"two", at=4.0)
    world.run(until=4.9)
    assert world.is_stopped("a")
    assert world.is_up("a")
    assert alarm.log == []
    world.run(until=6.0)
    assert not world.is_stopped("a")
    assert alarm.log == order
    assert alarm.rang == [5.0]


def test_beyond_its_receive_buffer_a_stopped_member_loses_datagrams() -> None:
    world = small_world(receive_buffer_bytes=10_000)
    for name in "ab":
        world.add(name, Beats(name, [], rng=world.rng(name), every_s=1e9))
    world.pause("a", at=1.0, until=5.0)
    for number in range(20):
        send(world, "b", "a", b"%04d" % number * 122, at=2.0 + number / 100)  # 488 bytes, counted 1,000
    world.run(until=6.0)
    assert [data[:4] for _, data, _ in beats(world, "a").heard] == [b"%04d" % n for n in range(10)]
    assert world.counters("a").overflowed == 10
    # What was read made room again, as much as before.
    world.pause("a", at=7.0, until=9.0)
    for _ in range(20):
        send(world, "b", "a", bytes(488), at=8.0)
    world.run(until=10.0)
    assert len(beats(world, "a").heard) == 20


def test_a_member_can_be_stalled_again_and_again() -> None:
    world = small_world()
    world.add("a", Beats("a", [], rng=world.rng("a"), every_s=0.01))
    world.schedule([Stall("a", at=10.0, until=20.0, stopped_s=2.0, running_s=1.0)])
    world.run(until=30.0)
    ticked = beats(world, "a").ticked
    whole_seconds = {int(time) for time in ticked if time % 1 > 0.02}
    assert whole_seconds == {*range(10), 12, 15, 18, *range(20, 30)}


def test_a_member_that_is_held_up_keeps_its_timers_but_not_its_messages() -> None:
    world = small_world()
    for name in "ab":
        world.add(name, Beats(name, ["a", "b"], rng=world.rng(name), every_s=1.0))
    world.schedule([Stall("a", at=5.0, until=15.0, timers_run=True)])
    world.run(until=14.9)
    a, b = beats(world, "a"), beats(world, "b")
    assert world.is_stopped("a")
    assert len(a.ticked) == 15
    assert not [time for time, _, _ in a.heard if 5.01 < time < 15.0]
    assert not [time for time, _, sender in b.heard if 5.01 < time < 15.0 and sender == "a"]
    to_a = sum(sender == "a" for _, _, sender in a.heard)
    world.run(until=15.1)
    assert not world.is_stopped("a")
    # What it sent meanwhile leaves now, and what came meanwhile is read.
    assert len([1 for time, _, sender in b.heard if 15.0 < time < 15.1 and sender == "a"]) >= 3
    assert len([1 for time, _, _ in a.heard if 15.0 <= time < 15.1]) >= 6
    assert sum(sender == "a" for _, _, sender in a.heard) > to_a


def test_what_a_member_that_is_held_up_sends_is_bounded() -> None:
    world = small_world(receive_buffer_bytes=5_130, streams_waiting_max=2)
    for name in "ab":
        world.add(name, Beats(name, [], rng=world.rng(name), every_s=1e9))
    world.schedule([Stall("a", at=1.0, until=5.0, timers_run=True)])
    for number in range(20):
        send(world, "a", "b", b"%d" % (number % 10), at=2.0)
        world.call("a", lambda machine, now: [SendStream("b", b"stream")], at=2.0)
    world.run(until=20.0)
    heard = [data for _, data, _ in beats(world, "b").heard]
    assert (heard.count(b"stream"), len(heard)) == (2, 12)
    assert world.counters("a").overflowed == 28
    # Streams fail loudly.
    assert [(round(time, 6), to) for time, to in beats(world, "a").failed] == [(12.0, "b")] * 18


def test_what_the_owner_of_a_stopped_member_wants_is_done_when_it_runs_again() -> None:
    world, _ = alarm_world()
    world.pause("a", at=1.0, until=5.0)
    send(world, "a", "b", b"late", at=2.0)
    world.run(until=6.0)
    assert [(round(time, 6), data) for time, data, _ in beats(world, "b").heard] == [(5.001, b"late")]


def test_a_member_stopped_twice_runs_when_both_have_ended() -> None:
    world = small_world()
    world.add("a", Beats("a", [], rng=world.rng("a"), every_s=0.1))
    world.pause("a", at=1.0, until=3.0)
    world.pause("a", at=2.0, until=4.0)
    world.run(until=5.0)
    ticked = beats(world, "a").ticked
    assert not [time for time in ticked if 1.0 < time < 4.0]
    assert [time for time in ticked if time >= 4.0]


def test_a_slow_member_handles_one_message_after_the_other() -> None:
    world = small_world()
    for name in "ab":
        world.add(name, Beats(name, [], rng=world.rng(name), every_s=1e9))
    world.schedule([Slow("a", 0.5, at=0.0, until=10.0)])
    for _ in range(4):
        send(world, "b", "a", at=1.0)
    send(world, "b", "a", at=11.0)
    send(world, "b", "a", at=11.0)
    world.run(until=20.0)
    times = [time for time, _, _ in beats(world, "a").heard]
    assert times == pytest.approx([1.001, 1.501, 2.001, 2.501, 11.001, 11.001])


def test_the_timers_of_a_busy_member_wait() -> None:
    world, alarm = small_world(), Alarm(due=1.2)
    world.add("a", alarm, service_s=0.5)
    world.add("b", Beats("b", [], rng=world.rng("b"), every_s=1e9))
    send(world, "b", "a", at=1.0)
    world.run(until=5.0)
    assert alarm.rang == pytest.approx([1.501])


# -- clocks -------------------------------------------------------------------------------------------


def test_a_clock_that_drifts_makes_its_timers_drift() -> None:
    world = small_world()
    for name, drift in (("fast", 0.25), ("slow", -0.2), ("true", 0.0)):
        world.add(name, Beats(name, [], rng=world.rng(name)), drift=drift)
    world.run(until=1_000.0)
    for name, expected in (("fast", 1_250), ("slow", 800), ("true", 1_000)):
        assert len(beats(world, name).ticked) == pytest.approx(expected, abs=1), name


def test_a_machine_sees_its_own_clock() -> None:
    world = small_world()
    world.add("a", Beats("a", [], rng=world.rng("a"), every_s=1e9), drift=0.5, offset=100.0)
    world.call("a", lambda machine, now: [SendPacket("a", b"x")], at=10.0)
    world.run(until=20.0)
    assert [time for time, _, _ in beats(world, "a").heard] == [
        pytest.approx(100 + 1.5 * (10 + LATENCY_S))
    ]


def test_a_clock_that_begins_to_drift_never_goes_backwards() -> None:
    world = small_world()
    world.add("a", Beats("a", [], rng=world.rng("a"), every_s=0.1))
    world.schedule([Drift("a", 1.0, at=5.0), Drift("a", -0.5, at=10.0), Drift("a", 0.0, at=20.0)])
    world.run(until=30.0)
    ticked = beats(world, "a").ticked
    assert ticked == sorted(ticked)
    assert ticked[-1] == pytest.approx(5 + 10 + 5 + 10, abs=0.2)
    assert len(ticked) == pytest.approx(300, abs=3)


@pytest.mark.parametrize(("drift", "rings_at"), [(9.0, 19.0), (-0.5, 190.0)])
def test_a_timer_that_waits_follows_its_clock(drift: float, rings_at: float) -> None:
    world, alarm = small_world(), Alarm(due=100.0)
    rang: list[float] = []
    world.on_step = lambda time, what, *_: rang.append(time) if what == "tick" else None
    world.add("a", alarm)
    world.schedule([Drift("a", drift, at=10.0)])
    world.run(until=200.0)
    assert rang == [rings_at]
    assert alarm.rang == [100.0]


def test_a_clock_that_was_rounded_up_does_not_go_back() -> None:
    node = Node("a", Alarm(), drift=0.5, offset=0.0)
    assert node.local(10.0) == 15.0
    node.last_local = 15.000001
    assert node.local(10.0) == 15.000001
    assert node.local(11.0) == 16.5


def test_the_clock_of_a_drifting_member_is_never_behind_what_it_waited_for() -> None:
    # Alarm asserts that it is not called too early; odd rates round badly.
    world = small_world()
    alarms = [Alarm(due=due) for due in (0.1, 0.7, 1 / 3, 1e6 + 0.1)]
    for number, alarm in enumerate(alarms):
        world.add(f"a{number}", alarm, drift=0.1 / 3 * (number + 1), offset=1 / 7)
    world.run(until=2e6)
    assert [len(alarm.rang) for alarm in alarms] == [1, 1, 1, 1]


# -- ends and beginnings ------------------------------------------------------------------------------


def crashing_world(kind: str) -> World:
    world = small_world()
    names = ["a", "b"]
    for name in names:
        world.add(
            name,
            Beats(name, names, rng=world.rng(name), every_s=0.1),
            factory=lambda rng, name=name: Beats(name, names, rng=rng, every_s=0.1),  # type: ignore[misc]
        )
    world.schedule([Crash("b", at=2.0, kind=kind), Restart("b", at=4.0)])  # type: ignore[arg-type]
    return world


@pytest.mark.parametrize("kind", ["process", "machine"])
def test_a_crashed_member_is_silent_until_it_is_restarted_as_another_machine(kind: str) -> None:
    world = crashing_world(kind)
    world.run(until=3.0)
    first = beats(world, "b")
    assert not world.is_up("b")
    assert list(world.up) == ["a"]
    assert max(first.ticked) <= 2.0
    assert max(time for time, _, _ in first.heard) <= 2.0
    world.run(until=6.0)
    second = beats(world, "b")
    assert second is not first
    assert world.is_up("b")
    assert min(second.ticked) >= 4.0
    assert max(first.ticked) <= 2.0
    # Another life, another luck.
    assert [t % 0.1 for t in second.ticked][:1] != [t % 0.1 for t in first.ticked][:1]


def test_a_stall_does_not_outlive_the_process_it_stopped() -> None:
    world = crashing_world("process")
    world.schedule([Stall("b", at=1.0, until=8.0)])
    world.run(until=10.0)
    ticked = beats(world, "b").ticked
    assert min(ticked) < 4.2
    assert len(ticked) == pytest.approx(60, abs=2)


def test_the_end_of_a_stall_does_not_wake_another_process_that_is_stopped() -> None:
    world = crashing_world("process")
    world.schedule([Stall("b", at=1.0, until=8.0), Stall("b", at=5.0, until=9.0)])
    world.run(until=10.0)
    ticked = beats(world, "b").ticked
    assert not [time for time in ticked if 5.0 < time < 9.0]
    assert max(ticked) > 9.5


@pytest.mark.parametrize(("stopped_s", "running_s"), [(0.8, 0.3), (0.3, 3.0)])
def test_what_is_stopped_again_and_again_is_the_process_not_the_member(
    stopped_s: float, running_s: float
) -> None:
    # It would be stopped next at 4.2 s, when another process runs.
    world = crashing_world("process")
    world.schedule([Stall("b", at=0.9, until=9.0, stopped_s=stopped_s, running_s=running_s)])
    world.run(until=10.0)
    assert len(beats(world, "b").ticked) == pytest.approx(60, abs=2)


def test_a_member_added_for_later_begins_when_it_joins() -> None:
    world = small_world()
    world.add("a", Beats("a", [], rng=world.rng("a"), every_s=0.1), at=2.0)
    world.add("b", Beats("b", [], rng=world.rng("b"), every_s=0.1), at=math.inf)
    world.schedule([Join("b", at=3.0)])
    world.run(until=2.5)
    assert not world.is_up("b")
    world.run(until=5.0)
    assert 2.0 <= beats(world, "a").ticked[0] <= 2.1
    assert 3.0 <= beats(world, "b").ticked[0] <= 3.1


def test_then_is_done_after_every_start() -> None:
    world = small_world()

    def hello(machine: object, now: float) -> list[Effect]:
        return [SendPacket("b", b"hello")]

    for name in "ab":
        world.add(
            name,
            Beats(name, [], rng=world.rng(name), every_s=1e9),
            factory=lambda rng, name=name: Beats(name, [], rng=rng, every_s=1e9),  # type: ignore[misc]
            then=hello if name == "a" else None,
        )
    world.crash("a", at=1.0)
    world.restart("a", at=2.0)
    world.run(until=3.0)
    times = [time for time, data, _ in beats(world, "b").heard if data == b"hello"]
    assert times == pytest.approx([LATENCY_S, 2.0 + LATENCY_S])


def test_a_member_that_leaves_says_goodbye_and_its_process_ends() -> None:
    world = small_world()
    for name in "ab":
        world.add(name, Beats(name, ["b"], rng=world.rng(name), every_s=1e9))
    world.schedule([Leave("a", at=1.0)])
    world.run(until=2.0)
    assert not world.is_up("a")
    assert [data for _, data, _ in beats(world, "b").heard] == [b"bye"]


def test_counters_tell_what_was_sent_and_what_arrived() -> None:
    world, _ = alarm_world()
    send(world, "a", "b", b"ping")
    send(world, "a", "b", b"1234567890")
    world.run(until=1.0)
    a, b = world.counters("a"), world.counters("b")
    assert (a.packets_sent, a.bytes_sent, a.packets_received, a.bytes_received) == (2, 14, 1, 4)
    assert (b.packets_sent, b.bytes_sent, b.packets_received, b.bytes_received) == (1, 4, 2, 14)
    assert world.counters() == a + b
    assert world.counters() - a == b


def test_hooks_are_told_true_time() -> None:
    world = small_world()
    told: list[tuple[float, str, object]] = []
    world.on_event = lambda time, address, event: told.append((time, address, event))
    world.on_fault = lambda time, fault: told.append((time, "", fault))
    world.add("a", Beats("a", [], rng=world.rng("a"), every_s=1e9), drift=0.5, offset=9.0)
    send(world, "a", "a", b"x", at=2.0)
    world.crash("a", at=3.0)
    world.run(until=4.0)
    assert told == [
        (0.0, "a", "started"),
        (2.0 + LATENCY_S, "a", (b"x", "a")),
        (3.0, "", Crash("a", at=3.0)),
    ]


@pytest.mark.parametrize(
    ("do", "message"),
    [
        (lambda world: world.crash("x"), "there is no member x"),
        (lambda world: world.schedule([Restart("x", at=1.0)]), "there is no member x"),
        (lambda world: world.add("a", Alarm()), "a is in this world already"),
        (lambda world: world.add("c", Alarm(), drift=-1.0), "drift must be more than -1"),
        (lambda world: world.restart("a"), "add it with factory="),
        (lambda world: world.leave("a"), "Alarm has no leave"),
        (lambda world: world.pause("a", at=5.0, until=4.0), "at <= until"),
        (lambda world: world.pause("a", at=5.0, until=math.inf), "a stall ends"),
        (lambda world: Stall("a", 0.0, 1.0, stopped_s=0.0), "stopped_s > 0"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(do: object, message: str) -> None:
    world, _ = alarm_world()
    assert callable(do)
    with pytest.raises(InvalidRequest, match=message):
        do(world)


def test_run_until_says_whether_it_came_true() -> None:
    world, alarm = alarm_world()
    set_at(world, 0.0, 3.0)
    assert world.run_until(lambda: bool(alarm.rang), until=10.0)
    assert 3.0 <= world.now < 3.2
    assert not world.run_until(lambda: len(alarm.rang) > 1, until=5.0)
    assert world.now == 5.0
