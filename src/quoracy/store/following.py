"""How a follower in the process of the store writes: single keys, and what it holds to do so.

Apart from `api`, and compiled: these are touched by every write of a busy face.  A protocol would be
asked for each attribute by its name, which takes ten times as long as a class that is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quoracy.store.completion import Reply
from quoracy.store.model import Txn, TxnResult

__all__ = ["NOT_REPLYING", "Following", "KeyWrite", "OnFailed", "Written"]

# Told the revision of a write that will never be known to be durable, and why.
OnFailed = Callable[[int, BaseException], None]


class KeyWrite:
    """Write one key, or delete it: then there is no `value`."""

    __slots__ = ("key", "lease", "value")

    def __init__(self, key: bytes, value: bytes | None, lease: int = 0) -> None:
        self.key, self.value, self.lease = key, value, lease


class Written:
    """Gives the reply to a write before the write is durable.

    (A class and not a function: passing a bound method would allocate an object for each write.)
    """

    __slots__ = ()

    def reply(self, revision: int) -> Reply | None:
        """What may be sent, by another thread, in the moment in which this revision is durable."""
        del revision
        return None


NOT_REPLYING: Final = Written()


class Following:
    """What a follower holds: how to write, how to tell whether it knows everything, how to stop.

    foreign_revision: the newest revision, durable or not, in which its keys were changed by anybody
        else.  A follower that has received that revision, and remembers what it took itself, knows what
        a transaction taken now will find.
    """

    __slots__ = ("foreign_revision",)

    def __init__(self) -> None:
        self.foreign_revision = 0

    def take(self, txn: Txn, on_failed: OnFailed) -> TxnResult:
        """Begin a transaction that writes; what it returns is what it will be, once it is durable.

        Until the follower is notified of that, nothing of it may leave the process.  Transactions taken
        one after the other take effect in that order.  If it can never be known to be durable,
        `on_failed` is called.  Raises what `Store.txn` raises; `NoSpace` also where `make_room` may
        help.
        """
        raise NotImplementedError

    def write(
        self, writes: tuple[KeyWrite, ...], on_failed: OnFailed, written: Written = NOT_REPLYING
    ) -> int:
        """`take` without a condition, for keys of the follower, each once: the caller vouches for that.

        Returns the revision; there is one, as something is put or a key that exists is deleted.  When
        it is durable `Follower.wrote` is called; the follower remembers itself what it wrote.
        Before this returns, `written` may be asked for a reply.  Another thread sends it, or it is not
        sent at all; the follower is notified all the same, and takes the reply back then.
        """
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError
