"""Faults as values, and random schedules of them, which can be printed, kept and run again.

Each fault says when it begins (`at`, true seconds) and, where it lasts, when it ends (`until`).  The
`repr` of a fault is the code that makes it, so the schedule of a run that failed can be pasted into a
test.  `World.schedule` runs them.

A random schedule is bounded: no more than `down_max` members are down at once, and everything that
lasts has ended `calm_s` before the end, so that a test can check what holds once all is calm.  The same
seed gives the same schedule.

>>> Crash("m3", at=10.0)
Crash(address='m3', at=10.0, kind='process')
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, TypeAlias

import msgspec

from quoracy.errors import InvalidRequest
from quoracy.membership.machine import Address
from quoracy.membership.simulator.network import Cut

__all__ = [
    "KINDS", "Crash", "CrashKind", "Drift", "Fault", "Heal", "Join", "Leave", "Loss", "OneWay",
    "Partition", "Restart", "Slow", "Stall", "as_code", "describe", "down_at_end", "named",
    "random_faults",
]  # fmt: skip

CrashKind: TypeAlias = Literal["process", "machine"]


class _Fault(msgspec.Struct, frozen=True):
    def __post_init__(self) -> None:
        at, until = getattr(self, "at", 0.0), getattr(self, "until", math.inf)
        if not 0 <= at <= until:
            raise InvalidRequest(f"{self!r}: give 0 <= at <= until, in seconds")


class Crash(_Fault, frozen=True):
    """A member ends without a word.

    kind "process": its machine lives and refuses streams at once.  kind "machine": nothing answers, and
    streams to it fail by timeout.
    """

    address: Address
    at: float
    kind: CrashKind = "process"


class Restart(_Fault, frozen=True):
    """A member that crashed or left starts again, as what its factory makes."""

    address: Address
    at: float


class Join(_Fault, frozen=True):
    """A member that was added with `at=math.inf` starts."""

    address: Address
    at: float


class Leave(_Fault, frozen=True):
    """A member says goodbye (`leave(now)`), and its process ends once it `has_left`."""

    address: Address
    at: float


class Partition(_Fault, frozen=True):
    """Groups that cannot reach each other.  Members in none of them form one more group."""

    groups: tuple[tuple[Address, ...], ...]
    at: float
    until: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        Cut(groups=self.groups)  # raises if a member is in two groups


class OneWay(_Fault, frozen=True):
    """Nothing gets from the senders to the receivers; the other way is open."""

    senders: tuple[Address, ...]
    receivers: tuple[Address, ...]
    at: float
    until: float = math.inf


class Heal(_Fault, frozen=True):
    """Every partition and every blocked way ends."""

    at: float


class Stall(_Fault, frozen=True):
    """A member is stopped: it handles and sends nothing; what arrives waits in a bounded buffer.

    With `stopped_s` it is stopped again and again: for that long, then it runs for `running_s`, until
    `until`.  With `timers_run` only its messages are held up, in and out, while its timers go on: this
    is the slow member of the Lifeguard paper, which suspects others whose answers it did not read.
    """

    address: Address
    at: float
    until: float
    stopped_s: float | None = None
    running_s: float = 0.0
    timers_run: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.until == math.inf:
            raise InvalidRequest(f"{self!r}: a stall ends; what never runs again is a Crash")
        if self.stopped_s is not None and not (self.stopped_s > 0 and self.running_s > 0):
            raise InvalidRequest(f"{self!r}: give stopped_s > 0 and running_s > 0")


class Slow(_Fault, frozen=True):
    """Each message costs a member `service_s` of its time.

    Of two that overlap, the one that began or ended last counts.
    """

    address: Address
    service_s: float
    at: float
    until: float = math.inf


class Loss(_Fault, frozen=True):
    """This share of all datagrams is lost: of these members, in and out, or (empty) of everyone.

    Of two that overlap and are about the same, the one that began or ended last counts.
    """

    loss: float
    at: float
    until: float = math.inf
    members: tuple[Address, ...] = ()


class Drift(_Fault, frozen=True):
    """A member's clock runs faster (0.01: by 1 %) or slower (-0.01) from now on."""

    address: Address
    drift: float
    at: float


Fault: TypeAlias = (
    Crash | Restart | Join | Leave | Partition | OneWay | Heal | Stall | Slow | Loss | Drift
)


def named(fault: Fault) -> tuple[Address, ...]:
    """The members that a fault is about.

    >>> named(OneWay(("a",), ("b",), at=1.0))
    ('a', 'b')
    """
    match fault:
        case Partition(groups):
            return tuple(address for group in groups for address in group)
        case OneWay(senders, receivers):
            return (*senders, *receivers)
        case Loss(members=members):
            return members
        case Heal():
            return ()
        case _:
            return (fault.address,)


def describe(fault: Fault) -> str:
    """What it is, in a few words.

    >>> describe(Partition((("a", "b"), ("c",)), at=1.0, until=5.0))
    'partition 2 | 1 until 5 s'
    """
    ends = getattr(fault, "until", math.inf)
    until = "" if ends == math.inf else f" until {ends:g} s"
    match fault:
        case Crash():
            return f"crash of {fault.address}" + (" (machine)" if fault.kind == "machine" else "")
        case Partition():
            sizes = [str(len(group)) for group in fault.groups]
            return f"partition {' | '.join(sizes if len(sizes) > 1 else [*sizes, 'the rest'])}{until}"
        case OneWay():
            return f"blocked: {len(fault.senders)} to {len(fault.receivers)}{until}"
        case Heal():
            return "all ways healed"
        case Stall() if fault.stopped_s is not None:
            how = "is held up" if fault.timers_run else "stops"
            return f"{fault.address} {how} {fault.stopped_s:g} s, runs {fault.running_s:g} s{until}"
        case Stall():
            return f"{fault.address} is {'held up' if fault.timers_run else 'stopped'}{until}"
        case Slow():
            return f"{fault.address} needs {fault.service_s:g} s per message{until}"
        case Loss():
            of = f" of {len(fault.members)} members" if fault.members else ""
            return f"loss of {fault.loss:.0%}{of}{until}"
        case Drift():
            return f"clock of {fault.address} drifts by {fault.drift:+.2%}"
        case _:
            return f"{type(fault).__name__.lower()} of {fault.address}"


# All but Join, which is for the test to decide, and Heal, since cuts end by themselves here.
KINDS: tuple[type[Fault], ...] = (
    Crash, Restart, Leave, Partition, OneWay, Stall, Slow, Loss, Drift,
)  # fmt: skip


def random_faults(
    seed: int,
    addresses: Sequence[Address],
    *,
    seconds: float,
    calm_s: float,
    faults_max: int = 8,
    kinds: Collection[type[Fault]] = KINDS,
    down_max: int | None = None,
    spared: Collection[Address] = (),
) -> tuple[Fault, ...]:
    """Up to `faults_max` faults among these members, in the order of their time.

    The first happens at 0 s or later, and `calm_s` before `seconds` everything that ends has ended.
    down_max: how many may be down at once; by default less than half.
    spared: members that neither crash nor leave.

    >>> random_faults(4, ["a", "b", "c"], seconds=60.0, calm_s=30.0, faults_max=1)
    (Crash(address='b', at=29.945, kind='machine'),)
    """
    if not 0 <= calm_s < seconds:
        raise InvalidRequest(
            f"calm_s ({calm_s}) must be less than seconds ({seconds}), and not negative"
        )
    if len(addresses) < 2:
        raise InvalidRequest("a schedule needs two members or more: there is nothing between fewer")
    rng = random.Random(f"{seed}/schedule")
    dice = _Dice(rng, addresses, seconds - calm_s)
    allowed = [kind for kind in KINDS if kind in kinds]  # in one order, whatever the collection is
    down_max = (len(addresses) - 1) // 2 if down_max is None else down_max
    times = sorted(dice.before(dice.calm_at) for _ in range(rng.randint(1, max(1, faults_max))))
    faults: list[Fault] = []
    up = list(addresses)
    crashed: dict[Address, float] = {}
    for at in times:
        may_go = [address for address in up if address not in spared]
        down_count = len(addresses) - len(up)
        possible = [
            kind
            for kind in allowed
            if not (kind is Restart and not crashed)
            and not (kind in (Crash, Leave) and (not may_go or down_count >= down_max))
        ]
        if not possible:
            continue
        fault = dice.fault(rng.choice(possible), at, up, may_go, list(crashed))
        faults.append(fault)
        match fault:
            case Crash(address):
                up.remove(address)
                crashed[address] = at
            case Leave(address):
                up.remove(address)
            case Restart(address):
                del crashed[address]
                up.append(address)
            case _:
                pass
    return tuple(faults)


def down_at_end(faults: Iterable[Fault]) -> frozenset[Address]:
    """The members that crashed or left and were not started again.

    >>> sorted(down_at_end([Crash("a", 1.0), Crash("b", 2.0), Restart("a", 3.0)]))
    ['b']
    """
    down: set[Address] = set()
    for fault in sorted(faults, key=lambda fault: fault.at):
        match fault:
            case Crash(address) | Leave(address):
                down.add(address)
            case Restart(address):
                down.discard(address)
            case _:
                pass
    return frozenset(down)


def as_code(faults: Iterable[Fault]) -> str:
    """The schedule as Python that makes it, one fault on each line.

    >>> print(as_code([Crash("a", 1.0), Restart("a", 2.0)]))
    [
        Crash(address='a', at=1.0, kind='process'),
        Restart(address='a', at=2.0),
    ]
    """
    # An infinite `until` would print as `inf`, which is no name in Python; it is the default anyway.
    return "\n".join(["[", *(f"    {fault!r},".replace(", until=inf", "") for fault in faults), "]"])


class _Dice:
    """Draws one fault at a time."""

    def __init__(self, rng: random.Random, addresses: Sequence[Address], calm_at: float) -> None:
        self._rng, self._all, self.calm_at = rng, addresses, calm_at

    def before(self, end: float, start: float = 0.0) -> float:
        """A time before `end`, in whole milliseconds."""
        return max(start, int((start + self._rng.random() * (end - start)) * 1_000) / 1_000)

    def fault(
        self,
        kind: type[Fault],
        at: float,
        up: Sequence[Address],
        may_go: Sequence[Address],
        crashed: Sequence[Address],
    ) -> Fault:
        rng = self._rng
        until = self.before(self.calm_at, at)
        someone = rng.choice(up)
        if kind is Crash:
            return Crash(rng.choice(may_go), at, rng.choice(("process", "machine")))
        if kind is Restart:
            return Restart(rng.choice(crashed), at)
        if kind is Leave:
            return Leave(rng.choice(may_go), at)
        if kind is Partition:
            return Partition((self._some(),), at, until)
        if kind is OneWay:
            return OneWay(self._some(), self._some(), at, until)
        if kind is Stall and rng.random() < 0.5:
            return Stall(someone, at, until, timers_run=rng.random() < 0.3)
        if kind is Stall:
            stopped_s, running_s = rng.choice((0.5, 2.0, 8.0)), rng.choice((0.01, 0.1, 1.0))
            return Stall(someone, at, until, stopped_s, running_s, timers_run=rng.random() < 0.5)
        if kind is Slow:
            return Slow(someone, rng.choice((0.001, 0.01, 0.1)), at, until)
        if kind is Loss:
            members = rng.choice(((), self._some()))
            return Loss(rng.choice((0.05, 0.2, 0.5, 1.0)), at, until, members)
        assert kind is Drift
        return Drift(someone, round(rng.uniform(-0.01, 0.01), 4), at)

    def _some(self) -> tuple[Address, ...]:
        """At least one, but not all."""
        return tuple(sorted(self._rng.sample(self._all, self._rng.randint(1, len(self._all) - 1))))
