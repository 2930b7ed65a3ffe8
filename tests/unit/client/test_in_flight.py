"""What becomes of a write: one outcome, for the task that waits and for callbacks."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from quoracy.client.in_flight import Outcome, Writes
from quoracy.errors import Unavailable
from quoracy.store.api import Store
from quoracy.store.completion import Completion
from quoracy.store.model import Revision, Txn, TxnResult

_RESULT = TxnResult(Revision(7), True, ())


async def test_the_task_that_waits_gets_the_result() -> None:
    outcome = _outcome()
    waiter = outcome.settled()
    assert not outcome.is_over
    outcome.done(_RESULT, None)
    assert await waiter is _RESULT
    assert outcome.result() is _RESULT
    assert await outcome.settled() is _RESULT


async def test_a_cancelled_wait_is_not_the_end_of_the_write() -> None:
    outcome = _outcome()
    outcome.settled().cancel()
    called: list[Outcome] = []
    outcome.add_done_callback(called.append)
    assert not outcome.is_over
    outcome.done(_RESULT, None)
    assert called == []  # in a turn of its own
    await asyncio.sleep(0)
    assert called == [outcome]
    outcome.add_done_callback(called.append)
    await asyncio.sleep(0)
    assert called == [outcome, outcome]


async def test_callbacks_come_before_the_task_that_waits() -> None:
    outcome = _outcome()
    order: list[str] = []
    outcome.add_done_callback(lambda _: order.append("called"))

    async def wait() -> None:
        await outcome.settled()
        order.append("waited")

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    outcome.done(_RESULT, None)
    await waiting
    assert order == ["called", "waited"]


async def test_an_error_that_nobody_waits_for_is_kept() -> None:
    outcome = _outcome()
    error = Unavailable("no leader")
    outcome.done(None, error)
    assert outcome.exception() is error
    with pytest.raises(Unavailable):
        await outcome.settled()
    with pytest.raises(Unavailable):
        outcome.result()


async def test_closing_waits_for_what_is_in_flight() -> None:
    store = _Store()
    writes = Writes(cast(Store, store))
    await writes.close()  # there is nothing
    outcomes = [writes.begin(Txn()), writes.begin(Txn())]
    closing = writes.close()
    store.submitted[0].done(_RESULT, None)
    await asyncio.sleep(0)
    assert not closing.done()
    store.submitted[1].done(None, Unavailable("no leader"))
    await closing
    assert all(outcome.is_over for outcome in outcomes)


class _Store:
    def __init__(self) -> None:
        self.submitted: list[Completion] = []

    def submit(self, op: Txn, completion: Completion) -> None:
        self.submitted.append(completion)


def _outcome() -> Outcome:
    return Outcome(asyncio.get_running_loop())
