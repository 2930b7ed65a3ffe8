"""Random schedules of faults, for tests that look at thousands of runs.

A schedule is bounded and ends well: no more than `down_max` members are down at once, and everything
that lasts has ended `calm_s` before the end, so that a test can ask what holds once all is calm.
The same seed gives the same schedule.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence

from quoracy.errors import InvalidRequest
from quoracy.membership.machine import Address
from quoracy.membership.simulator.faults import (
    Crash,
    Drift,
    Fault,
    Leave,
    Loss,
    OneWay,
    Partition,
    Restart,
    Slow,
    Stall,
)

__all__ = ["KINDS", "as_code", "down_at_end", "random_faults"]

# Everything but Join (who joins is the test's business) and Heal (cuts end by themselves here).
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
    down_max: so many are crashed or gone at once at most; by default less than half.
    spared: these neither crash nor leave.

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
    """Who crashed or left and was not started again.

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
        """A time that is short enough to read, before `end`."""
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
