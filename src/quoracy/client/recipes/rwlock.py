"""ReadWriteLock: many may read, or one may write; in order of arrival.

    async with quoracy.connect("memory:") as q:
        lock = q.rwlock("catalogue")
        async with lock.read():
            await look_up()
        async with lock.write() as held:
            await replace_everything(fence=held.token)
            await held.downgrade()                # from here on others may read as well
            await read_it_back()

What it promises
    * While one client writes, no other reads or writes.
    * There is no starvation: the order is that of arrival.  Readers that arrive one after the other
      share; a reader that arrives after a writer waits for it, although others still read.
    * A holder's token is larger than that of every holder that came before it.
    * `downgrade` turns a write lock into a read lock in one step: no writer comes in between.
    * No herd effect: a writer watches the one right before it, a reader the last writer before it.

What it does not promise
    * It is not reentrant, and a read lock cannot become a write lock: two readers that both want that
      would wait for each other.  Release it, acquire the other, and read again what was read.

How it lies in the store
    name/queue/<session>-<n>      all contenders, oldest first; the value says who, and of which kind
    name/writers/<session>-<n>    writers once more, put in the same revision: readers wait for these

    A writer holds the lock when no key of `queue` is older than its own, a reader when none of
    `writers` is.  To downgrade is to leave `writers` and keep the place in `queue`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from quoracy.client.codec import codec_of
from quoracy.client.compare_and_swap import range_at
from quoracy.client.context import Context
from quoracy.client.held import Held, Holding
from quoracy.client.in_flight import Outcome
from quoracy.client.queue_entry import Attempt, acquire, in_a_session, newest, read_all
from quoracy.client.session import Session
from quoracy.errors import Indeterminate, Unavailable
from quoracy.store.model import Compare, Delete, KeyRange, KeyValue, Op, Put, Txn

__all__ = ["Access", "ReadHeld", "ReadWriteContender", "ReadWriteLock", "WriteHeld"]

Access: TypeAlias = Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class ReadWriteContender:
    """A client that holds the lock or waits for it.

    kind: "read" or "write".
    identity: the identity of its connection.
    token: its fencing token, now or when it holds the lock.
    """

    kind: Access
    identity: str
    token: int
    is_holding: bool
    lease: int
    key: bytes


class ReadHeld(Held):
    """A read lock that is held."""

    kind: Access = "read"


class WriteHeld(Held):
    """A write lock that is held, and what it is after `downgrade`: a read lock."""

    kind: Access = "write"

    def __init__(
        self, context: Context, session: Session, *, name: str, key: bytes, marker: bytes, token: int
    ) -> None:
        super().__init__(context, session, name=name, key=key, token=token, what=_what("write", name))
        self._marker = marker

    async def downgrade(self) -> None:
        """Continue as a reader: waiting readers that come before the next writer join.

        No writer comes in between, the token stays, and the block in which it is held goes on as
        before.  A second call does nothing.  Raises `LockLost` if the lock is no longer held.  After
        `Indeterminate` the lock may be a read lock already: stop writing.  The call may be repeated.
        """
        self.check()
        if self.kind == "read":
            return
        context = self._context
        put = Put(self.key, _entry("read", context.identity), self._session.id)
        result = await context.write(Txn((self.guard(),), (put, Delete(self._marker))))
        if not result.succeeded:
            self.key_not_found()
            self.check()
        self.kind, self._what = "read", _what("read", self.name)

    def release_txn(self) -> Txn:
        # The marker is deleted even if the key is gone.
        marker = Delete(self._marker)
        return Txn((self.guard(),), (Delete(self.key), marker), (marker,))

    def _begin_release(self) -> Outcome | None:
        outcome = super()._begin_release()
        if outcome is not None:
            outcome.add_done_callback(self._marker_answered)
        return outcome

    def _marker_answered(self, outcome: Outcome) -> None:
        """Delete the marker in the background if the release failed, as `Held` does with its key."""
        if isinstance(outcome.exception(), Unavailable | Indeterminate):
            self._context.cleanup.remove(self._marker, self._session)


class ReadWriteLock:
    """A read-write lock by name; one object may be shared, each acquisition has its own handle.

    cancel_on_loss: when the lock is lost inside the block, cancel the body and raise `LockLost`; in
        coroutines only.  False: only `held.lost` is set, and the block raises at its end.
    """

    def __init__(self, context: Context, name: str, *, cancel_on_loss: bool = True) -> None:
        self.name = name
        key = context.key(name)
        self._context = context
        self._queue = KeyRange.prefix(key + b"/queue/")
        self._writers = KeyRange.prefix(key + b"/writers/")
        self._cancel_on_loss = cancel_on_loss

    # -- blocks ------------------------------------------------------------------------------

    def read(self, *, timeout: float | None = None) -> Holding[ReadHeld]:
        """A block that reads: `lock.read(timeout=5)`."""
        return Holding(lambda: self.acquire_read(timeout=timeout), cancel_on_loss=self._cancel_on_loss)

    def write(self, *, timeout: float | None = None) -> Holding[WriteHeld]:
        """A block that writes: `lock.write(timeout=5)`."""
        return Holding(lambda: self.acquire_write(timeout=timeout), cancel_on_loss=self._cancel_on_loss)

    # -- acquiring ---------------------------------------------------------------------------

    async def acquire_read(self, *, timeout: float | None = None) -> ReadHeld:
        """Wait until every writer that came before is gone.  The caller releases what is acquired.

        Raises `TimedOut`; `Unavailable` or `Indeterminate` if the store did not answer, and then it is
        not held.
        """
        what = _what("read", self.name)
        return await acquire(self._context, timeout, self._read, self._try_read, what=what)

    async def acquire_write(self, *, timeout: float | None = None) -> WriteHeld:
        """Wait until all that came before are gone.  Raises what `acquire_read` raises."""
        what = _what("write", self.name)
        return await acquire(self._context, timeout, self._write, self._try_write, what=what)

    async def try_acquire_read(self) -> ReadHeld | None:
        """Acquire a read lock if no writer holds it or waits; None otherwise, at once.

        Raises `TimedOut` if there is no session at the moment.
        """
        now, what = self._context.deadline(0), _what("read", self.name)
        return await in_a_session(self._context, now, self._try_read, what=what)

    async def try_acquire_write(self) -> WriteHeld | None:
        """Acquire the write lock if no client holds the lock or waits; None otherwise, at once.

        Raises `TimedOut` if there is no session at the moment.
        """
        now, what = self._context.deadline(0), _what("write", self.name)
        return await in_a_session(self._context, now, self._try_write, what=what)

    async def contenders(self) -> tuple[ReadWriteContender, ...]:
        """The holders and the waiters of the lock, in order."""
        self._context.check()
        _, (entries,) = await read_all(self._context, self._queue)
        return _in_order(entries)

    # -- one attempt -------------------------------------------------------------------------

    async def _read(self, session: Session) -> ReadHeld:
        with Attempt(self._context, session, self._queue.start) as attempt:
            token = await self._wait_turn(session, attempt, "read")
            return self._reading(session, attempt, token)

    async def _write(self, session: Session) -> WriteHeld:
        with Attempt(self._context, session, self._queue.start, self._writers.start) as attempt:
            token = await self._wait_turn(session, attempt, "write")
            return self._writing(session, attempt, token)

    async def _try_read(self, session: Session) -> ReadHeld | None:
        with Attempt(self._context, session, self._queue.start) as attempt:
            token = await self._join_if_free(session, attempt, "read")
            return None if token is None else self._reading(session, attempt, token)

    async def _try_write(self, session: Session) -> WriteHeld | None:
        with Attempt(self._context, session, self._queue.start, self._writers.start) as attempt:
            token = await self._join_if_free(session, attempt, "write")
            return None if token is None else self._writing(session, attempt, token)

    async def _wait_turn(self, session: Session, attempt: Attempt, kind: Access) -> int:
        """Join, and wait until none that this kind waits for is older: the token."""
        ahead, own = (self._queue, 1) if kind == "write" else (self._writers, 0)
        ops = (*self._joining(kind, session, attempt), newest(ahead, limit=own + 1))
        result = await attempt.send(Txn((), ops))
        found, token = range_at(result, -1).kvs, result.revision
        last = found[own] if len(found) > own else None
        await attempt.wait_turn(ahead, token=token, last=last, revision=token)
        return token

    async def _join_if_free(self, session: Session, attempt: Attempt, kind: Access) -> int | None:
        """Join if there is none that this kind waits for: the token."""
        ahead = self._queue if kind == "write" else self._writers
        nobody = Compare.create_revision(ahead, "=", 0)
        result = await attempt.send(Txn((nobody,), self._joining(kind, session, attempt)))
        return result.revision if result.succeeded else None

    def _joining(self, kind: Access, session: Session, attempt: Attempt) -> tuple[Op, ...]:
        entry = Put(attempt.keys[0], _entry(kind, self._context.identity), session.id)
        return entry, *(Put(marker, b"", session.id) for marker in attempt.keys[1:])

    def _reading(self, session: Session, attempt: Attempt, token: int) -> ReadHeld:
        attempt.check()
        (key,) = attempt.keys
        what = _what("read", self.name)
        return ReadHeld(self._context, session, name=self.name, key=key, token=token, what=what)

    def _writing(self, session: Session, attempt: Attempt, token: int) -> WriteHeld:
        attempt.check()
        key, marker = attempt.keys
        return WriteHeld(self._context, session, name=self.name, key=key, marker=marker, token=token)

    def __repr__(self) -> str:
        return f"<ReadWriteLock {self.name}>"


class _Entry(msgspec.Struct, frozen=True):
    """The value of a contender's key."""

    kind: Access
    identity: str


_entries = codec_of(_Entry)


def _entry(kind: Access, identity: str) -> bytes:
    return _entries.encode(_Entry(kind, identity))


def _what(kind: Access, name: str) -> str:
    return f"the {kind} lock {name}"


def _in_order(kvs: tuple[KeyValue, ...]) -> tuple[ReadWriteContender, ...]:
    found: list[ReadWriteContender] = []
    writers_count = 0
    for kv in sorted(kvs, key=lambda kv: kv.create_revision):
        entry = _entries.decode(kv.key, kv.value)
        is_holding = not writers_count and (entry.kind == "read" or not found)
        writers_count += entry.kind == "write"
        found.append(
            ReadWriteContender(
                entry.kind, entry.identity, kv.create_revision, is_holding, kv.lease, kv.key
            )
        )
    return tuple(found)
