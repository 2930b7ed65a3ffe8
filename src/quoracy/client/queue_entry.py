"""One attempt to get something: the keys it puts, the wait behind older ones, and its removal.

    with Attempt(context, session, b"jobs/queue/") as attempt:
        result = await attempt.send(Txn((), (Put(attempt.keys[0], b"", session.id),)))
        await attempt.wait_turn(...)              # an exception deletes the keys

For recipes whose queue is not etcd's (that one is in `contender`): more than one key for an attempt, or
an order in which a contender does not always wait for the one right before it.

Invariants
    * Every key is attached to the session's lease, and no two attempts ever have one of the same name:
      a deletion that arrives late deletes no key of another attempt.
    * A block that raises leaves none of its keys: they are deleted at once, or in the background; a key
      whose creation has an unknown outcome is watched until the session ends.
    * A block that ends normally leaves its keys: they mean that something is held.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from quoracy.client.compare_and_swap import key_at, range_at
from quoracy.client.context import Context, Deadline
from quoracy.client.in_flight import Outcome
from quoracy.client.session import Session
from quoracy.errors import (
    Compacted,
    Indeterminate,
    LeaseNotFound,
    SessionLost,
    TimedOut,
    Unavailable,
)
from quoracy.store.model import (
    Delete,
    KeyRange,
    KeyValue,
    Range,
    RangeResult,
    SortTarget,
    Txn,
    TxnResult,
)

__all__ = [
    "PAGE",
    "Attempt",
    "acquire",
    "in_a_session",
    "newest",
    "read_all",
    "read_rest",
]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

# The number of keys in a page.
PAGE = 1_000

_numbers = itertools.count(1)


class Attempt:
    """The keys of one attempt, one under each prefix.

    The first write makes some of them.  A later write must depend on the first key, so that no key can
    appear any more once the keys were deleted in their order.
    """

    def __init__(self, context: Context, session: Session, *prefixes: bytes) -> None:
        name = b"%x-%x" % (session.id, next(_numbers))
        self.keys = tuple(prefix + name for prefix in prefixes)
        self._context, self._session = context, session
        self._sent: Outcome | None = None
        self._answered = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None or self._sent is None:
            return
        if self._sent.is_over:
            self._withdraw(self._sent)
        else:  # the caller does not wait for the answer any more
            self._sent.add_done_callback(self._withdraw)

    async def send(self, txn: Txn) -> TxnResult:
        """Carry out a transaction that may make keys of this attempt."""
        self._sent = self._context.writes.begin(txn)
        try:
            result = await self._sent.settled()
        except LeaseNotFound:
            self._session.lease_not_found()
            raise
        self._answered = True
        return result

    async def wait_turn(
        self, ahead: KeyRange, *, token: int, last: KeyValue | None, revision: int
    ) -> None:
        """Wait until no key of `ahead` is older than our first one, which was made at `token`.

        Only the youngest of those is watched: `last`, as it was at `revision`, and then the youngest
        that is left.  Raises `SessionLost` if our key is gone, as if the session were lost.
        """
        before = newest(ahead, create_revision_max=token - 1)
        while last is not None:
            wait = partial(self._read_after_deletion, last.key, revision, before)
            result = await self._context.retry(wait, repr(last.key))
            if not range_at(result, 0).kvs:
                raise self.gone()
            last, revision = key_at(result, 1), result.revision

    def check(self) -> None:
        """Raise if the session is lost by now, as in a process that was stopped: nothing was won."""
        if self._session.is_lost:
            raise self._session.loss(f"the key {self.keys[0]!r}")

    def gone(self) -> SessionLost:
        """The error for a key of this attempt that does not exist any more."""
        return SessionLost(
            f"the key {self.keys[0]!r} is gone: its session {self._session.id:x} ended, or somebody "
            "deleted it. Begin again."
        )

    async def _read_after_deletion(self, key: bytes, revision: int, before: Range) -> TxnResult:
        """Wait until a key is deleted; then read our first key, and `before`."""
        store = self._context.store
        with contextlib.suppress(Compacted):  # the read shows whether it was deleted
            async with store.watch(key, after=revision, puts=False) as batches:
                while not (await anext(batches)).events:
                    pass
        return await store.txn(Txn(then=(Range(self.keys[0], keys_only=True), before)))

    def _withdraw(self, sent: Outcome) -> None:
        """Delete the keys that exist.  `sent` is the last write, and is over."""
        session = self._session
        if session.lost.done():
            return  # its end deletes them
        error = sent.exception()
        is_known = not isinstance(error, Indeterminate)
        if not self._answered and not is_known:
            for key in self.keys:
                self._context.cleanup.remove(key, session, may_appear=True)
        elif self._answered or error is None:
            outcome = self._context.writes.begin(Txn((), tuple(Delete(key) for key in self.keys)))
            outcome.add_done_callback(self._withdrawn)

    def _withdrawn(self, outcome: Outcome) -> None:
        if isinstance(outcome.exception(), Unavailable | Indeterminate):
            self._remove_from(0)

    def _remove_from(self, at: int) -> None:
        """Delete them one after the other: a key may appear as long as the first exists."""
        if at < len(self.keys):
            key, session = self.keys[at], self._session
            self._context.cleanup.remove(key, session, done=lambda: self._remove_from(at + 1))


async def in_a_session(
    context: Context,
    deadline: Deadline,
    once: Callable[[Session], Awaitable[_T]],
    *,
    what: str,
) -> _T:
    """Await `once` with a session, and again with the next one if that is lost meanwhile.

    It ends when `once` has returned: a loss of what is *held* later does not begin it again.  Raises
    `TimedOut`.  With a timeout of 0 it does not wait for a session, and `once` may take its time.
    """
    for_work = None if deadline.timeout == 0 else deadline
    while True:
        session = context.current_session()
        if session is None:
            with context.wait_scope(f"a session for {what}", deadline):
                session = await context.session()
        try:
            with context.wait_scope(what, for_work, session):
                return await once(session)
        except (SessionLost, LeaseNotFound) as error:
            _log.warning("%s: waiting again, at the end of the queue: %s", what, error)


async def acquire(
    context: Context,
    timeout: float | None,
    once: Callable[[Session], Awaitable[_T]],
    try_once: Callable[[Session], Awaitable[_T | None]],
    *,
    what: str,
) -> _T:
    """`once` in a session; with a timeout of 0, `try_once`.  Raises `TimedOut`."""
    deadline = context.deadline(timeout)
    if deadline.timeout > 0:
        return await in_a_session(context, deadline, once, what=what)
    acquired = await in_a_session(context, deadline, try_once, what=what)
    if acquired is None:
        raise TimedOut(what, timeout_s=0)
    return acquired


def newest(keys: KeyRange, *, limit: int = 1, create_revision_max: int | None = None) -> Range:
    """A read of the keys that were made last, the last one first."""
    return Range(
        keys,
        limit=limit,
        sort_by=SortTarget.CREATE,
        descending=True,
        keys_only=True,
        create_revision_max=create_revision_max,
    )


async def read_all(context: Context, *ranges: KeyRange) -> tuple[int, list[tuple[KeyValue, ...]]]:
    """A revision, and every key of some ranges at that revision; read in pages."""
    while True:
        result = await context.store.txn(Txn(then=tuple(Range(keys, limit=PAGE) for keys in ranges)))
        try:
            found = []
            for keys, page in zip(ranges, result.results, strict=True):
                assert isinstance(page, RangeResult)
                found.append(await read_rest(context, keys, page, at=result.revision))
        except Compacted:
            continue  # reading took longer than history is kept; begin with the newest
        return result.revision, found


async def read_rest(
    context: Context, keys: KeyRange, page: RangeResult, *, at: int
) -> tuple[KeyValue, ...]:
    """Every key of a range whose first page was read at a revision.  Raises `Compacted`."""
    kvs = list(page.kvs)
    while page.more:
        following = KeyRange(kvs[-1].key + b"\0", keys.end)
        page = await context.store.range(following, limit=PAGE, at=at)
        kvs += page.kvs
    return tuple(kvs)
