"""Operations passed on without a task: sent in the call, completed when this node has what they saw.

    submit -> `RemoteStore.submit` -> the cluster's answer -> (the replica has its revision) -> done
    read   -> the cluster's revision                       -> (the replica has it) -> read here -> done

Invariants
    * `done` is called once, after `submit` has returned, and not before the replica has the revision.
    * A write whose revision does not come within `timeout_s` is `Indeterminate`: the cluster took it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from quoracy.engines.etcd.prefix import Prefix
from quoracy.engines.etcd.replica import Replica, Waiter
from quoracy.errors import Indeterminate, KeyNotFound, Unavailable
from quoracy.store.completion import Completion

__all__ = ["CurrentRead", "Forwarded", "InFlight", "applied_elsewhere"]


class InFlight:
    """The operations of this node that are in flight, and their deadlines.

    wait: called with a revision that is not here yet, and what waits for it.
    """

    def __init__(
        self,
        prefix: Prefix,
        replica: Replica,
        *,
        wait: Callable[[int, Waiter], None],
        now: Callable[[], float],
        timeout_s: float,
    ) -> None:
        self.prefix, self.replica = prefix, replica
        self._wait, self._now, self._timeout_s = wait, now, timeout_s
        self._deadlines: deque[tuple[float, Waiter]] = deque()  # in order

    def wait(self, revision: int, waiter: Waiter) -> None:
        """End `waiter` when a revision is here, which it is not yet."""
        self._wait(revision, waiter)

    def limit(self, waiter: Waiter) -> None:
        """Let it wait for `timeout_s` at most."""
        self._deadlines.append((self._now() + self._timeout_s, waiter))

    def give_up_late(self, now: float, why: Callable[[], BaseException]) -> None:
        deadlines = self._deadlines
        while deadlines and (deadlines[0][0] <= now or deadlines[0][1].is_over):
            waiter = deadlines.popleft()[1]
            if not waiter.is_over:
                waiter.end(why())


class Forwarded(Completion):
    """An operation that the cluster carries out, as the cluster answers it."""

    __slots__ = ("_completion", "_in_flight", "_is_write")

    def __init__(self, in_flight: InFlight, completion: Completion, is_write: bool) -> None:
        super().__init__()
        self._in_flight, self._completion, self._is_write = in_flight, completion, is_write
        completion.on_abandon = self.abandon

    def done(self, result: Any, error: BaseException | None) -> None:
        completion = self._completion
        completion.on_abandon = None
        if error is not None:
            if isinstance(error, KeyNotFound):
                error = KeyNotFound(self._in_flight.prefix.key(error.key))
            completion.done(None, error)
            return
        in_flight = self._in_flight
        result = in_flight.prefix.result(result)
        revision: int = result.revision
        if revision <= in_flight.replica.state.revision:
            completion.done(result, None)
        else:
            arrival = _Arrival(completion, result, self._is_write)
            in_flight.wait(revision, arrival)
            in_flight.limit(arrival)


class _Arrival(Waiter):
    """The wait of an answer for the replica to have its revision."""

    __slots__ = ("_completion", "_is_write", "_result")

    def __init__(self, completion: Completion, result: Any, is_write: bool) -> None:
        super().__init__()
        self._completion, self._result, self._is_write = completion, result, is_write

    def ended(self, error: BaseException | None) -> None:
        if error is None:
            self._completion.done(self._result, None)
        elif self._is_write:
            self._completion.done(None, applied_elsewhere(self._result.revision, error))
        else:
            self._completion.done(None, error)


class CurrentRead(Waiter):
    """The wait of a linearizable read for everything that was acknowledged before it came.

    answer: reads here, and completes it.
    """

    __slots__ = ("_answer", "_completion", "_in_flight", "_op")

    def __init__(
        self,
        in_flight: InFlight,
        op: object,
        completion: Completion,
        answer: Callable[[Any, Completion], None],
    ) -> None:
        super().__init__()
        self._in_flight, self._op, self._completion = in_flight, op, completion
        self._answer = answer
        completion.on_abandon = self.abandon
        in_flight.limit(self)

    def newest(self, revision: int) -> None:
        """The cluster was at this revision when it was asked."""
        if self.is_over:
            return
        if revision <= self._in_flight.replica.state.revision:
            self.end(None)
        else:
            self._in_flight.wait(revision, self)

    def ended(self, error: BaseException | None) -> None:
        self._completion.on_abandon = None
        if error is None:
            self._answer(self._op, self._completion)
        else:
            self._completion.done(None, error)

    def abandon(self) -> None:
        self.end(Unavailable("the caller gave the read up."))


def applied_elsewhere(revision: int, error: BaseException) -> Indeterminate:
    return Indeterminate(
        f"the cluster took it at revision {revision}, but this node has not caught up: {error} "
        "Do not write it again."
    )
