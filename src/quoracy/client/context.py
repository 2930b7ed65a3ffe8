"""The context of recipes: a store, a session, a clock, the identity of this process, and ways to wait.

A recipe gets one of these and nothing else.  It checks that the connection is open and still in the
process that made it; it sends writes that a cancelled caller cannot interrupt; it waits with a timeout
and until the session is lost; it removes keys that an attempt left behind.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from quoracy.blocks import Scope
from quoracy.client.cleanup import Cleanup
from quoracy.client.in_flight import Writes
from quoracy.client.session import Session, SessionRenewal, SessionState, stop
from quoracy.clock import Clock, Timer
from quoracy.errors import Forked, Indeterminate, InvalidRequest, StoreClosed, TimedOut, Unavailable
from quoracy.store.api import Store
from quoracy.store.model import KeyValue, Txn, TxnResult

__all__ = ["RETRY_S", "Context", "Deadline", "TimerWheel", "WaitScope"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

# The pause before a store that did not answer is asked again.
RETRY_S = 0.5

# How long something is held before its key is watched.  A holder that releases sooner learns from the
# release that the key was deleted; the watch begins at the acquisition and misses nothing.
WATCH_AFTER_S = 0.1


class Context:
    """A connection, as recipes see it.

    identity: the name of this client for others, as a contender or as a member of a group.
    """

    def __init__(
        self, store: Store, clock: Clock, *, identity: str, namespace: str | None, session_ttl: float
    ) -> None:
        self.store, self.clock, self.identity = store, clock, identity
        self.namespace = namespace
        self._prefix = b"" if not namespace else namespace.encode() + b"/"
        self._owner = os.getpid()
        self._closed = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._keys_reserved: set[bytes] = set()
        self._attempt_next = 1
        # Reentrant acquisitions, by key and owner.
        self.reentrant: dict[tuple[bytes, object], object] = {}
        self.session_renewal = SessionRenewal(store, clock, ttl_s=session_ttl)
        self.writes = Writes(store)
        self.hold_timers = TimerWheel(clock, WATCH_AFTER_S)
        self.cleanup = Cleanup(store, clock)

    def check(self) -> None:
        """Raise if the connection is closed, or was inherited by a fork."""
        if os.getpid() != self._owner:
            raise Forked(owner=self._owner, here=os.getpid())
        if self._closed:
            raise StoreClosed

    def key(self, name: str) -> bytes:
        """The key of a name, in the namespace of the connection."""
        self.check()
        if not name or name.endswith("/"):
            raise InvalidRequest(
                f"{name!r} is no name. Give one that is not empty and ends without a /."
            )
        return self._prefix + name.encode()

    # -- the session -------------------------------------------------------------------------

    @property
    def state(self) -> SessionState:
        """The state of the session."""
        return self.session_renewal.state

    def on_state(self, listener: Callable[[SessionState], object]) -> Callable[[], None]:
        """Call `listener` with each new state; the function that is returned ends that.

        In coroutines it is called on the loop, in a turn of its own, and must not block.  With
        `quoracy.sync` it is called in a thread for listeners, and may use the connection.
        """
        self.check()
        return self.session_renewal.on_state(listener)

    async def wait_state(self, state: SessionState, *, timeout: float | None = None) -> None:
        """Wait until the session is in that state."""
        self.check()
        with self.wait_scope(f"the state {state.value}", timeout):
            await self.session_renewal.wait_state(state)

    def current_session(self) -> Session | None:
        """The live session, if there is one."""
        self.check()
        return self.session_renewal.current

    async def session(self) -> Session:
        """The live session; after a loss, wait for the next one."""
        self.check()
        return self.session_renewal.current or await self.session_renewal.wait_session()

    # -- asking the store --------------------------------------------------------------------

    def deadline(self, timeout: float | None) -> Deadline:
        """The end of several waits that share one timeout, which begins now."""
        return Deadline(self.clock, timeout)

    def wait_scope(
        self, what: str, timeout: float | Deadline | None, session: Session | None = None
    ) -> WaitScope:
        """A block that waits for `what`.

        It raises `TimedOut`, and `SessionLost` if a session is given and that is lost.
        """
        deadline = timeout if isinstance(timeout, Deadline) else self.deadline(timeout)
        return WaitScope(self.clock, what, deadline, session)

    async def retry(self, ask: Callable[[], Awaitable[_T]], what: str) -> _T:
        """Await `ask()`, again and again while the store does not answer; then its result.

        For a caller that waits anyway: its timeout and its session end this too.  What `ask` writes
        must be conditional on what it has read, so that a write whose answer was lost does no harm.
        """
        while True:
            try:
                return await ask()
            except StoreClosed:
                raise
            except (Unavailable, Indeterminate) as error:
                _log.info("waiting for %s continues: %s", what, error)
                await self.clock.sleep(RETRY_S)

    async def read_key(self, key: bytes) -> KeyValue | None:
        """A key as it is now; None: there is none."""
        self.check()
        kvs = (await self.store.range(key)).kvs
        return kvs[0] if kvs else None

    async def write(self, txn: Txn) -> TxnResult:
        """Carry out a transaction.  A cancelled caller does not interrupt it."""
        self.check()
        return await self.writes.begin(txn).settled()

    # -- keys of attempts --------------------------------------------------------------------

    def reserve_key(self, key: bytes) -> bytes:
        """A key for one attempt of ours: `key` itself, or with a number behind it if it is in use.

        etcd's layout has one key for each lease under a name.  Several tasks that want one lock through
        one connection need one key each, and an attempt whose end is not known yet keeps its own.
        """
        if key in self._keys_reserved:
            self._attempt_next += 1
            key = b"%b-%x" % (key, self._attempt_next)
        self._keys_reserved.add(key)
        return key

    def free_key(self, key: bytes) -> None:
        """The attempt is over, and its key is not in the store."""
        self._keys_reserved.discard(key)

    # -- tasks -------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Run a background task, which is cancelled when the connection is closed.

        An error that it raises is logged; a caller that needs it awaits the task.
        """
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, StoreClosed):
            _log.error("%s failed", task.get_name(), exc_info=error)

    async def begin(self) -> None:
        """Open the first session."""
        await self.session_renewal.begin()

    async def close(self) -> None:
        """Stop everything that was started, and end the session."""
        self._closed = True
        self.hold_timers.close()
        await stop(*self._tasks)
        await self.cleanup.close()
        await self.session_renewal.close()
        await self.writes.close()


class WaitScope(Scope):
    """See `Context.wait_scope`."""

    __slots__ = ("_clock", "_deadline", "_session", "_timer", "_what")

    def __init__(self, clock: Clock, what: str, deadline: Deadline, session: Session | None) -> None:
        super().__init__()
        self._clock, self._what, self._deadline, self._session = clock, what, deadline, session
        self._timer: Timer | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        left_s = self._deadline.left
        if left_s is not None:
            late = TimedOut(self._what, timeout_s=self._deadline.timeout)
            self._timer = self._clock.call_later(left_s, lambda: self.end(late))
        if self._session is not None:
            self._session.add_loss_listener(self, self._session_lost)
        return self

    def _session_lost(self) -> None:
        assert self._session is not None
        self.end(self._session.loss(self._what))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._session is not None:
            self._session.remove_loss_listener(self)
        super().__exit__(kind, error, trace)


class Deadline:
    """A timeout that several waits share, one after the other."""

    __slots__ = ("_clock", "_until", "timeout")

    def __init__(self, clock: Clock, timeout: float | None) -> None:
        if timeout is not None and not timeout >= 0:
            raise InvalidRequest(f"timeout is {timeout}. Give seconds, 0 or more, or None: no limit.")
        self.timeout = math.inf if timeout is None else timeout
        self._clock = clock
        self._until = math.inf if timeout is None else clock.now() + timeout

    @property
    def left(self) -> float | None:
        """The seconds that are left; None: there is no limit."""
        return None if self._until == math.inf else max(0.0, self._until - self._clock.now())


class TimerWheel:
    """One timer for many callbacks: each is called `seconds` after it was added, unless discarded.

    Most locks are released before their key is to be watched; a timer of the loop for each would be
    made and cancelled in each cycle.  The timer is left to expire when no callback is left; it is then
    not set again.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self._next = 1
        self._due: dict[int, tuple[float, Callable[[], None]]] = {}
        self._timer: Timer | None = None

    def add(self, callback: Callable[[], None]) -> int:
        """Call it, `seconds` from now.  Returns the number for `discard`, which is never 0."""
        number = self._next
        self._next += 1
        self._due[number] = (self._clock.now() + self._seconds, callback)
        if self._timer is None:
            # Set in the next turn: the caller has just got what it waited for, and should go on first.
            self._timer = asyncio.get_running_loop().call_soon(self._set)
        return number

    def discard(self, number: int) -> None:
        self._due.pop(number, None)

    def close(self) -> None:
        """Discard all callbacks."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self) -> None:
        """Set the timer for the first callback; without one, for the whole delay."""
        first = next(iter(self._due.values()))[0] if self._due else math.inf
        left_s = min(self._seconds, max(0.0, first - self._clock.now()))
        self._timer = self._clock.call_later(left_s, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.now()
        late = [number for number, (due, _) in self._due.items() if due <= now]
        for number in late:
            entry = self._due.pop(number, None)  # a callback may have discarded it
            if entry is not None:
                entry[1]()
        if self._due and self._timer is None:
            self._set()
