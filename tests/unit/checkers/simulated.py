"""Histories of registers that really are atomic, with as much concurrency and loss as asked for.

Clients are simulated, one operation at a time each.  An operation takes effect at one instant between
its call and its answer, so what comes out is linearizable by construction.  A lost operation has no
answer; it takes effect soon, or long after its client went on, or never.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, replace
from typing import Literal

from tests.checkers.history import Kind, Op

__all__ = ["CARRIED", "Carried", "Load", "simulate"]

Carried = Literal["store", "key", "none"]  # whose revision an answer carries
CARRIED: tuple[Carried, ...] = ("store", "key", "none")


@dataclass(frozen=True, slots=True)
class Load:
    """What the clients do."""

    clients: int = 5
    operations: int = 100
    keys: int = 1
    values: int | None = None  # how many different ones; None: every write writes a new one
    lost: float = 0.0  # the share of operations without answer
    writes: float = 0.3
    swaps: float = 0.3  # the rest reads
    deletes: float = 0.0  # of the writes
    revisions: Carried = "store"


class _Registers:
    """The atomic truth."""

    def __init__(self, load: Load) -> None:
        self._carried = load.revisions
        self._values: dict[str, bytes | None] = {}
        self._changed: dict[str, int] = {}
        self._revision = 1

    def look(self, key: str) -> bytes | None:
        return self._values.get(key)

    def apply(self, op: Op) -> Op:
        """The operation with its answer."""
        held = self.look(op.key)
        if op.kind == "read":
            op = replace(op, value=held)
        elif op.kind == "cas" and op.expected != held:
            op = replace(op, ok=False)
        elif op.value is not None or held is not None:
            self._revision += 1
            self._values[op.key], self._changed[op.key] = op.value, self._revision
        carried = {"store": self._revision, "key": self._changed.get(op.key), "none": None}
        return replace(op, revision=carried[self._carried])


def simulate(load: Load, rng: random.Random) -> list[Op]:
    """One linearizable history, in the order of the calls; all registers begin without a value."""
    registers = _Registers(load)
    ops: list[Op] = []
    # (when, tie breaker, operation or None for a client that is free, client)
    events: list[tuple[float, int, Op | None, int]] = [
        (rng.random(), client, None, client) for client in range(load.clients)
    ]
    heapq.heapify(events)
    called = 0
    while events:
        now, _, op, client = heapq.heappop(events)
        if op is not None:  # it takes effect
            applied = registers.apply(op)
            if op.done is not None:
                ops.append(applied)
        elif called < load.operations:
            called += 1
            asked = _asked(load, rng, registers, client, now, called)
            effect = now + rng.expovariate(1.0)
            answer = effect + rng.expovariate(1.0)
            if rng.random() < load.lost:
                ops.append(asked)
                effect += rng.choice((0.0, 10.0, 100.0))
                if rng.random() < 0.7:
                    heapq.heappush(events, (effect, load.clients + 2 * called, asked, client))
            else:
                asked = replace(asked, done=answer)
                heapq.heappush(events, (effect, load.clients + 2 * called, asked, client))
            free = answer + rng.expovariate(2.0)
            heapq.heappush(events, (free, load.clients + 2 * called + 1, None, client))
    ops.sort(key=lambda op: op.call)
    return ops


def _asked(
    load: Load, rng: random.Random, registers: _Registers, client: int, now: float, number: int
) -> Op:
    """What a client asks for.  Half of the compares are with what it would have read just now."""
    key = f"key-{rng.randrange(load.keys)}"
    which = rng.random()
    kind: Kind = "read"
    value = expected = None
    if which < load.writes + load.swaps:
        kind = "write" if which < load.writes else "cas"
        value = b"%d" % (number if load.values is None else rng.randrange(load.values))
        if rng.random() < load.deletes:
            value = None
    if kind == "cas":
        expected = registers.look(key)
        if rng.random() < 0.5:
            expected = b"%d" % rng.randrange(number if load.values is None else load.values)
    return Op(client, now, None, kind, key, value, expected)
