"""Transactions that are begun: the same as by the long way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.engines.opening import open_embedded
from quoracy.errors import Rejected
from quoracy.store.model import KeyRange, LeaseId, Txn, TxnResult
from tests.properties.requests import LEASES, at_revision, txns

_several = st.lists(txns, min_size=1, max_size=8)


@given(_several)
def test_a_transaction_that_is_begun_ends_as_one_that_is_awaited(drawn: Sequence[Txn]) -> None:
    async def run() -> None:
        async with open_embedded("memory:") as begun, open_embedded("memory:") as awaited:
            for id in LEASES[:2]:
                await begun.grant(60, id=LeaseId(id))
                await awaited.grant(60, id=LeaseId(id))
            for each in drawn:
                txn = at_revision(each, (await begun.status()).revision)
                assert await _begun(begun, txn) == await _awaited(awaited, txn)
            everything = KeyRange.everything()
            assert await begun.range(everything) == await awaited.range(everything)

    asyncio.run(run())


async def _begun(store: EmbeddedStore, txn: Txn) -> TxnResult | str:
    """By way of `begin`.  # legacy"""
    done: asyncio.Future[TxnResult | str] = asyncio.get_running_loop().create_future()

    def on_done(result: TxnResult | None, error: BaseException | None) -> None:
        done.set_result(repr(error) if result is None else result)

    with contextlib.suppress(Rejected):
        if store.begin(txn, on_done):
            assert not done.done(), "called before it returned"
            return await done
    refusal = await _awaited(store, txn)
    assert isinstance(refusal, str)
    return refusal


async def _awaited(store: EmbeddedStore, txn: Txn) -> TxnResult | str:
    try:
        return await store.txn(txn)
    except Rejected as error:
        return repr(error)
