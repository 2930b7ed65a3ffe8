"""Which faults, on which hosts, when: a plan that a seed determines.

A plan repeats exactly; what it meets does not, since real processes run.  Hosts are named, or by what
they are when the time comes: "leader", "follower".
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["KINDS", "PUTS_OFF_LAPSES", "Fault", "Plan", "make_plan"]

# What can be done to a cell, and how long each takes in seconds.  Sessions live 2 to 4 seconds without
# a sign of life: a stop outlasts them.
KINDS: dict[str, tuple[float, float]] = {
    "kill-node": (0.5, 3.0),
    "kill-member": (0.5, 3.0),
    "kill-host": (0.5, 4.0),
    "kill-majority": (1.0, 3.0),
    "stop-node": (4.5, 6.0),
    "stop-member": (4.5, 6.0),
    "stop-host": (4.5, 6.0),
    "stop-holder": (2.5, 4.0),
    "cut-node": (2.0, 5.0),
    "cut-member": (2.0, 5.0),
    "cut-host": (2.0, 5.0),
    "cut-clients": (2.0, 5.0),
    "bridge": (2.0, 5.0),
    "one-way-in": (2.0, 5.0),
    "one-way-out": (2.0, 5.0),
    "loss": (3.0, 5.0),
    "slow": (3.0, 5.0),
    "rolling-restart": (0.0, 0.0),
    "compact": (0.0, 0.0),
    "move-leader": (0.0, 0.0),
    "clock-step": (1.0, 3.0),
}
# Those that leave etcd without a leader for a while, or hold up a sign of life on its way (TCP brings
# it when the wire is whole again): a session may live longer then.
PUTS_OFF_LAPSES = frozenset(KINDS) - {"kill-node", "clock-step", "stop-holder"}
# Without nodes there is nothing of these to break.
_OF_NODES = {"kill-node", "stop-node", "cut-node", "clock-step", "stop-holder"}
_ROLES = ("leader", "follower")
_PAUSE_S = (0.3, 1.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong, from `at_s` after the beginning, for `for_s`."""

    kind: str
    host: str  # a name, or what it is at that time
    at_s: float
    for_s: float
    amount: float = 0.0  # how much, for those that have degrees

    def __str__(self) -> str:
        return f"{self.kind} {self.host} {self.at_s:.1f}+{self.for_s:.1f}s"


@dataclass(frozen=True, slots=True)
class Plan:
    """The faults of one schedule, in the order they begin, and how long it goes on after them."""

    seed: int
    faults: tuple[Fault, ...]
    after_s: float = 1.0

    @property
    def needs_clocks(self) -> bool:
        return any(fault.kind == "clock-step" for fault in self.faults)

    @property
    def kills_members(self) -> bool:
        return any(f.kind in ("kill-member", "kill-host", "kill-majority") for f in self.faults)

    def __str__(self) -> str:
        return "; ".join(map(str, self.faults))


def make_plan(
    seed: int,
    hosts: Sequence[str],
    *,
    kinds: Sequence[str] | None = None,
    faults_count: int | None = None,
    plain: bool = False,
    lingers: bool = True,
) -> Plan:
    """One to three faults; the second and third may begin before the one before is over.

    `lingers`: now and then it goes on until every session that fell silent must have lapsed.
    """
    rng = random.Random(f"plan {seed}")
    choices = [kind for kind in kinds or KINDS if not (plain and kind in _OF_NODES)]
    count = rng.choice((1, 1, 2, 2, 3)) if faults_count is None else faults_count
    at_s, faults = 1.0, []
    taken: set[str] = set()
    for _ in range(count):
        kind = rng.choice(choices)
        for_s = rng.uniform(*KINDS[kind])
        host = rng.choice(_ROLES) if rng.random() < 0.4 else rng.choice(list(hosts))
        faults.append(Fault(kind, host, at_s, for_s, rng.random()))
        overlaps = rng.random() < 0.25 and kind not in taken
        taken.add(kind)
        at_s += for_s * rng.uniform(0.2, 0.8) if overlaps else for_s + rng.uniform(*_PAUSE_S)
    return Plan(seed, tuple(faults), after_s=8.0 if lingers and rng.random() < 0.15 else 1.0)
