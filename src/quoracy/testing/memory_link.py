"""A link to a store in this process, which fails as a network does: it is cut, or it loses answers.

A `MemoryLink` lies between one connection and the store; a `LinkedStore` is the store as seen through
it.  It behaves as `RemoteStore` does: a request that cannot get through waits for `request_timeout`
seconds of the connection's clock; then a read is `Unavailable`, and a write, which may have left,
`Indeterminate`.

Invariants
    * With no fault, everything goes straight to the store, in the call.
    * Nothing passes while the link is down, in either direction: requests and answers wait.  A watch
      misses nothing.
    * A write whose answer is lost was carried out, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from quoracy.clock import Timer
from quoracy.errors import Indeterminate, QuoracyError, Unavailable
from quoracy.store.api import Store, Watch, WatchOptions
from quoracy.store.completion import Completion, FutureCompletion
from quoracy.store.contention import wait_by_watching
from quoracy.store.coroutines import CoroutineStore, PolledWatch, complete_by_task, ended
from quoracy.store.model import (
    Delete,
    KeyRange,
    Keys,
    LeaseGrant,
    LeaseId,
    LeaseStatus,
    Op,
    Put,
    Range,
    Revision,
    StateHash,
    StoreStatus,
    Txn,
    WaitFirst,
    WatchBatch,
)
from quoracy.store.rules import writes
from quoracy.testing.clock import PausableClock

__all__ = ["LinkedStore", "MemoryLink"]

T = TypeVar("T")


class _Kind(Enum):
    READ = "read"
    RENEWAL = "renewal"  # sent again after a loss, as a read is: it may be done twice
    WRITE = "write"
    KEY_WRITE = "key write"  # one whose answer can be lost on request


class MemoryLink:
    """The way of one connection to a store in this process, which can be broken.

    expire: has the server end a lease; await it, or leave it to the next turn of the loop.
    request_timeout: how many seconds a request may take to get there and back.
    """

    def __init__(
        self,
        clock: PausableClock,
        *,
        expire: Callable[[int], Awaitable[None]],
        request_timeout: float,
    ) -> None:
        self.clock, self.expire = clock, expire
        self._request_timeout_s = request_timeout
        self.carried_count = 0
        self._is_cut = False
        self._answers_to_lose = 0
        self._requests: set[_Request] = set()
        self._waiting: set[Callable[[], None]] = set()

    # -- faults ------------------------------------------------------------------------------

    def partition(self) -> None:
        """Nothing gets through, either way."""
        self._is_cut = True

    def heal(self) -> None:
        """Everything gets through, also what is waiting."""
        self._is_cut = False
        self._let_pass()

    def pause(self) -> None:
        """Stop the connection's process, as far as that is possible from outside of it."""
        self.clock.pause()

    def resume(self) -> None:
        """Let the connection's process go on."""
        self.clock.resume()
        self._let_pass()

    def disconnect(self) -> None:
        """Break the connection: requests in flight are sent again, except for writes, which fail."""
        for request in list(self._requests):
            request.lose()

    def lose_answers(self, count: int) -> None:
        """The next `count` writes of keys are carried out, and their answers lost."""
        self._answers_to_lose = count

    def mend(self) -> None:
        """End every fault."""
        self._answers_to_lose = 0
        self.heal()
        self.resume()

    # -- requests ----------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether something can pass now."""
        return not self._is_cut and not self.clock.is_paused

    async def carry(self, what: str, kind: _Kind, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask the store, and bring back its answer."""
        request = _Request(self, what, kind, self._request_timeout_s)
        self._requests.add(request)
        self.carried_count += 1
        try:
            await request.pass_through()
            try:
                result = await ask()
            except QuoracyError:
                await request.pass_through()
                raise
            if kind is _Kind.KEY_WRITE and self._answers_to_lose > 0:
                self._answers_to_lose -= 1
                raise request.failure("the answer was lost")
            await request.pass_through()
            return result
        finally:
            self._requests.discard(request)
            request.end()

    def when_open(self, call: Callable[[], None]) -> None:
        """Call once, when something can pass again."""
        self._waiting.add(call)

    def forget(self, call: Callable[[], None]) -> None:
        """It need not be called any more."""
        self._waiting.discard(call)

    def _let_pass(self) -> None:
        if not self.is_open:
            return
        for request in list(self._requests):
            request.let_pass()
        waiting, self._waiting = self._waiting, set()
        for call in waiting:
            call()


class _Request:
    """One request on its way, there or back."""

    def __init__(self, link: MemoryLink, what: str, kind: _Kind, timeout_s: float) -> None:
        self._link, self._what, self._kind, self._timeout_s = link, what, kind, timeout_s
        self._waiting: asyncio.Future[None] | None = None
        self._bell: Timer | None = None
        self._is_late = False

    async def pass_through(self) -> None:
        """Wait until the link is open.  Raises what the client of a server raises when it is not."""
        while not self._link.is_open:
            if self._is_late and not self._link.clock.is_paused:
                raise self.failure(f"no answer within {self._timeout_s:g} s")
            if self._bell is None:
                self._bell = self._link.clock.call_later(self._timeout_s, self._late)
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

    def failure(self, why: str) -> QuoracyError:
        if self._kind is _Kind.READ:
            return Unavailable(f"{self._what}: {why}. Is the server reachable?")
        return Indeterminate(
            f"{self._what}: {why}, so it may have been applied or not. Read before you write again."
        )

    def lose(self) -> None:
        """The connection it is on is gone."""
        is_asked_again = self._kind in (_Kind.READ, _Kind.RENEWAL)
        if not is_asked_again and self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(self.failure("the connection was lost"))

    def let_pass(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _late(self) -> None:
        self._is_late = True
        self.let_pass()

    def end(self) -> None:
        if self._bell is not None:
            self._bell.cancel()


class LinkedStore(CoroutineStore):
    """A `Store`, seen through a link."""

    def __init__(self, store: Store, link: MemoryLink) -> None:
        self.link = link
        self._store = store

    def submit(self, op: Put | Delete | Txn, completion: Completion, /) -> None:
        if isinstance(op, Put):
            what, kind = f"put of {op.key!r}", _Kind.KEY_WRITE
        elif isinstance(op, Delete):
            what, kind = f"deletion of {op.keys!r}", _Kind.KEY_WRITE
        else:
            what, kind = "transaction", _Kind.KEY_WRITE if writes((op,)) else _Kind.READ
        self._begin(what, kind, op, completion)

    def read(self, op: Range | WaitFirst, completion: Completion, /) -> None:
        if isinstance(op, Range):
            self._begin(f"range of {op.keys!r}", _Kind.READ, op, completion)
        else:
            complete_by_task(wait_by_watching(self, op.name, op.key, op.token), completion)

    def _begin(self, what: str, kind: _Kind, op: Op, completion: Completion) -> None:
        asked = self._ask(op) if self.link.is_open else None

        def ask() -> Awaitable[Any]:
            return ended(asked or self._ask(op))

        complete_by_task(self.link.carry(what, kind, ask), completion)

    def _ask(self, op: Op) -> FutureCompletion:
        """What the store itself says."""
        answer = FutureCompletion(asyncio.get_running_loop())
        if isinstance(op, Range):
            self._store.read(op, answer)
        else:
            self._store.submit(op, answer)
        return answer

    async def compact(self, at: int) -> None:
        await self._write(f"compaction to {at}", lambda: self._store.compact(at))

    async def grant(self, ttl_s: float, *, id: LeaseId | None = None) -> LeaseGrant:
        return await self._write("grant of a lease", lambda: self._store.grant(ttl_s, id=id))

    async def keep_alive(self, lease: int) -> LeaseGrant:
        return await self.link.carry(
            f"keep-alive of lease {lease:x}", _Kind.RENEWAL, lambda: self._store.keep_alive(lease)
        )

    async def revoke(self, lease: int) -> Revision:
        return await self._write(f"revocation of lease {lease:x}", lambda: self._store.revoke(lease))

    async def time_to_live(self, lease: int, *, keys: bool = False) -> LeaseStatus:
        return await self._ask_for(
            f"time to live of lease {lease:x}", lambda: self._store.time_to_live(lease, keys=keys)
        )

    async def leases(self) -> tuple[LeaseId, ...]:
        return await self._ask_for("list of leases", self._store.leases)

    def watch(self, keys: Keys, **options: Unpack[WatchOptions]) -> Watch:
        return _LinkedWatch(self._store.watch(keys, **options), self.link)

    async def hash(self, *, at: int | None = None) -> StateHash:
        return await self._ask_for("hash", lambda: self._store.hash(at=at))

    async def status(self) -> StoreStatus:
        return await self._ask_for("status", self._store.status)

    async def _ask_for(self, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        return await self.link.carry(what, _Kind.READ, ask)

    async def _write(self, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        return await self.link.carry(what, _Kind.WRITE, ask)


class _LinkedWatch(PolledWatch):
    """A watch whose batches wait while the link is down."""

    def __init__(self, stream: Watch, link: MemoryLink) -> None:
        super().__init__()
        self._stream, self._link = stream, link
        stream.on_ready(self._wake)

    @property
    def keys(self) -> KeyRange:
        return self._stream.keys

    @property
    def revision(self) -> Revision:
        return self._stream.revision

    def request_progress(self) -> None:
        self._stream.request_progress()

    async def __aenter__(self) -> Self:
        await self._link.carry(f"watch of {self.keys!r}", _Kind.READ, _nothing)
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._link.forget(self._wake)
        await self._stream.__aexit__(kind, error, trace)

    def poll(self) -> WatchBatch | None:
        if self._link.is_open:
            return self._stream.poll()
        self._link.when_open(self._wake)
        return None


async def _nothing() -> None:
    """An empty request: it shows whether the store can be reached."""
