"""Transactions submitted all at once end as those that are awaited one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from quoracy.engines.opening import open_embedded
from quoracy.errors import Rejected
from quoracy.store.api import Store
from quoracy.store.coroutines import FutureCompletion, ended
from quoracy.store.model import KeyRange, LeaseId, Txn, TxnResult
from quoracy.store.rules import writes
from tests.properties.requests import LEASES, at_revision, txns


@given(st.lists(txns, min_size=1, max_size=8))
def test_transactions_in_flight_together_end_as_one_after_the_other(drawn: Sequence[Txn]) -> None:
    async def run() -> None:
        async with open_embedded("memory:") as awaited, open_embedded("memory:") as submitted:
            for id in LEASES[:2]:
                await awaited.grant(60, id=LeaseId(id))
                await submitted.grant(60, id=LeaseId(id))
            done: list[tuple[Txn, TxnResult | str]] = []
            for each in drawn:
                txn = at_revision(each, (await awaited.status()).revision)
                done.append((txn, await _outcome(FutureCompletion(_loop()), awaited, txn)))
            in_flight = [FutureCompletion(_loop()) for _ in done]
            for at, (txn, _) in enumerate(done):
                completion = in_flight[at]
                if not writes((txn,)):  # what reads only sees what is durable by now
                    for before in in_flight[:at]:
                        await _result(before)
                submitted.submit(txn, completion)
                assert not completion.is_done, "done within `submit`"
            assert [await _result(completion) for completion in in_flight] == [
                outcome for _, outcome in done
            ]
            everything = KeyRange.everything()
            assert await submitted.range(everything) == await awaited.range(everything)

    asyncio.run(run())


def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


async def _outcome(completion: FutureCompletion, store: Store, txn: Txn) -> TxnResult | str:
    store.submit(txn, completion)
    return await _result(completion)


async def _result(completion: FutureCompletion) -> TxnResult | str:
    try:
        result: TxnResult = await ended(completion)
    except Rejected as error:
        return repr(error)
    return result
