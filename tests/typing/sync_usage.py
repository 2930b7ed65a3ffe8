"""What a program in threads looks like to a type checker: every result has its type.

Checked by `tests/typing/test_typing.py`, never run.
"""

# mypy: disallow-any-expr

from __future__ import annotations

from collections.abc import Callable
from typing import assert_type

import msgspec

import quoracy
import quoracy.sync
from quoracy.sync import Block, Event, Stream


class Job(msgspec.Struct):
    """What a queue holds."""

    n: int


class Settings(msgspec.Struct, frozen=True):
    """What a config holds."""

    workers: int = 4


def show(state: quoracy.SessionState) -> None:
    """A listener."""


def show_change(change: quoracy.ConfigChange[Settings]) -> None:
    """A callback."""


def connections() -> None:
    q = quoracy.sync.connect("quoracy://localhost", session_ttl=5, identity="me", namespace="app")
    assert_type(q, quoracy.sync.Connection)
    with q as entered:
        assert_type(entered, quoracy.sync.Connection)
    assert_type(q.state, quoracy.SessionState)
    assert_type(q.on_state(show), Callable[[], None])
    q.wait_state(quoracy.SessionState.CONNECTED, timeout=5)
    assert_type(q.store, quoracy.sync.Store)
    with quoracy.sync.connect(q.store) as second:
        assert_type(second.identity, str)
    q.close()


def locks(q: quoracy.sync.Connection) -> None:
    lock = q.lock("x", reentrant=True, hold_max=60)
    with lock as held:
        assert_type(held, quoracy.sync.Held)
        assert_type(held.token, int)
        assert_type(held.lost, Event)
        assert_type(held.lost.wait(1.0), bool)
        assert_type(held.is_held, bool)
        assert_type(held.remaining_s, float)
        assert_type(held.txn(quoracy.Put(b"k", b"v")), quoracy.TxnResult)
    assert_type(lock.acquire(timeout=1), quoracy.sync.Held)
    assert_type(lock.try_acquire(), quoracy.sync.Held | None)
    assert_type(lock.hold(timeout=1), Block[quoracy.sync.Held])
    assert_type(lock.contenders(), tuple[quoracy.Contender, ...])
    with q.rwlock("rw").write() as writing:
        assert_type(writing, quoracy.sync.WriteHeld)
        writing.downgrade()
    with q.semaphore("s", 3).hold(weight=2) as share:
        assert_type(share.weight, int)


def elections(q: quoracy.sync.Connection) -> None:
    election = q.election("e")
    with election.lead("me") as term:
        assert_type(term, quoracy.sync.Term)
        assert_type(term.value, str)
    assert_type(election.leader(), quoracy.Leader | None)
    assert_type(election.observe(), Stream[quoracy.Leader])
    for leader in election.observe():
        assert_type(leader, quoracy.Leader)
    assert_type(election.observe().next(timeout=1), quoracy.Leader)


def queues(q: quoracy.sync.Connection) -> None:
    assert_type(q.queue("x"), quoracy.sync.Queue[bytes])
    jobs = q.queue("jobs", Job)
    assert_type(jobs, quoracy.sync.Queue[Job])
    assert_type(jobs.get(timeout=1), Job)
    assert_type(jobs.try_get(), Job | None)
    for job in jobs:
        assert_type(job, Job)
    assert_type(q.priority_queue("p", Job).get(), Job)
    with q.work_queue("w", Job).claim(timeout=1) as claimed:
        assert_type(claimed.item, Job)
        claimed.ack()


def values(q: quoracy.sync.Connection) -> None:
    assert_type(q.value("x"), quoracy.sync.Value[bytes])
    plain = q.value("n", int)
    assert_type(plain.get(), quoracy.Versioned[int] | None)
    counted = q.value("n", int, default=0)
    assert_type(counted, quoracy.sync.DefaultedValue[int])
    assert_type(counted.get().value, int)
    assert_type(counted.default, int)
    assert_type(counted.update(lambda n: n + 1).value, int)
    assert_type(plain.update(lambda n: (n or 0) + 1).value, int)
    for change in plain.changes():
        assert_type(change.value, int | None)
    assert_type(q.counter("c").add(1), int)
    with q.config("app", Settings) as config:
        assert_type(config.value, Settings)
        assert_type(config.on_change(show_change), Callable[[], None])
    with q.cache("services", Job) as cache:
        assert_type(cache["a"], Job)
        assert_type(cache.get("a"), Job | None)
        assert_type(cache.get("a", 0), Job | int)


def steps(q: quoracy.sync.Connection) -> None:
    @q.singleton("nightly")
    def nightly(term: quoracy.sync.Term) -> int:
        return term.token

    assert_type(nightly(), int)
    assert_type(q.once("migrate", str).run(lambda: "done"), str)
    with q.group("workers", Job).join(Job(1)) as membership:
        assert_type(membership.metadata, Job)
    with q.group("plain").join({"zone": "a"}) as plain:
        assert_type(plain.metadata, dict[str, str])
