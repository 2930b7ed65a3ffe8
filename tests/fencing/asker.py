"""A process that asks gates many times and tells when it asked and what came of it.

Each line it reads is a task, `[kind, where, seed, count]` in JSON.  It opens that gate, says "ready",
reads a line with the time at which all begin, and prints one JSON list of `Asked`.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

import msgspec

from quoracy.errors import StaleToken
from quoracy.fencing import Gate
from tests.fencing.gates import open_gate

__all__ = ["RESOURCES", "Asked"]

RESOURCES = ("orders", "stock")


class Asked(msgspec.Struct, frozen=True, array_like=True):
    """One question to a gate: `began` and `ended` on the machine's monotonic clock, in nanoseconds.

    highest: the one the refusal named; None if the token was admitted.
    """

    resource: str
    token: int
    began: int
    ended: int
    highest: int | None


async def ask(kind: str, where: str, seed: int, count: int) -> list[Asked]:
    rng = random.Random(seed)
    asked: list[Asked] = []
    async with open_gate(kind, where) as gate:
        say("ready")
        started = int(sys.stdin.readline())
        for _ in range(count):
            resource = rng.choice(RESOURCES)
            # Tokens follow the clock, so whoever is slow does not fall behind and everyone's are new.
            token = max(1, (time.monotonic_ns() - started) // 200_000 + rng.randint(-3, 3))
            asked.append(await ask_once(gate, resource, token))
            if asked[-1].highest is None:
                # If somebody's smaller token was written over it, this one finds the hole.
                asked.append(await ask_once(gate, resource, token - 1))
    return asked


async def ask_once(gate: Gate, resource: str, token: int) -> Asked:
    highest = None
    began = time.monotonic_ns()
    try:
        await gate.admit(resource, token)
    except StaleToken as stale:
        highest = stale.highest
    return Asked(resource, token, began, time.monotonic_ns(), highest)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    while line := sys.stdin.readline():
        kind, where, seed, count = msgspec.json.decode(line, type=tuple[str, str, int, int])
        say(msgspec.json.encode(asyncio.run(ask(kind, where, seed, count))).decode())


if __name__ == "__main__":
    main()
