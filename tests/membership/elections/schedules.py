"""Elections in the simulator: any number of peers, a while of random faults, then calm.

Everything about a run follows from its seed: how many peers there are, how their clocks run, what the
network is like and what goes wrong.  `Run.describe()` is what a failing test prints; QUORACY_SEED=n
runs that schedule alone.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from typing import TypeAlias

from quoracy.membership.elections import Elector, LeaderElected, LeaderLost
from quoracy.membership.machine import Address, Effect, Machine, Tell
from quoracy.membership.simulator import (
    Crash,
    Fault,
    Heal,
    Loss,
    Network,
    OneWay,
    Partition,
    Restart,
    Slow,
    Stall,
    Uniform,
    World,
)

__all__ = ["CHAOS_S", "Make", "Run", "Watched", "peer_names", "random_faults", "seeds"]

CHAOS_S = 20.0
_DRIFT_MAX = 0.01

# Makes the elector of a peer for each of its lives.
Make: TypeAlias = Callable[["Run", str, random.Random], Elector]
# Is shown what a call returned; gives back what is carried out.
Look: TypeAlias = Callable[[str, list[Effect]], list[Effect]]


class Watched:
    """A machine that is looked at after every call, before its effects are carried out."""

    def __init__(self, elector: Elector, look: Look) -> None:
        self.elector = elector
        self.is_dead = False  # its process ended in the middle of a call
        self._look = look

    @property
    def next_due(self) -> float:
        return math.inf if self.is_dead else self.elector.next_due

    @next_due.setter
    def next_due(self, due: float) -> None:
        raise AssertionError(f"a driver sets next_due to {due}")

    def start(self, now: float) -> list[Effect]:
        return [] if self.is_dead else self._look(self.elector.name, self.elector.start(now))

    def tick(self, now: float) -> list[Effect]:
        return [] if self.is_dead else self._look(self.elector.name, self.elector.tick(now))

    def receive(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        return (
            []
            if self.is_dead
            else self._look(self.elector.name, self.elector.receive(data, sender, now))
        )

    def receive_stream(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        return (
            []
            if self.is_dead
            else self._look(self.elector.name, self.elector.receive_stream(data, sender, now))
        )

    def unreachable(self, to: Address, now: float) -> list[Effect]:
        return [] if self.is_dead else self._look(self.elector.name, self.elector.unreachable(to, now))

    def suspect(self, peer: str, now: float) -> list[Effect]:
        return [] if self.is_dead else self._look(self.elector.name, self.elector.suspect(peer, now))


def seeds(chunk: int, chunk_size: int) -> range:
    """The seeds of one test; QUORACY_SEED=n runs only that one."""
    only = os.environ.get("QUORACY_SEED")
    if only is not None:
        return range(int(only), int(only) + 1)
    return range(chunk * chunk_size, (chunk + 1) * chunk_size)


def peer_names(count: int) -> list[str]:
    return [f"p{number}" for number in range(count)]


def random_faults(rng: random.Random, names: list[str]) -> list[Fault]:
    """What goes wrong until `CHAOS_S`; then nothing does, but some peers may be gone for good."""
    faults: list[Fault] = []
    for _ in range(rng.choice([1, 3, 6, 12, 24])):
        at = rng.uniform(0.0, CHAOS_S * 0.9)
        # Many faults last to the end, so that what they leave behind is there when the calm begins.
        until = CHAOS_S if rng.random() < 0.3 else rng.uniform(at, min(CHAOS_S, at + 8.0))
        one = rng.choice(names)
        some = tuple(rng.sample(names, rng.randint(1, len(names))))
        match rng.randrange(7):
            case 0 | 1:
                faults.append(Crash(one, at, rng.choice(["process", "machine"])))
                if rng.random() < 0.7:
                    soon = min(CHAOS_S, at + rng.uniform(0.01, 0.6))
                    faults.append(Restart(one, rng.choice([soon, until])))
            case 2:
                faults.append(Partition((some,), at, until))
            case 3:
                others = tuple(name for name in names if name not in some) or (one,)
                faults.append(OneWay(some, others, at, until))
            case 4:
                faults.append(Stall(one, at, until))
            case 5:
                faults.append(Loss(rng.uniform(0.05, 0.9), at, until))
            case _:
                faults.append(Slow(one, rng.uniform(0.001, 0.2), at, until))
    return [*faults, Heal(CHAOS_S), Loss(0.0, CHAOS_S)]


class Run:
    """One schedule.  Checks what holds for every elector; `on_look` may check more and cut effects.

    leaders_of_term: who led in each term, as any observer was told.
    """

    def __init__(
        self,
        seed: int,
        make: Make,
        *,
        count: int | None = None,
        latencies_s: tuple[float, ...] = (0.002, 0.01, 0.03),
        faults: list[Fault] | None = None,
        on_look: Callable[[Run, str, list[Effect]], list[Effect]] | None = None,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(f"elections {seed}")
        self.names = peer_names(count or self.rng.choice([1, 2, 3, 3, 4, 5, 5, 7]))
        self.faults = random_faults(self.rng, self.names) if faults is None else faults
        self.priorities = {name: self.rng.choice([0, 0, 0, 1, 7]) for name in self.names}
        self.ring = self.rng.sample(self.names, len(self.names))
        self.leaders_of_term: dict[int, set[str]] = {}
        self.events: list[tuple[float, str, LeaderElected | LeaderLost]] = []
        self._make = make
        self._on_look = on_look
        self._leader_of: dict[str, LeaderElected | None] = {}
        self._term_of: dict[str, int] = {}
        network = Network(
            latency=Uniform(0.0002, self.rng.choice(latencies_s)),
            duplicate=self.rng.choice([0.0, 0.1]),
            reorder=self.rng.choice([0.0, 0.2]),
        )
        self.world = World(seed, network=network, resume=self.rng.choice(["timers", "packets"]))
        self.clocks: dict[str, tuple[float, float]] = {}
        for name in self.names:
            drift, offset = self.rng.uniform(-_DRIFT_MAX, _DRIFT_MAX), self.rng.uniform(-50.0, 50.0)
            self.clocks[name] = (drift, offset)
            self.world.add(
                name,
                self._new(name, self.world.rng(name)),
                at=self.rng.choice([0.0, self.rng.uniform(0.0, 3.0)]),
                drift=drift,
                offset=offset,
                factory=lambda rng, name=name: self._new(name, rng),  # type: ignore[misc]
            )
        self.world.schedule(self.faults)
        if len(self.names) > 1 and faults is None:
            for _ in range(self.rng.choice([0, 0, 2, 6])):
                suspicious, suspect = self.rng.sample(self.names, 2)
                self.suspect(suspicious, suspect, at=self.rng.uniform(0.0, CHAOS_S))
        if faults is None:
            for _ in range(self.rng.choice([0, 1, 5])):
                self.world.at(self.rng.uniform(3.0, CHAOS_S - 4.0), self._crash_a_leader)

    def suspect(self, suspicious: str, suspect: str, *, at: float) -> None:
        """Let a failure detector accuse a peer, rightly or not."""

        def tell(machine: Machine, now: float) -> list[Effect]:
            assert isinstance(machine, Watched)
            return machine.suspect(suspect, now)

        self.world.call(suspicious, tell, at=at)

    def die(self, name: str, *, again_after_s: float) -> None:
        """End a process in the middle of what it does, and start it again a little later."""
        machine = self.world.machine(name)
        assert isinstance(machine, Watched)
        machine.is_dead = True
        self.world.at(self.world.now, lambda: self.world.crash(name))
        self.world.restart(name, at=self.world.now + again_after_s)

    def _crash_a_leader(self) -> None:
        leaders = [elector.name for elector in self.live if elector.is_leader]
        if leaders:
            one = self.rng.choice(leaders)
            self.world.crash(one)
            self.world.restart(one, at=self.world.now + self.rng.uniform(0.01, 4.0))

    def elector(self, name: str) -> Elector:
        machine = self.world.machine(name)
        assert isinstance(machine, Watched)
        return machine.elector

    @property
    def live(self) -> list[Elector]:
        return [self.elector(name) for name in self.world.up]

    def local(self, name: str) -> float:
        """What the clock of a peer shows."""
        drift, offset = self.clocks[name]
        return offset + (1 + drift) * self.world.now

    def describe(self) -> str:
        last = "\n".join(f"  {at:8.3f} {who}: {event}" for at, who, event in self.events[-30:])
        return f"QUORACY_SEED={self.seed}: {len(self.names)} peers, faults: {self.faults}\n{last}"

    def _new(self, name: str, rng: random.Random) -> Machine:
        self._leader_of[name] = None
        self._term_of[name] = 0
        return Watched(self._make(self, name, rng), self._look)

    def _look(self, name: str, effects: list[Effect]) -> list[Effect]:
        if self._on_look is not None:
            effects = self._on_look(self, name, effects)
        for effect in effects:
            if isinstance(effect, Tell) and isinstance(effect.event, LeaderElected | LeaderLost):
                self._note(name, effect.event)
        return effects

    def _note(self, name: str, event: LeaderElected | LeaderLost) -> None:
        self.events.append((self.world.now, name, event))
        known = self._leader_of[name]
        if isinstance(event, LeaderElected):
            assert known is None, f"{name} was told of two leaders; {self.describe()}"
            assert event.term >= self._term_of[name], f"the term of {name} fell; {self.describe()}"
            self._leader_of[name], self._term_of[name] = event, event.term
            self.leaders_of_term.setdefault(event.term, set()).add(event.leader)
        else:
            assert known == LeaderElected(event.leader, event.term), (name, event, self.describe())
            self._leader_of[name] = None
