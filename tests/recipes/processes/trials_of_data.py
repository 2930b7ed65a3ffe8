"""Trials of the recipes by which processes hand things over, or know the same."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

import quoracy
from tests.recipes.processes.judging import of, once_each
from tests.recipes.processes.ledger import Entry, Ledger
from tests.recipes.processes.trials import HELD, WAIT_S, Scene, Trial

__all__ = ["TRIALS"]

_RATE, _BURST = 40.0, 5.0


# -- handing over ------------------------------------------------------------------------------


async def queue(scene: Scene, trial: str) -> None:
    items = scene.q.queue(trial, str)
    item = scene.unique()
    try:
        await items.put(item)
        scene.ledger.note(trial, "put", value=item)
    finally:
        got = await items.get(timeout=WAIT_S)
        scene.ledger.note(trial, "got", value=got)


async def finish_queue(q: quoracy.Connection, ledger: Ledger, trial: str) -> None:
    items = q.queue(trial, str)
    while (item := await items.try_get()) is not None:
        ledger.note(trial, "got", value=item)
    ledger.note(trial, "drained")


async def priority_queue(scene: Scene, trial: str) -> None:
    items = scene.q.priority_queue(trial, str)
    item = scene.unique()
    try:
        await items.put(item, priority=next(scene.numbers) % 3)
        scene.ledger.note(trial, "put", value=item)
    finally:
        got = await items.get(timeout=WAIT_S)
        scene.ledger.note(trial, "got", value=got)


async def finish_priority_queue(q: quoracy.Connection, ledger: Ledger, trial: str) -> None:
    items = q.priority_queue(trial, str)
    while (item := await items.try_get()) is not None:
        ledger.note(trial, "got", value=item)
    ledger.note(trial, "drained")


def judge_queue(entries: Sequence[Entry], trial: str, broken: int) -> None:
    got = of(entries, trial, "got")
    once_each(got)
    if of(entries, trial, "drained"):
        missing = {entry.value for entry in of(entries, trial, "put")} - {entry.value for entry in got}
        # What was taken by somebody who was killed, or whose answer was lost, is gone: once at most.
        unknown = len(of(entries, trial, "Indeterminate")) + broken
        assert len(missing) <= unknown, f"{len(missing)} items are lost, {unknown} may be"


# -- knowing the same --------------------------------------------------------------------------


async def counter(scene: Scene, trial: str) -> None:
    scene.ledger.note(trial, "added", value=str(await scene.q.counter(trial).add(1)))


async def finish_counter(q: quoracy.Connection, ledger: Ledger, trial: str) -> None:
    ledger.note(trial, "final", value=str(await q.counter(trial).get()))


async def value(scene: Scene, trial: str) -> None:
    shared = scene.q.value(trial, int, default=0)
    now = await shared.update(lambda number: number + 1)
    scene.ledger.note(trial, "added", value=str(now.value))


async def finish_value(q: quoracy.Connection, ledger: Ledger, trial: str) -> None:
    now = await q.value(trial, int, default=0).get()
    ledger.note(trial, "final", value=str(now.value))


def judge_counter(entries: Sequence[Entry], trial: str, broken: int) -> None:
    added = of(entries, trial, "added")
    once_each(added)
    for final in of(entries, trial, "final"):
        unknown = len(of(entries, trial, "Indeterminate")) + broken
        assert len(added) <= int(final.value) <= len(added) + unknown, (len(added), final, unknown)


async def once(scene: Scene, trial: str) -> None:
    number = next(scene.numbers)

    async def step() -> str:
        return scene.unique()

    result = await scene.q.once(f"{trial}/{number}", str).run(step, timeout=WAIT_S)
    scene.ledger.note(trial, "result", value=f"{number}:{result}")


def judge_once(entries: Sequence[Entry], trial: str, broken: int) -> None:
    results: dict[str, set[str]] = {}
    for entry in of(entries, trial, "result"):
        number, _, result = entry.value.partition(":")
        results.setdefault(number, set()).add(result)
    several = {number: found for number, found in results.items() if len(found) > 1}
    assert not several, f"more than one result: {several}"


async def latch(scene: Scene, trial: str) -> None:
    rounds = scene.q.counter(f"{trial}-round")
    number = await rounds.get()
    opens = scene.q.latch(f"{trial}/{number}", 2)
    await opens.set()
    scene.ledger.note(trial, "counting", value=f"{number}:{scene.child}")
    await opens.count_down(by=scene.child)
    await opens.wait(timeout=WAIT_S)
    scene.ledger.note(trial, "passed", value=str(number))
    await rounds.compare_and_set(number, number + 1)


def judge_latch(entries: Sequence[Entry], trial: str, broken: int) -> None:
    counted: dict[str, set[str]] = {}
    for entry in entries:
        if entry.trial == trial and entry.event == "counting":
            number, _, child = entry.value.partition(":")
            counted.setdefault(number, set()).add(child)
        elif entry.trial == trial and entry.event == "passed":
            assert len(counted.get(entry.value, ())) >= 2, f"opened too early: {entry}"


async def rate_limit(scene: Scene, trial: str) -> None:
    await scene.q.rate_limit(trial, rate=_RATE, burst=_BURST).take(timeout=WAIT_S)
    scene.ledger.note(trial, "took")


def judge_rate_limit(entries: Sequence[Entry], trial: str, broken: int) -> None:
    times = sorted(entry.at for entry in of(entries, trial, "took"))
    # From the first to the last: noted after they were taken, so a second is given for that.
    most = _BURST + _RATE * (times[-1] - times[0] + 1.0)
    assert len(times) <= most, f"{len(times)} in {times[-1] - times[0]:.1f} s"


async def cache(scene: Scene, trial: str) -> None:
    name, written = scene.child, scene.unique()
    async with scene.q.cache(f"{trial}/", str) as mirror:
        result = await scene.q.store.put(scene.q.key(f"{trial}/{name}"), written.encode())
        await mirror.wait_revision(result.revision, timeout=WAIT_S)
        assert mirror.get(name) == written, (mirror.get(name), written)
    scene.ledger.note(trial, "seen")


class Settings(msgspec.Struct, frozen=True):
    """Both are always set together."""

    one: str = ""
    other: str = ""


async def config(scene: Scene, trial: str) -> None:
    written = scene.unique()
    async with scene.q.config(trial, Settings) as section:
        revision = await section.set(one=written, other=written)
        await section.wait_revision(revision, timeout=WAIT_S)
        assert section.value.one == section.value.other, section.value
        assert section.value.one
    scene.ledger.note(trial, "seen")


async def group(scene: Scene, trial: str) -> None:
    workers = scene.q.group(trial)
    async with workers.join({"child": scene.child}) as membership:
        here = {member.identity for member in await workers.members()}
        if membership.is_held:
            assert scene.child in here, here
    scene.ledger.note(trial, "joined")


async def finish_group(q: quoracy.Connection, ledger: Ledger, trial: str) -> None:
    async for change in q.group(trial).watch():
        if not change.members:
            return  # those who were killed are gone, too


def judge_nothing(entries: Sequence[Entry], trial: str, broken: int) -> None:
    """What must be so was looked at in the step."""


TRIALS: dict[str, Trial] = {
    trial.name: trial
    for trial in (
        *HELD,
        Trial("queue", queue, judge_queue, finish_queue, progress="got"),
        Trial("priority_queue", priority_queue, judge_queue, finish_priority_queue, progress="got"),
        Trial("counter", counter, judge_counter, finish_counter, progress="added"),
        Trial("value", value, judge_counter, finish_value, progress="added"),
        Trial("once", once, judge_once, progress="result"),
        Trial("latch", latch, judge_latch, progress="passed"),
        Trial("rate_limit", rate_limit, judge_rate_limit, progress="took"),
        Trial("cache", cache, judge_nothing, progress="seen"),
        Trial("config", config, judge_nothing, progress="seen"),
        Trial("group", group, judge_nothing, finish_group, progress="joined"),
    )
}
