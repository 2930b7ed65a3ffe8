"""What each process does with each recipe, again and again, and what must be true of all of it.

A trial goes on through everything: lost sessions, lost answers, servers that are gone for a while.  It
notes what it did when it is certain; `judge` looks at the notes of all processes together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import quorate
from quorate.client.holding import Held
from tests.recipes.processes.judging import exclusive, of
from tests.recipes.processes.ledger import Entry, Ledger, monotonic
from tests.recipes.processes.resource import ResourceClient

__all__ = ["TRIALS", "Scene", "Trial"]

_HOLD_S = 0.01
_PAUSE_S = 0.02


@dataclass
class Scene:
    """What a trial has to do with: its connection, the notes, the resource it writes to."""

    q: quorate.Connection
    child: str
    ledger: Ledger
    resource: ResourceClient


@dataclass(frozen=True)
class Trial:
    """One recipe: what a process does once, and how everything that was done is judged.

    progress: the event that shows that it goes on.
    """

    name: str
    step: Callable[[Scene, str], Awaitable[None]]
    judge: Callable[[Sequence[Entry], str], None]
    progress: str = "held"


async def hold(scene: Scene, trial: str, held: Held) -> None:
    """Be inside for a moment: write to the resource, and note how long it was held for certain."""
    entered = until = monotonic()
    try:
        for _ in range(2):
            admitted = await scene.resource.write(trial, held.token)
            now = monotonic()
            if held.is_held:
                until = now
                # Whoever holds it for certain, now, cannot have been refused before.
                assert admitted, f"{trial}: {held!r} is held and was refused"
            await asyncio.sleep(_HOLD_S)
            now = monotonic()
            if held.is_held:
                until = now
    finally:
        scene.ledger.note(trial, "held", token=held.token, at=entered, until=until)


def judge_exclusive(entries: Sequence[Entry], trial: str) -> None:
    held = of(entries, trial, "held")
    assert len({entry.token for entry in held}) == len(held), "a token was given twice"
    exclusive(held)


async def lock(scene: Scene, trial: str) -> None:
    async with scene.q.lock(trial) as held:
        await hold(scene, trial, held)


async def election(scene: Scene, trial: str) -> None:
    async with scene.q.election(trial).lead(scene.child) as term:
        await hold(scene, trial, term)


TRIALS: dict[str, Trial] = {
    trial.name: trial
    for trial in (
        Trial("lock", lock, judge_exclusive),
        Trial("election", election, judge_exclusive),
    )
}
