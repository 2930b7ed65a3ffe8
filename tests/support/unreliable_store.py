"""A store in this process that can be made to fail like one behind a network."""

from __future__ import annotations

import asyncio

from quoracy.errors import Indeterminate, Unavailable
from quoracy.store.api import Store
from quoracy.store.completion import Completion
from quoracy.store.coroutines import complete_by_task
from quoracy.store.model import Delete, LeaseGrant, Put, Txn, TxnResult

__all__ = ["Unreliable"]


class Unreliable:
    """A store whose keep-alives, grants and transactions can be cut off.

    refuses, hangs: keep-alives are refused, or never answered; `refuses` is true of grants as well.
    loses: transactions are carried out, and their answers lost; `drops`: not even carried out.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.refuses = self.hangs = self.loses = self.drops = False
        self.asked = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def keep_alive(self, lease: int) -> LeaseGrant:
        self.asked += 1
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        self._check()
        return await self._store.keep_alive(lease)

    async def grant(self, ttl_s: float) -> LeaseGrant:
        self._check()
        return await self._store.grant(ttl_s)

    def submit(self, op: Put | Delete | Txn, completion: Completion) -> None:
        if isinstance(op, Txn):
            complete_by_task(self.txn(op), completion)
        else:
            self._store.submit(op, completion)

    async def txn(self, txn: Txn) -> TxnResult:
        if self.drops:
            raise Indeterminate("the answer was lost.")
        result = await self._store.txn(txn)
        if self.loses:
            raise Indeterminate("the answer was lost.")
        return result

    def _check(self) -> None:
        if self.refuses:
            raise Unavailable("no server at 127.0.0.1:1.")
