"""Writes passed on without a task: sent in the call, answered when the replica has their revision.

    begin -> `RemoteStore.begin` -> the cluster's answer -> (replica has its revision) -> on_done

Invariants
    * `on_done` is called once, after `begin` has returned, and not before the replica has the revision.
    * What surely did not happen goes the long way (`ask_again`), which finds out whether it can.
    * A write whose revision does not come within `timeout_s` is `Indeterminate`: the cluster took it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from quoracy.engines.etcd.prefix import Prefix
from quoracy.engines.etcd.replica import Reached, Replica
from quoracy.errors import Indeterminate
from quoracy.remote.call_errors import NotApplied
from quoracy.store.legacy import OnDone
from quoracy.store.model import Put, PutResult, Txn, TxnResult

__all__ = ["Passing", "applied_elsewhere"]


class Passing:
    """The writes that are on their way from here.  `send` is the client's `begin`."""

    __slots__ = ("_ask_again", "_late", "_now", "_send", "_timeout_s", "prefix", "replica", "wait")

    def __init__(
        self,
        prefix: Prefix,
        replica: Replica,
        *,
        send: Callable[[Put | Txn, OnDone], bool],
        wait: Callable[[int, Reached], None],
        ask_again: Callable[[Put | Txn, OnDone], None],
        now: Callable[[], float],
        timeout_s: float,
    ) -> None:
        """`wait` is called with a revision that is not here yet, and what is to be called then."""
        self.prefix, self.replica, self.wait = prefix, replica, wait
        self._send, self._ask_again, self._now = send, ask_again, now
        self._timeout_s = timeout_s
        self._late: deque[tuple[float, Reached]] = deque()  # in the order of their deadlines

    def begin(self, op: Put | Txn, on_done: OnDone) -> bool:
        """Of an operation that breaks no rule; see `store.api.Begins`."""
        prefix = self.prefix
        outward: Put | Txn = prefix.put(op) if isinstance(op, Put) else prefix.txn(op)
        return self._send(outward, _Write(self, op, on_done).answered)

    def give_up_late(self, now: float, why: Callable[[], BaseException]) -> None:
        late = self._late
        while late and (late[0][0] <= now or late[0][1].done()):
            waiter = late.popleft()[1]
            if not waiter.done():
                waiter.set_exception(why())

    def answer_later(self, write: _Write, revision: int) -> None:
        self.wait(revision, write)
        self._late.append((self._now() + self._timeout_s, write))

    def ask_again(self, op: Put | Txn, on_done: OnDone) -> None:
        self._ask_again(op, on_done)


class _Write(Reached):
    """One of them: what it is, and who is told.

    One object instead of a function for each thing that can happen to it, since all of them do.
    """

    __slots__ = ("_is_done", "_on_done", "_op", "_passing", "_result")

    def __init__(self, passing: Passing, op: Put | Txn, on_done: OnDone) -> None:
        self._passing, self._op, self._on_done = passing, op, on_done
        self._result: PutResult | TxnResult | None = None
        self._is_done = False

    def answered(self, result: PutResult | TxnResult | None, error: BaseException | None) -> None:
        """By the cluster."""
        passing = self._passing
        if result is None:
            assert error is not None
            if isinstance(error, NotApplied):
                passing.ask_again(self._op, self._on_done)
            else:
                self._on_done(None, error)
            return
        self._result = result
        revision = result.revision
        if revision <= passing.replica.state.revision:
            self.set_result(None)
        else:
            passing.answer_later(self, revision)

    # -- as who waits for a revision ------------------------------------------------------------

    def done(self) -> bool:
        return self._is_done

    def set_result(self, _: None) -> None:
        self._is_done = True
        result, prefix = self._result, self._passing.prefix
        if isinstance(result, PutResult):
            self._on_done(prefix.put_result(result), None)
        else:
            assert isinstance(result, TxnResult)
            self._on_done(prefix.txn_result(result), None)

    def set_exception(self, error: BaseException) -> None:
        self._is_done = True
        assert self._result is not None
        self._on_done(None, applied_elsewhere(self._result.revision, error))


def applied_elsewhere(revision: int, error: BaseException) -> Indeterminate:
    return Indeterminate(
        f"the cluster took it at revision {revision}, but this node has not caught up: {error} "
        "Do not write it again."
    )
