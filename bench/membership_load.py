"""Simulated clusters of 16 to 8,192 members: what each sends, and how fast the others learn of a crash.

Every cluster begins converged.  It is left alone for a while, then members crash one after the other.
Times are simulated and seeded, so they are the same on every machine; only the wall time is not.
"""

from __future__ import annotations

import bisect
import functools
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from quoracy.membership.machine import Effect, SendPacket
from quoracy.membership.model import Member, MemberChange, MemberChangeKind
from quoracy.membership.settings import SwimSettings
from quoracy.membership.simulator import Counters, World
from quoracy.membership.swim import MemberTable, Swim
from quoracy.membership.swim.messages import Ping, decode_packet

__all__ = ["Calm", "Crashes", "Load", "Plan", "calm", "cluster", "load_of", "watch_crashes"]

_SETTLE_S = 5.0
_TALK_S = 2.0  # until all that is to be said of a death was said
_WATCHED_MAX = 2_048


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to look at a cluster of one size."""

    members: int
    calm_s: float
    crashes: int  # in each run, one after the other: the next when everyone knows of the last
    seeds: int


@dataclass(frozen=True, slots=True)
class Load:
    """What one member sends in a second, on average."""

    packets: float
    packet_bytes: float
    streams: float
    stream_bytes: float


@dataclass(slots=True)
class Crash:
    """When what happened after one crash; infinite if it did not."""

    at: float
    probed: float = math.inf
    suspected: list[float] = field(default_factory=list)
    dead: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Crashes:
    """Averages over all crashes, in probe intervals.

    rounds_to_probe: the number of whole intervals until someone had probed it, the last one counted in
    full: so the SWIM paper counts.  first_probe, first_suspected, first_dead: the time itself.
    all_suspected, all_dead: from the first to the last member that knew it.
    extra_packets, extra_bytes: what each member sends more for one crash than if all had been calm.
    """

    count: int
    rounds_to_probe: float
    rounds_error: float  # one standard error of it
    first_probe: float
    first_suspected: float
    all_suspected: float
    first_dead: float
    all_dead: float
    extra_packets: float
    extra_bytes: float


def cluster(
    members: int,
    seed: int,
    settings: SwimSettings | None = None,
    world: World | None = None,
) -> World:
    """So many members who all know each other."""
    world = world or World(seed)
    names = [f"m{number:05d}" for number in range(members)]
    table = MemberTable("", [Member(name, name, 1) for name in names])
    for name in names:
        swim = Swim(name, name, rng=world.rng(name), settings=settings or SwimSettings(), members=table)
        world.add(name, swim)
    return world


def load_of(world: World, seconds: float) -> Load:
    """What everyone sends while so much simulated time passes."""
    before, count = world.counters(), len(list(world.up))
    world.run(until=world.now + seconds)
    return _load(world.counters() - before, count * seconds)


def _load(sent: Counters, member_seconds: float) -> Load:
    return Load(
        packets=sent.packets_sent / member_seconds,
        packet_bytes=sent.bytes_sent / member_seconds,
        streams=sent.streams_sent / member_seconds,
        stream_bytes=sent.stream_bytes_sent / member_seconds,
    )


@dataclass(frozen=True, slots=True)
class Calm:
    """A cluster in which nothing happens.

    rounds_to_probe: had a member crashed, at any moment, in how many intervals would it have been
    probed, the last one counted in full; rounds_error: one standard error.  processor_s: what it took
    to simulate `simulated_s`, with the making of the cluster.
    """

    load: Load
    rounds_to_probe: float
    rounds_error: float
    simulated_s: float
    processor_s: float


def calm(plan: Plan) -> Calm:
    """Leave a cluster alone, and look when members are probed."""
    began = time.process_time()
    world = cluster(plan.members, seed=1)
    rng = world.rng("who is watched")
    probed_at: dict[str, list[float]] = {
        name: [] for name in rng.sample(world.addresses, min(plan.members, _WATCHED_MAX))
    }

    def on_effect(now: float, _: str, effect: Effect) -> None:
        if type(effect) is SendPacket and effect.to in probed_at and _is_probe(effect):
            probed_at[effect.to].append(now)

    world.on_effect = on_effect
    world.run(until=_SETTLE_S)
    load = load_of(world, plan.calm_s)
    processor_s = time.process_time() - began
    rounds = []
    for times in probed_at.values():
        # Nobody waits longer than this for the next probe, but for one in 10 ** 4.
        for _ in range(int(plan.calm_s / 10)):
            moment = _SETTLE_S + rng.random() * (plan.calm_s - 10)
            at = bisect.bisect(times, moment)
            if at < len(times):
                rounds.append(math.ceil((times[at] - moment) / SwimSettings().probe_interval_s))
    return Calm(
        load=load,
        rounds_to_probe=statistics.fmean(rounds),
        rounds_error=_error(rounds),
        simulated_s=world.now,
        processor_s=processor_s,
    )


def _is_probe(packet: SendPacket) -> bool:
    # Those that only bring news begin with news.
    return isinstance(decode_packet(packet.data)[0], Ping)


def _error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def watch_crashes(plan: Plan) -> Crashes:
    """Let members crash one after the other, until everyone knows of each."""
    crashes: list[Crash] = []
    extra_packets = extra_bytes = 0.0
    for seed in range(plan.seeds):
        found, packets, size = _one_run(plan, seed)
        crashes += found
        extra_packets, extra_bytes = extra_packets + packets, extra_bytes + size
    interval_s = SwimSettings().probe_interval_s
    rounds = [math.ceil((crash.probed - crash.at) / interval_s) for crash in crashes]

    def mean(times: Sequence[float]) -> float:
        return statistics.fmean(times) / interval_s

    return Crashes(
        count=len(crashes),
        rounds_to_probe=statistics.fmean(rounds),
        rounds_error=_error(rounds),
        first_probe=mean([crash.probed - crash.at for crash in crashes]),
        first_suspected=mean([crash.suspected[0] - crash.at for crash in crashes]),
        all_suspected=mean([crash.suspected[-1] - crash.suspected[0] for crash in crashes]),
        first_dead=mean([crash.dead[0] - crash.at for crash in crashes]),
        all_dead=mean([crash.dead[-1] - crash.dead[0] for crash in crashes]),
        extra_packets=extra_packets / (plan.crashes * plan.seeds),
        extra_bytes=extra_bytes / (plan.crashes * plan.seeds),
    )


def _has_heard(crash: Crash, living: int) -> bool:
    return len(crash.dead) >= living


def _one_run(plan: Plan, seed: int) -> tuple[list[Crash], float, float]:
    """The crashes of one run, and what each member sent more in it, in packets and bytes."""
    world = cluster(plan.members, seed=1_000 + seed)
    rng = world.rng("who crashes, and when")
    world.run(until=_SETTLE_S)
    quiet = load_of(world, _SETTLE_S)
    crashes: dict[str, Crash] = {}

    def on_effect(now: float, _: str, effect: Effect) -> None:
        if type(effect) is SendPacket:
            crash = crashes.get(effect.to)
            if crash is not None and crash.probed == math.inf and _is_probe(effect):
                crash.probed = now

    def on_event(now: float, _: str, event: object) -> None:
        if isinstance(event, MemberChange) and (crash := crashes.get(event.member.name)):
            if event.kind is MemberChangeKind.SUSPECTED:
                crash.suspected.append(now)
            elif event.kind is MemberChangeKind.DIED:
                crash.dead.append(now)

    world.on_effect, world.on_event = on_effect, on_event
    before, started = world.counters(), world.now
    for number, name in enumerate(rng.sample(list(world.up), plan.crashes), start=1):
        # At any moment of an interval; of a machine, not of a process, so that nothing refuses.
        at = world.now + rng.random()
        world.run(until=at)
        crash = crashes[name] = Crash(at)
        world.crash(name, kind="machine")
        living = plan.members - number
        everyone = functools.partial(_has_heard, crash, living)
        if not world.run_until(everyone, until=at + 120.0, every_s=0.5):
            raise RuntimeError(f"{plan.members} members, seed {world.seed}: not all learnt of a crash")
        world.run(until=world.now + _TALK_S)
    seconds = world.now - started
    busy = _load(world.counters() - before, seconds * plan.members)
    extra_packets = (busy.packets - quiet.packets) * seconds
    extra_bytes = (busy.packet_bytes - quiet.packet_bytes) * seconds
    return list(crashes.values()), extra_packets, extra_bytes
