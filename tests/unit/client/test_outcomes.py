"""What becomes of a write: told once, to who waits and to who asked to be called."""

from __future__ import annotations

import asyncio

import pytest

from quoracy.client.write_outcome import Outcome
from quoracy.errors import Unavailable
from quoracy.remote.call_errors import NotApplied
from quoracy.store.model import Revision, Txn, TxnResult

_RESULT = TxnResult(Revision(7), True, ())


async def test_whoever_waits_gets_the_result() -> None:
    outcome = _outcome()
    waiter = outcome.settled()
    assert not outcome.done()
    outcome.answered(_RESULT, None)
    assert await waiter is _RESULT
    assert outcome.done()
    assert outcome.result() is _RESULT
    assert await outcome.settled() is _RESULT


async def test_a_cancelled_wait_is_not_the_end_of_the_write() -> None:
    outcome = _outcome()
    outcome.settled().cancel()
    called: list[Outcome] = []
    outcome.add_done_callback(called.append)
    assert not outcome.done()
    outcome.answered(_RESULT, None)
    assert called == []  # in a turn of its own
    await asyncio.sleep(0)
    assert called == [outcome]
    assert not outcome.cancelled()
    outcome.add_done_callback(called.append)
    await asyncio.sleep(0)
    assert called == [outcome, outcome]


async def test_callbacks_come_before_who_waits() -> None:
    outcome = _outcome()
    order: list[str] = []
    outcome.add_done_callback(lambda _: order.append("called"))

    async def wait() -> None:
        await outcome.settled()
        order.append("waited")

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    outcome.answered(_RESULT, None)
    await waiting
    assert order == ["called", "waited"]


async def test_an_error_that_nobody_waits_for_is_kept() -> None:
    outcome = _outcome()
    error = Unavailable("no leader")
    outcome.answered(None, error)
    assert outcome.exception() is error
    with pytest.raises(Unavailable):
        await outcome.settled()
    with pytest.raises(Unavailable):
        outcome.result()


async def test_what_was_not_applied_is_sent_again_and_nothing_is_told() -> None:
    again: list[tuple[Txn, Outcome]] = []
    txn = Txn()
    outcome = Outcome(
        asyncio.get_running_loop(), txn, lambda txn, outcome: again.append((txn, outcome))
    )
    outcome.answered(None, NotApplied("refused"))
    assert again == [(txn, outcome)]
    assert not outcome.done()


async def test_given_up_it_is_cancelled_for_who_waits_and_late_news_is_ignored() -> None:
    outcome = _outcome()
    waiter = outcome.settled()
    outcome.give_up()
    outcome.answered(_RESULT, None)
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert outcome.cancelled()
    with pytest.raises(asyncio.CancelledError):
        outcome.result()


def _outcome() -> Outcome:
    return Outcome(asyncio.get_running_loop())
