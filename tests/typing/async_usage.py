"""What an asynchronous program looks like to a type checker: every result has its type.

Checked by `tests/typing/test_typing.py`, never run.
"""

# mypy: disallow-any-expr

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import assert_type

import msgspec

import quoracy


class Job(msgspec.Struct):
    """What a queue holds."""

    n: int


class Settings(msgspec.Struct, frozen=True):
    """What a config holds."""

    workers: int = 4


def show(state: quoracy.SessionState) -> None:
    """A listener."""


async def show_change(change: quoracy.ConfigChange[Settings]) -> None:
    """A callback."""


async def connections() -> None:
    async with quoracy.connect("quoracy://localhost", session_ttl=5, identity="me") as q:
        assert_type(q, quoracy.Connection)
        assert_type(q.state, quoracy.SessionState)
        assert_type(q.on_state(show), Callable[[], None])
        await q.wait_state(quoracy.SessionState.CONNECTED, timeout=5)
        async with quoracy.connect(q.store) as second:
            assert_type(second.identity, str)


async def locks(q: quoracy.Connection) -> None:
    lock = q.lock("x", reentrant=True, hold_max=60, cancel_on_loss=False)
    async with lock as held:
        assert_type(held, quoracy.Held)
        assert_type(held.token, int)
        assert_type(held.is_held, bool)
        assert_type(await held.txn(quoracy.Put(b"k", b"v")), quoracy.TxnResult)
    assert_type(await lock.acquire(timeout=1), quoracy.Held)
    assert_type(await lock.try_acquire(), quoracy.Held | None)
    assert_type(await lock.contenders(), tuple[quoracy.Contender, ...])
    async with q.rwlock("rw").write() as writing:
        assert_type(writing, quoracy.WriteHeld)
    async with q.semaphore("s", 3).hold(weight=2) as share:
        assert_type(share.weight, int)


async def elections(q: quoracy.Connection) -> None:
    election = q.election("e")
    async with election.lead("me") as term:
        assert_type(term, quoracy.Term)
    assert_type(await election.leader(), quoracy.Leader | None)
    assert_type(election.observe(), AsyncGenerator[quoracy.Leader, None])


async def queues(q: quoracy.Connection) -> None:
    assert_type(q.queue("x"), quoracy.Queue[bytes])
    jobs = q.queue("jobs", Job)
    assert_type(await jobs.get(timeout=1), Job)
    async for job in jobs:
        assert_type(job, Job)
    assert_type(await q.priority_queue("p", Job).get(), Job)
    async with q.work_queue("w", Job).claim(timeout=1) as claimed:
        assert_type(claimed.item, Job)


async def values(q: quoracy.Connection) -> None:
    assert_type(q.value("x"), quoracy.Value[bytes])
    assert_type(await q.value("n", int).get(), quoracy.Versioned[int] | None)
    counted = q.value("n", int, default=0)
    assert_type(counted, quoracy.DefaultedValue[int])
    assert_type((await counted.update(lambda n: n + 1)).value, int)
    assert_type(await q.counter("c").add(1), int)
    async with q.config("app", Settings) as config:
        assert_type(config.value, Settings)
        assert_type(config.on_change(show_change), Callable[[], None])
    async with q.cache("services", Job) as cache:
        assert_type(cache["a"], Job)
        assert_type(cache.get("a", 0), Job | int)


async def steps(q: quoracy.Connection) -> None:
    @q.singleton("nightly")
    async def nightly(term: quoracy.Term) -> int:
        return term.token

    assert_type(await nightly(), int)

    async def migrate() -> str:
        return "done"

    assert_type(await q.once("migrate", str).run(migrate), str)
    async with q.group("workers", Job).join(Job(1)) as membership:
        assert_type(membership.metadata, Job)
