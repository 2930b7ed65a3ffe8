"""Seeded schedules of faults for a small cluster, and the judge of what its members make of them.

A schedule has a rough time, in which anything may go wrong, and a calm, in which nothing does.  During
both, every member's events are held against the life of a member as `model` draws it; in the calm,
everyone has to come to the same, true view, and to fall silent.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from quoracy.membership.machine import Effect, Machine, SendPacket, Tell
from quoracy.membership.model import (
    JoinAnswered,
    Member,
    MemberChange,
    MemberChangeKind,
    MemberState,
    Message,
)
from quoracy.membership.settings import SwimSettings
from quoracy.membership.simulator import (
    Crash,
    Drift,
    Fault,
    Join,
    Leave,
    Loss,
    Network,
    OneWay,
    Partition,
    Restart,
    Stall,
    World,
)
from quoracy.membership.simulator.engine import Resume
from quoracy.membership.swim import Swim

__all__ = ["CALM_S", "ROUGH_S", "Judge", "Schedule", "Wrong", "draw", "is_legal", "run"]

ROUGH_S = 60.0
CALM_S = 240.0
_JOIN_AGAIN_S = 5.0
_SEEDS = 3

_ALIVE, _SUSPECT, _DEAD, _LEFT = MemberState
_K = MemberChangeKind


class Wrong(AssertionError):
    """A promise was broken."""


@dataclass(frozen=True)
class Schedule:
    """Everything that decides a run; its `repr` is enough to run it again."""

    seed: int
    founders: tuple[str, ...]
    joiners: tuple[str, ...]
    faults: tuple[Fault, ...]
    network: Network
    resume: Resume
    begins_converged: bool

    @property
    def names(self) -> tuple[str, ...]:
        return self.founders + self.joiners


def draw(seed: int) -> Schedule:
    """A schedule, of a seed and of nothing else."""
    rng = random.Random(f"schedule {seed}")
    founders = tuple(f"m{number}" for number in range(rng.randint(3, 10)))
    joiners = tuple(f"j{number}" for number in range(rng.randint(0, 2)))
    makers = (_crashes, _partitions, _one_ways, _stalls, _losses, _drifts, _leaves)
    faults: list[Fault] = [Join(name, rng.uniform(1, ROUGH_S - 1)) for name in joiners]
    for maker in rng.sample(makers, rng.randint(1, 4)):
        faults += maker(rng, founders)
    return Schedule(
        seed=seed,
        founders=founders,
        joiners=joiners,
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        network=Network(
            duplicate=rng.choice((0.0, 0.0, 0.1)), reorder=rng.choice((0.0, 0.0, 0.2)), reorder_s=0.5
        ),
        resume=rng.choice(("timers", "packets")),
        begins_converged=rng.random() < 0.5,
    )


def _span(rng: random.Random, longest_s: float = 50.0) -> tuple[float, float]:
    at = rng.uniform(2, ROUGH_S - 5)
    return at, min(ROUGH_S, at + rng.uniform(0.5, longest_s))


def _crashes(rng: random.Random, names: tuple[str, ...]) -> Iterator[Fault]:
    # One founder is left: of a cluster that all have left there is nothing to say.
    for name in rng.sample(names[1:], rng.randint(1, min(3, len(names) - 1))):
        at = rng.uniform(2, ROUGH_S - 2)
        yield Crash(name, at, rng.choice(("process", "machine")))
        if rng.random() < 0.6:
            yield Restart(name, min(ROUGH_S, at + rng.choice((0.2, 2.0, 15.0, 40.0)) * rng.random()))


def _partitions(rng: random.Random, names: tuple[str, ...]) -> Iterator[Fault]:
    for _ in range(rng.randint(1, 2)):
        side = rng.sample(names, rng.randint(1, len(names) - 1))
        yield Partition((tuple(side),), *_span(rng))


def _one_ways(rng: random.Random, names: tuple[str, ...]) -> Iterator[Fault]:
    senders = tuple(rng.sample(names, rng.randint(1, len(names) - 1)))
    receivers = tuple(name for name in names if name not in senders or rng.random() < 0.2)
    yield OneWay(senders, receivers, *_span(rng))


def _stalls(rng: random.Random, names: tuple[str, ...]) -> Iterator[Fault]:
    for name in rng.sample(names, rng.randint(1, 2)):
        at, until = _span(rng)
        timers_run = rng.random() < 0.4
        if rng.random() < 0.5:
            yield Stall(name, at, until, timers_run=timers_run)
        else:
            on_s = rng.choice((0.001, 0.1, 1.0))
            yield Stall(name, at, until, rng.uniform(0.5, 20.0), on_s, timers_run)


def _losses(rng: random.Random, names: tuple[str, ...]) -> Iterator[Fault]:
    members = () if rng.random() < 0.7 else tuple(rng.sample(names, 1))
    yield Loss(rng.choice((0.05, 0.2, 0.2, 0.5)), *_span(rng), members)


def _drifts(rng: random.Random, names: tuple[str, ...]) -> Iterator[Fault]:
    for name in rng.sample(names, rng.randint(1, len(names))):
        yield Drift(name, rng.uniform(-0.05, 0.05), at=0.0)


def _leaves(rng: random.Random, names: tuple[str, ...]) -> Iterator[Fault]:
    name = rng.choice(names[1:])
    at = rng.uniform(2, ROUGH_S - 10)
    yield Leave(name, at)
    if rng.random() < 0.4:
        yield Restart(name, min(ROUGH_S, at + rng.uniform(5, 30)))


class Judge:
    """One run and what is held against it."""

    def __init__(self, schedule: Schedule, settings: SwimSettings | None = None) -> None:
        self.schedule = schedule
        self.settings = settings or SwimSettings()
        self.world = World(schedule.seed, network=schedule.network, resume=schedule.resume)
        self.world.on_effect = self._effect
        self.broadcasts_heard: dict[bytes, set[str]] = {}
        # What each member was told of each other, from its own events and from nothing else.
        self._views: dict[str, dict[str, Member]] = {}
        self._machines: dict[str, Machine] = {}
        self._joined: set[Machine] = set()
        known = [Member(name, name, 1) for name in schedule.founders]
        for name in schedule.names:
            members = known if schedule.begins_converged and name in schedule.founders else []
            machine = self._make(name, self.world.rng(name), members)
            self.world.add(
                name,
                machine,
                at=0.0 if name in schedule.founders else math.inf,
                factory=lambda rng, name=name: self._make(name, rng, []),  # type: ignore[misc]
                then=self._join,
            )
        self.world.schedule(schedule.faults)

    def swim(self, name: str) -> Swim:
        machine = self.world.machine(name)
        assert isinstance(machine, Swim)
        return machine

    @property
    def living(self) -> list[str]:
        return list(self.world.up)

    def _make(self, name: str, rng: random.Random, members: list[Member]) -> Swim:
        self._views[name] = {member.name: member for member in members if member.name != name}
        return Swim(name, name, rng=rng, settings=self.settings, members=members)

    def _join(self, machine: Machine, now: float) -> list[Effect]:
        """Join, and try again until somebody answers, as a runtime does."""
        assert isinstance(machine, Swim)
        if machine.has_left or machine.me.state is _LEFT:
            return []
        seeds = [name for name in self.schedule.founders if name != machine.name][:_SEEDS]

        def again() -> None:
            if machine not in self._joined and self.world.machine(machine.name) is machine:
                self.world.call(machine.name, self._join)

        self.world.at(self.world.now + _JOIN_AGAIN_S, again)
        return machine.join(seeds, now)

    # -- at every step -------------------------------------------------------------------------------

    def _effect(self, _time: float, name: str, effect: Effect) -> None:
        if isinstance(effect, SendPacket):
            if len(effect.data) > self.settings.packet_bytes_max:
                raise Wrong(f"{name} sent a packet of {len(effect.data)} bytes")
        elif isinstance(effect, Tell):
            if isinstance(effect.event, MemberChange):
                self._follow(name, effect.event)
            elif isinstance(effect.event, JoinAnswered):
                self._joined.add(self.world.machine(name))
            elif isinstance(effect.event, Message) and effect.event.is_broadcast:
                self.broadcasts_heard.setdefault(effect.event.payload, set()).add(name)

    def _follow(self, observer: str, change: MemberChange) -> None:
        """Whether this could be the next thing to happen to that member, after what was told before."""
        new, view = change.member, self._views[observer]
        old = view.get(new.name)
        if new.name == observer:
            raise Wrong(f"{observer} was told of itself: {change}")
        if not is_legal(old, change):
            raise Wrong(f"{observer} was told {change} after {old}")
        if change.kind is _K.FORGOTTEN:
            del view[new.name]
        else:
            view[new.name] = new

    # -- in the calm ---------------------------------------------------------------------------------

    def is_agreed(self) -> bool:
        """Everyone who lives knows everyone who lives as alive, as it is, and nobody else."""
        living = self.living
        truth = {name: self.swim(name).me for name in living}
        for name in living:
            present = {
                member.name: member for member in self.swim(name).members.values() if member.is_present
            }
            if present != truth:
                return False
        return True

    def disagreements(self) -> Iterator[str]:
        living = self.living
        for name in living:
            members = self.swim(name).members
            for other in sorted({*living, *members}):
                known = members.get(other)
                if other in living and known != self.swim(other).me:
                    yield f"{name} knows {known} instead of {self.swim(other).me}"
                elif other not in living and known is not None and known.is_present:
                    yield f"{name} knows {known}, who is gone"

    def check_views(self) -> None:
        """What was told adds up to what is known; a mere new incarnation of one alive is not told."""
        for name in self.living:
            known, told = dict(self.swim(name).members), self._views[name]
            del known[name]
            for other in {*known, *told}:
                is_, was = known.get(other), told.get(other)
                if is_ is not None and was is not None and (was.state, is_.state) == (_LEFT, _DEAD):
                    continue  # it came back and died, which nobody told in time
                if is_ is None or was is None or _seen(is_) != _seen(was):
                    raise Wrong(f"{name} knows {is_} but was told {was}")
                if was.incarnation > is_.incarnation:
                    raise Wrong(f"{name} knows {is_}, which is older than {was}")

    def wait_agreed(self, what: str, within_s: float) -> float:
        """How long it took until all were of one mind."""
        since = self.world.now
        if not self.world.run_until(self.is_agreed, until=since + within_s, every_s=1.0):
            raise Wrong(f"{what}: after {within_s:g} s of calm, " + "; ".join(self.disagreements()))
        return self.world.now - since


def _seen(member: Member) -> tuple[MemberState, str, bytes]:
    return member.state, member.address, member.meta


def is_legal(old: Member | None, change: MemberChange) -> bool:
    new = change.member
    grew = old is None or new.incarnation > old.incarnation
    not_less = old is None or new.incarnation >= old.incarnation
    was = None if old is None else old.state
    match change.kind:
        case _K.JOINED:
            return new.state is _ALIVE and was in (None, _DEAD, _LEFT) and grew
        case _K.SUSPECTED:
            return new.state is _SUSPECT and was is _ALIVE and not_less
        case _K.RECOVERED:
            return new.state is _ALIVE and was is _SUSPECT and grew
        case _K.DIED:
            return new.state is _DEAD and was in (_ALIVE, _SUSPECT) and not_less
        case _K.LEFT:
            # Again, if it came back between and we missed that.
            was_here = was in (_ALIVE, _SUSPECT, _DEAD) or (was is _LEFT and grew)
            return new.state is _LEFT and was_here and not_less
        case _K.UPDATED:  # it may come with a recovery, which was told first
            return new.state is _ALIVE and was is _ALIVE and not_less
        case _K.FORGOTTEN:
            return was in (_DEAD, _LEFT) and new.state in (_DEAD, _LEFT) and not_less


def run(schedule: Schedule, settings: SwimSettings | None = None) -> Judge:
    """Run all of it; raises `Wrong` where a promise is broken, with what is needed to run it again."""
    judge = Judge(schedule, settings)
    try:
        _run(judge)
    except Exception as error:
        error.add_note(f"{schedule!r}\nagain: run(draw({schedule.seed}))")
        raise
    return judge


def _run(judge: Judge) -> None:
    world = judge.world
    world.run(until=ROUGH_S)
    judge.wait_agreed("after the faults", CALM_S)
    judge.check_views()
    _check_updates(judge)
    _check_goodbye(judge)
    # Nobody changes its mind later, and there is nothing left to say.
    world.run(until=world.now + 30.0)
    if not judge.is_agreed():
        raise Wrong("they fell out again: " + "; ".join(judge.disagreements()))
    for name in judge.living if len(judge.living) > 1 else ():  # alone, it has nobody to tell
        if waiting := judge.swim(name).statistics().news_waiting:
            raise Wrong(f"{name} has {waiting} pieces of news that it never gets rid of")
    judge.check_views()


def _check_updates(judge: Judge) -> None:
    world, rng = judge.world, random.Random(judge.schedule.seed)
    name = rng.choice(judge.living)
    before = judge.swim(name).incarnation
    world.call(name, lambda machine, now: _swim(machine).update_meta(b"new", now))
    world.call(name, lambda machine, now: _swim(machine).broadcast(b"hello", now))
    if judge.swim(name).incarnation <= before:
        raise Wrong(f"{name} has new metadata, but not a new incarnation")
    judge.wait_agreed(f"the metadata of {name}", 90.0)
    judge.broadcasts_heard.setdefault(b"hello", set()).add(name)


def _check_goodbye(judge: Judge) -> None:
    world, rng = judge.world, random.Random(judge.schedule.seed)
    if len(judge.living) < 2:
        return
    name = rng.choice(judge.living)
    world.leave(name)
    if not world.run_until(lambda: not world.is_up(name), until=world.now + 20.0):
        raise Wrong(f"{name} never has left")
    judge.wait_agreed(f"the goodbye of {name}", 90.0)
    for other in judge.living:
        known = judge.swim(other).members.get(name)
        if known is None or known.state is not _LEFT:
            raise Wrong(f"{other} knows {known}, who left in a calm")


def _swim(machine: Machine) -> Swim:
    assert isinstance(machine, Swim)
    return machine
