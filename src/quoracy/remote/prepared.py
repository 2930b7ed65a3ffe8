"""A transaction that was encoded beforehand: what is sent again and again, or must be sent at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from quoracy.store.model import Txn

__all__ = ["PreparedTxn", "Prepares"]


class PreparedTxn(Txn, frozen=True):
    """payload: how it is sent."""

    payload: bytes = b""


@runtime_checkable
class Prepares(Protocol):
    """A store for which a transaction can be encoded beforehand."""

    def prepared(self, txn: Txn) -> Txn:
        """The same transaction, to be begun faster.  Raises what is wrong with it."""
        ...

    def delete_maker(self, key: bytes) -> Callable[[int], Txn]:
        """Makes, of the revision that created the key, what deletes it if it is still that one."""
        ...
