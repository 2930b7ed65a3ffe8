"""Clusters of SWIM members in a simulated world, and a record of how members saw each other over time.

`swim_cluster(50, seed=7)` begins as a settled cluster in which all members know each other.  With
`converged=False` the members join one after the other.  The changes that each member reports are kept
as `Change`s with true time, so every view at every time can be looked up afterwards.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from quoracy.errors import InvalidRequest
from quoracy.membership.machine import Address, Effect, Machine
from quoracy.membership.model import Member, MemberChange, MemberChangeKind, MemberState
from quoracy.membership.settings import SwimSettings
from quoracy.membership.simulator.engine import Resume
from quoracy.membership.simulator.faults import Fault
from quoracy.membership.simulator.network import Network
from quoracy.membership.simulator.world import World
from quoracy.membership.swim.machine import Swim
from quoracy.membership.swim.member_table import MemberTable

__all__ = ["Change", "FaultSeen", "Life", "SwimCluster", "swim_cluster"]

_SEEDS = 3


class Change(msgspec.Struct, frozen=True, gc=False):
    """A change of the observer's view of the subject at a true time; state None: it was forgotten."""

    time: float
    observer: str
    subject: str
    kind: MemberChangeKind
    state: MemberState | None
    incarnation: int


class FaultSeen(msgspec.Struct, frozen=True):
    """A fault, and the true time when it began."""

    time: float
    fault: Fault


class Life(msgspec.Struct, frozen=True):
    """At this true time the process of a member began, or ended."""

    time: float
    name: str
    begins: bool


class SwimCluster:
    """SWIM members in a world; the name of each is its address, too.

    changes: the reported changes, oldest first, at most `changes_max`; `changes_lost` counts the rest.
    faults, lives: the faults, and when processes began or ended, oldest first.

    >>> cluster = swim_cluster(5, seed=1)
    >>> cluster.world.crash("m3", at=1.0)
    >>> cluster.run(until=30.0)
    >>> cluster.states_of("m3")
    {'m0': 'DEAD', 'm1': 'DEAD', 'm2': 'DEAD', 'm4': 'DEAD'}
    """

    def __init__(self, world: World, settings: SwimSettings, *, changes_max: int = 2_000_000) -> None:
        self.world, self.settings = world, settings
        self.changes: list[Change] = []
        self.changes_lost = 0
        self.faults: list[FaultSeen] = []
        self.lives: list[Life] = []
        self.names: tuple[str, ...] = ()
        self.known_at_first: tuple[str, ...] = ()  # to all of them, from the start
        self.also_on_event: Callable[[float, Address, object], None] | None = None
        self._changes_max = changes_max
        world.on_event = self._event
        world.on_fault = lambda time, fault: self.faults.append(FaultSeen(time, fault))
        world.on_life = lambda time, name, begins: self.lives.append(Life(time, name, begins))

    def __repr__(self) -> str:
        return f"SwimCluster({self.world!r})"

    def fill(self, names: Sequence[str], *, converged: bool, join_every_s: float) -> None:
        """Put the members into the world."""
        if self.names:
            raise InvalidRequest("this cluster has its members: begin another with swim_cluster()")
        self.names = tuple(names)
        table = MemberTable("")
        if converged:
            self.known_at_first = self.names
            table = MemberTable("", (Member(name, name, 1) for name in names))
        for number, name in enumerate(names):
            swim = self._make(name, table)(self.world.rng(name))
            at = 0.0 if converged else number * join_every_s
            again = self._make(name, MemberTable(""))
            # The first of those that join one by one has no seed.
            then = self._join(name, swim if converged or number == 0 else None)
            self.world.add(name, swim, at=at, factory=again, then=then)

    def _make(self, name: str, table: MemberTable) -> Callable[[random.Random], Swim]:
        return lambda rng: Swim(name, name, rng=rng, settings=self.settings, members=table)

    def _join(self, name: str, knows: Swim | None) -> Callable[[Machine, float], list[Effect]]:
        """The action of a member at its start: it joins, unless its machine is `knows`."""
        seeds = [seed for seed in self.names[: _SEEDS + 1] if seed != name][:_SEEDS]

        def join(machine: Machine, now: float) -> list[Effect]:
            assert isinstance(machine, Swim)
            return [] if machine is knows else machine.join(seeds, now)

        return join

    # -- running -----------------------------------------------------------------------------------

    def schedule(self, faults: Iterable[Fault]) -> None:
        """Let these happen, each at its time."""
        self.world.schedule(faults)

    def run(self, until: float) -> None:
        """Let everything happen that happens up to this true time."""
        self.world.run(until)

    def _event(self, time: float, address: Address, event: object) -> None:
        if isinstance(event, MemberChange):
            if len(self.changes) < self._changes_max:
                member, kind = event.member, event.kind
                state = None if kind is MemberChangeKind.FORGOTTEN else member.state
                self.changes.append(Change(time, address, member.name, kind, state, member.incarnation))
            else:
                self.changes_lost += 1
        if self.also_on_event is not None:
            self.also_on_event(time, address, event)

    # -- views -------------------------------------------------------------------------------------

    def swim(self, name: str) -> Swim:
        """The machine of a member."""
        machine = self.world.machine(name)
        assert isinstance(machine, Swim)
        return machine

    @property
    def up(self) -> Iterator[Swim]:
        """The machines of the members that are up."""
        return (self.swim(name) for name in self.world.up)

    def states_of(self, subject: str) -> dict[str, str]:
        """How the members that are up see one member now; those that do not know it are left out."""
        views = ((swim.name, swim.members.get(subject)) for swim in self.up if swim.name != subject)
        return {observer: member.state.name for observer, member in views if member is not None}

    def sees_at(self, observer: str, subject: str, time: float) -> MemberState | None:
        """How the observer saw the subject at a time; None if it did not know it, or was down."""
        lives = [life for life in self.lives if life.name == observer and life.time <= time]
        if not lives or not lives[-1].begins:
            return None
        is_first_life = len(lives) == 1
        known = subject in self.known_at_first and observer in self.known_at_first
        state = MemberState.ALIVE if known and is_first_life else None
        for change in self.changes:
            if change.time > time:
                break
            if change.observer == observer and change.subject == subject:
                state = change.state if change.time >= lives[-1].time else state
        return state

    def is_settled(self) -> bool:
        """Whether all that are up see exactly the members that are up as alive, and none as suspect."""
        up = set(self.world.up)
        return all(
            {name for name, member in swim.members.items() if member.state is MemberState.ALIVE} == up
            and all(member.state is not MemberState.SUSPECT for member in swim.members.values())
            for swim in self.up
        )


def swim_cluster(
    count: int,
    seed: int,
    *,
    settings: SwimSettings | None = None,
    network: Network | None = None,
    converged: bool = True,
    join_every_s: float = 0.1,
    names: Sequence[str] | None = None,
    resume: Resume = "timers",
    changes_max: int = 2_000_000,
) -> SwimCluster:
    """A cluster of `count` SWIM members.

    converged: they know each other from the start; otherwise one joins every `join_every_s`, and asks
    the first few.  names: what they are called, by default m0, m1 and so on; names are addresses here.

    >>> joining = swim_cluster(4, seed=1, converged=False)
    >>> joining.run(until=5.0)
    >>> joining.is_settled()
    True
    """
    if count < 1:
        raise InvalidRequest(f"a cluster has one member or more, not {count}")
    digits = len(str(count - 1))
    chosen = [f"m{number:0{digits}}" for number in range(count)] if names is None else names
    if len(set(chosen)) != count:
        raise InvalidRequest(f"{count} members need {count} different names, not {len(set(chosen))}")
    world = World(seed, network=network, resume=resume)
    cluster = SwimCluster(world, settings or SwimSettings(), changes_max=changes_max)
    cluster.fill(chosen, converged=converged, join_every_s=join_every_s)
    return cluster
