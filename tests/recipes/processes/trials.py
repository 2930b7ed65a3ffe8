"""What each process does with each recipe, again and again, and what must be true of all of it.

A trial goes on through everything: lost sessions, lost answers, servers that are gone for a while.  It
notes what it did when it is certain; `judge` looks at the notes of all processes together.  Here are
the recipes by which something is held; `trials_of_data` has the others.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import quoracy
from quoracy.client.held import Held
from tests.recipes.processes.judging import at_most, exclusive, of
from tests.recipes.processes.ledger import Entry, Ledger, monotonic
from tests.recipes.processes.resource import ResourceClient

__all__ = ["HELD", "Scene", "Trial", "hold"]

_HOLD_S = 0.01
# How long a process waits for others that may have been killed.
WAIT_S = 4.0


@dataclass
class Scene:
    """What a trial has to do with: its connection, the notes, the resource it writes to.

    number: counts up; a value that is used once has it in it.
    """

    q: quoracy.Connection
    child: str
    ledger: Ledger
    resource: ResourceClient
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def unique(self) -> str:
        return f"{self.child}-{monotonic():.6f}-{next(self.numbers)}"


async def _nothing_more(q: quoracy.Connection, ledger: Ledger, trial: str) -> None:
    """Most trials leave nothing to look at."""


@dataclass(frozen=True)
class Trial:
    """One recipe: what a process does once, and how everything that was done is judged.

    judge: gets all notes, and how many processes were killed or stopped in the middle of something.
    finish: looks at what is left in the store when all processes have ended.
    progress: the event that shows that it goes on.
    """

    name: str
    step: Callable[[Scene, str], Awaitable[None]]
    judge: Callable[[Sequence[Entry], str, int], None]
    finish: Callable[[quoracy.Connection, Ledger, str], Awaitable[None]] = _nothing_more
    progress: str = "held"


async def hold(scene: Scene, trial: str, held: Held, event: str = "held", value: str = "") -> None:
    """Be inside for a moment: write to the resource, and note how long it was held for certain."""
    entered = until = monotonic()
    try:
        for _ in range(2):
            admitted = await scene.resource.write(trial, held.token)
            now = monotonic()
            if held.is_held:
                until = now
                # Whoever holds it for certain, now, cannot have been refused before.
                assert admitted or event != "held", f"{trial}: {held!r} is held and was refused"
            await asyncio.sleep(_HOLD_S)
            now = monotonic()
            if held.is_held:
                until = now
    finally:
        scene.ledger.note(trial, event, token=held.token, value=value, at=entered, until=until)


def judge_exclusive(entries: Sequence[Entry], trial: str, broken: int) -> None:
    held = of(entries, trial, "held")
    assert len({entry.token for entry in held}) == len(held), "a token was given twice"
    exclusive(held)


# -- one at a time -----------------------------------------------------------------------------


async def lock(scene: Scene, trial: str) -> None:
    async with scene.q.lock(trial) as held:
        await hold(scene, trial, held)


async def election(scene: Scene, trial: str) -> None:
    async with scene.q.election(trial).lead(scene.child) as term:
        await hold(scene, trial, term)


async def singleton(scene: Scene, trial: str) -> None:
    async def work(term: quoracy.Term) -> None:
        await hold(scene, trial, term)

    await scene.q.singleton(trial).run(work, timeout=WAIT_S)


# -- some at a time ----------------------------------------------------------------------------


async def rwlock(scene: Scene, trial: str) -> None:
    both = scene.q.rwlock(trial)
    for _ in range(2):
        async with both.read() as reading:
            await hold(scene, trial, reading, "read")
    async with both.write() as writing:
        await hold(scene, trial, writing)


def judge_rwlock(entries: Sequence[Entry], trial: str, broken: int) -> None:
    judge_exclusive(entries, trial, broken)
    reads = of(entries, trial, "read")
    assert reads
    for write in of(entries, trial, "held"):
        for read in reads:
            apart = read.until <= write.at or write.until <= read.at
            assert apart, f"read and written at once: {read} and {write}"


async def semaphore(scene: Scene, trial: str) -> None:
    async with scene.q.semaphore(trial, 2) as share:
        await hold(scene, trial, share, "share")


def judge_semaphore(entries: Sequence[Entry], trial: str, broken: int) -> None:
    shares = of(entries, trial, "share")
    assert len({entry.token for entry in shares}) == len(shares), "a token was given twice"
    at_most(shares, 2)


async def work_queue(scene: Scene, trial: str) -> None:
    work = scene.q.work_queue(trial, str, attempts_max=None)
    item = scene.unique()
    try:
        await work.put(item)
        scene.ledger.note(trial, "put", value=item)
    finally:
        async with work.claim(timeout=WAIT_S) as job:
            await hold(scene, trial, job, "claimed", job.item)
        scene.ledger.note(trial, "acked", value=job.item)


async def finish_work_queue(q: quoracy.Connection, ledger: Ledger, trial: str) -> None:
    work = q.work_queue(trial, str, attempts_max=None)
    # What the killed had claimed is back when their sessions have ended.
    while (stats := await work.stats()).waiting or stats.claimed:
        async with work.claim(timeout=10 * WAIT_S) as job:
            ledger.note(trial, "drained", value=job.item)
    ledger.note(trial, "end")


def judge_work_queue(entries: Sequence[Entry], trial: str, broken: int) -> None:
    claimed = of(entries, trial, "claimed")
    for item in {entry.value for entry in claimed}:
        exclusive([entry for entry in claimed if entry.value == item])
    acked = [entry.value for entry in of(entries, trial, "acked")]
    assert len(acked) == len(set(acked)), "acknowledged twice"
    if of(entries, trial, "end"):
        put = {entry.value for entry in of(entries, trial, "put")}
        done = {*acked, *(entry.value for entry in of(entries, trial, "drained"))}
        # An acknowledgement whose answer was lost may have removed the job all the same.
        unknown = len(of(entries, trial, "Indeterminate")) + broken
        missing = put - done
        assert missing <= {entry.value for entry in claimed}, "lost without ever being claimed"
        assert len(missing) <= unknown, f"{len(missing)} jobs are lost"


# -- waiting for each other --------------------------------------------------------------------


async def barrier(scene: Scene, trial: str) -> None:
    """Whoever gets the lock raises it and lowers it again; the others wait."""
    here = scene.q.barrier(trial)
    toggling = await scene.q.lock(f"{trial}-toggle").try_acquire()
    if toggling is None:
        began = monotonic()
        await here.wait(timeout=WAIT_S)
        scene.ledger.note(trial, "passed", at=began, until=monotonic())
        return
    try:
        if await here.raise_():
            raised = until = monotonic()
            await asyncio.sleep(_HOLD_S)
            now = monotonic()
            if toggling.is_held:
                until = now
            scene.ledger.note(trial, "raised", at=raised, until=until)
        await here.lower()
    finally:
        await toggling.leave()


def judge_barrier(entries: Sequence[Entry], trial: str, broken: int) -> None:
    for raised in of(entries, trial, "raised"):
        for passed in of(entries, trial, "passed"):
            through = raised.at < passed.at and passed.until < raised.until
            assert not through, f"passed a barrier that was raised: {passed}, {raised}"


async def double_barrier(scene: Scene, trial: str) -> None:
    inside = scene.q.double_barrier(trial, 2).inside(timeout=WAIT_S, leave_timeout=WAIT_S)
    async with inside as entered:
        began = monotonic()
        await asyncio.sleep(_HOLD_S)
        scene.ledger.note(trial, "inside", value=str(entered.round), at=began, until=monotonic())


def judge_double_barrier(entries: Sequence[Entry], trial: str, broken: int) -> None:
    for number, count in Counter(entry.value for entry in of(entries, trial, "inside")).items():
        assert count <= 2, f"{count} were inside in round {number}, 2 may"


HELD = (
    Trial("lock", lock, judge_exclusive),
    Trial("election", election, judge_exclusive),
    Trial("singleton", singleton, judge_exclusive),
    Trial("rwlock", rwlock, judge_rwlock),
    Trial("semaphore", semaphore, judge_semaphore, progress="share"),
    Trial("work_queue", work_queue, judge_work_queue, finish_work_queue, progress="acked"),
    Trial("barrier", barrier, judge_barrier, progress="passed"),
    Trial("double_barrier", double_barrier, judge_double_barrier, progress="inside"),
)
