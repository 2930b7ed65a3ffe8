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
    * While somebody writes, nobody else reads or writes.
    * Nobody is starved: everyone is served in order of arrival.  Readers that arrive one after the
      other share; a reader that arrives after a writer waits for it, although others still read.
    * A holder's token is larger than that of every holder that came before it.
    * `downgrade` turns a write lock into a read lock in one step: nobody writes in between.
    * No herd: a writer watches the one right before it, a reader the last writer before it.

What it does not promise
    * It is not reentrant, and a read lock cannot become a write lock: two readers who both want that
      would wait for each other.  Release it, acquire the other, and look again at what was read.

How it lies in the store
    name/queue/<session>-<n>      everyone, oldest first; the value says who, and of which kind
    name/writers/<session>-<n>    writers once more, made in the same revision: what readers wait for

    A writer holds the lock when no key of `queue` is older than its own, a reader when none of
    `writers` is.  To downgrade is to leave `writers` and keep the place in `queue`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from quoracy.client.codec import codec_of
from quoracy.client.context import Ground, Patience
from quoracy.client.held import Held, Holding
from quoracy.client.in_flight import Outcome
from quoracy.client.queue_entry import Attempt, in_a_session, newest, read_all
from quoracy.client.session import Session
from quoracy.errors import Indeterminate, TimedOut, Unavailable
from quoracy.store.model import (
    Compare,
    Delete,
    KeyRange,
    KeyValue,
    Op,
    Put,
    RangeResult,
    Txn,
)

__all__ = ["Access", "ReadHeld", "ReadWriteContender", "ReadWriteLock", "WriteHeld"]

Access: TypeAlias = Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class ReadWriteContender:
    """Somebody who holds the lock or waits for it.

    kind: whether it reads or writes, or wants to.
    identity: what it calls itself.
    token: what its fencing token is, or will be.
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
        self, ground: Ground, session: Session, *, name: str, key: bytes, marker: bytes, token: int
    ) -> None:
        super().__init__(ground, session, name=name, key=key, token=token, what=_what("write", name))
        self._marker = marker

    async def downgrade(self) -> None:
        """Go on as a reader: those who wait to read, and come before the next writer, join.

        Nobody writes in between, the token stays, and the block it is held in goes on as before.  Once
        is enough; a second time does nothing.  Raises `LockLost` if it is not held any more.  After
        `Indeterminate` it may have happened: write no more; it may be called again.
        """
        self.check()
        if self.kind == "read":
            return
        ground = self._ground
        put = Put(self.key, _entry("read", ground.identity), self._session.id)
        result = await ground.write(Txn((self.guard(),), (put, Delete(self._marker))))
        if not result.succeeded:
            self.found_gone()
            self.check()
        self.kind, self._what = "read", _what("read", self.name)

    def releasing(self) -> Txn:
        # Whatever became of the key, the marker is ours alone and goes.
        marker = Delete(self._marker)
        return Txn((self.guard(),), (Delete(self.key), marker), (marker,))

    def _begin_release(self) -> Outcome | None:
        outcome = super()._begin_release()
        if outcome is not None:
            outcome.add_done_callback(self._marker_answered)
        return outcome

    def _marker_answered(self, outcome: Outcome) -> None:
        """`Held` sees to its key if it could not be released; the marker is ours to see to."""
        if isinstance(outcome.exception(), Unavailable | Indeterminate):
            self._ground.tidying.remove(self._marker, self._session)


class ReadWriteLock:
    """A read-write lock by name; may be shared, each acquisition has its own handle.

    cancel_on_loss: when the lock is lost inside the block, cancel the body and raise `LockLost`; in
        coroutines only.  False: only `held.lost` is set, and the block raises at its end.
    """

    def __init__(self, ground: Ground, name: str, *, cancel_on_loss: bool = True) -> None:
        self.name = name
        key = ground.key(name)
        self._ground = ground
        self._queue, self._writers = key + b"/queue/", key + b"/writers/"
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
        """Wait until every writer that came before is gone.  Whoever acquires it so releases it.

        Raises `TimedOut`; `Unavailable` or `Indeterminate` if the store could not be asked, and then it
        is not held.
        """
        patience, what = Patience(self._ground.clock, timeout), self._what("read")
        if patience.timeout == 0:
            held = await self.try_acquire_read()
            if held is None:
                raise TimedOut(what, timeout_s=0)
            return held
        return await in_a_session(self._ground, patience, self._read, what=what)

    async def acquire_write(self, *, timeout: float | None = None) -> WriteHeld:
        """Wait until everybody that came before is gone.  Raises what `acquire_read` raises."""
        patience, what = Patience(self._ground.clock, timeout), self._what("write")
        if patience.timeout == 0:
            held = await self.try_acquire_write()
            if held is None:
                raise TimedOut(what, timeout_s=0)
            return held
        return await in_a_session(self._ground, patience, self._write, what=what)

    async def try_acquire_read(self) -> ReadHeld | None:
        """Read if nobody writes and no writer waits; None otherwise, at once.

        Raises `TimedOut` if there is no session at the moment.
        """
        ground, writers = self._ground, KeyRange.prefix(self._writers)

        async def once(session: Session) -> ReadHeld | None:
            with Attempt(ground, session, self._queue) as attempt:
                result = await attempt.send(_if_none(writers, self._joining("read", session, attempt)))
                return self._reading(session, attempt, result.revision) if result.succeeded else None

        return await in_a_session(ground, Patience(ground.clock, 0), once, what=self._what("read"))

    async def try_acquire_write(self) -> WriteHeld | None:
        """Write if nobody has the lock or waits for it; None otherwise, at once.

        Raises `TimedOut` if there is no session at the moment.
        """
        ground, queue = self._ground, KeyRange.prefix(self._queue)

        async def once(session: Session) -> WriteHeld | None:
            with Attempt(ground, session, self._queue, self._writers) as attempt:
                result = await attempt.send(_if_none(queue, self._joining("write", session, attempt)))
                return self._writing(session, attempt, result.revision) if result.succeeded else None

        return await in_a_session(ground, Patience(ground.clock, 0), once, what=self._what("write"))

    async def contenders(self) -> tuple[ReadWriteContender, ...]:
        """Who holds the lock and who waits for it, in order."""
        self._ground.check()
        _, (entries,) = await read_all(self._ground, KeyRange.prefix(self._queue))
        return _in_order(entries)

    # -- one attempt -------------------------------------------------------------------------

    async def _read(self, session: Session) -> ReadHeld:
        writers = KeyRange.prefix(self._writers)
        with Attempt(self._ground, session, self._queue) as attempt:
            joining = self._joining("read", session, attempt)
            result = await attempt.send(Txn((), (*joining, newest(writers))))
            found = result.results[-1]
            assert isinstance(found, RangeResult)
            token, last = result.revision, found.kvs[0] if found.kvs else None
            await attempt.wait_turn(writers, token=token, last=last, revision=token)
            return self._reading(session, attempt, token)

    async def _write(self, session: Session) -> WriteHeld:
        queue = KeyRange.prefix(self._queue)
        with Attempt(self._ground, session, self._queue, self._writers) as attempt:
            joining = self._joining("write", session, attempt)
            result = await attempt.send(Txn((), (*joining, newest(queue, limit=2))))
            found = result.results[-1]
            assert isinstance(found, RangeResult)
            token, last = result.revision, found.kvs[1] if len(found.kvs) > 1 else None
            await attempt.wait_turn(queue, token=token, last=last, revision=token)
            return self._writing(session, attempt, token)

    def _joining(self, kind: Access, session: Session, attempt: Attempt) -> tuple[Op, ...]:
        entry = Put(attempt.keys[0], _entry(kind, self._ground.identity), session.id)
        return entry, *(Put(marker, b"", session.id) for marker in attempt.keys[1:])

    def _reading(self, session: Session, attempt: Attempt, token: int) -> ReadHeld:
        attempt.check()
        (key,) = attempt.keys
        what = self._what("read")
        return ReadHeld(self._ground, session, name=self.name, key=key, token=token, what=what)

    def _writing(self, session: Session, attempt: Attempt, token: int) -> WriteHeld:
        attempt.check()
        key, marker = attempt.keys
        return WriteHeld(self._ground, session, name=self.name, key=key, marker=marker, token=token)

    def _what(self, kind: Access) -> str:
        return _what(kind, self.name)

    def __repr__(self) -> str:
        return f"<ReadWriteLock {self.name}>"


class _Entry(msgspec.Struct, frozen=True):
    """What the key of a contender says of it."""

    kind: Access
    identity: str


_entries = codec_of(_Entry)


def _entry(kind: Access, identity: str) -> bytes:
    return _entries.encode(_Entry(kind, identity))


def _if_none(keys: KeyRange, ops: tuple[Op, ...]) -> Txn:
    return Txn((Compare.create_revision(keys, "=", 0),), ops)


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
