"""What a recipe stands on: a store, a session, a clock, a name for this process, and how to wait.

Recipes get one of these and nothing else.  It checks that the connection is open and still in the
process that made it; it sends writes that nobody can half cancel; it waits with a timeout and with an
eye on the session; it removes what was left behind.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from quoracy.blocks import Scope
from quoracy.client.cleanup import Tidying
from quoracy.client.in_flight import Writes
from quoracy.client.session import Session, stop
from quoracy.client.session_renewal import SessionState, Succession
from quoracy.client.timer_wheel import Reminders
from quoracy.clock import Clock, Timer
from quoracy.errors import Forked, InvalidRequest, StoreClosed, TimedOut
from quoracy.store.api import Store
from quoracy.store.model import Txn, TxnResult

__all__ = ["Ground", "Patience", "Waiting"]

_log = logging.getLogger(__name__)

# How long something is held before its key is watched.  Whoever holds it for less learns from the
# release that it was deleted; the watch begins at the acquisition and misses nothing.
WATCH_AFTER_S = 0.1


class Ground:
    """A connection, as recipes see it.

    identity: who this is to others: among contenders, in groups.
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
        self._names_taken: set[bytes] = set()
        self._attempt_next = 1
        # Reentrant acquisitions: what is held under a key by an owner.
        self.entered: dict[tuple[bytes, object], object] = {}
        self.succession = Succession(store, clock, ttl_s=session_ttl)
        self.writes = Writes(store)
        self.held_long = Reminders(clock, WATCH_AFTER_S)
        self.tidying = Tidying(store, clock)

    # -- is this still ours to use -----------------------------------------------------------

    def check(self) -> None:
        """Raise if the connection is closed, or was inherited with a fork."""
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
        """How the session is doing."""
        return self.succession.state

    def on_state(self, listener: Callable[[SessionState], object]) -> Callable[[], None]:
        """Call `listener` with each new state; what is returned ends that.

        In coroutines it is called on the loop, in a turn of its own, and must not block.  With
        `quoracy.sync` it is called in a thread for listeners, and may use the connection.
        """
        self.check()
        return self.succession.on_state(listener)

    async def wait_state(self, state: SessionState, *, timeout: float | None = None) -> None:
        """Wait until the session is in that state."""
        self.check()
        with self.waiting(f"the state {state.value}", timeout):
            await self.succession.wait(state)

    def session_now(self) -> Session | None:
        """The session that lives, if one does."""
        self.check()
        return self.succession.current

    async def session(self) -> Session:
        """The session that lives; after a loss, the next one."""
        self.check()
        return self.succession.current or await self.succession.live()

    # -- waiting and writing -----------------------------------------------------------------

    def waiting(
        self, what: str, timeout: float | Patience | None, session: Session | None = None
    ) -> Waiting:
        """A block that waits for `what`: raises `TimedOut`, and `SessionLost` if a session is given."""
        patience = timeout if isinstance(timeout, Patience) else Patience(self.clock, timeout)
        return Waiting(self.clock, what, patience, session)

    async def write(self, txn: Txn) -> TxnResult:
        """Carry out a transaction.  Who waits for it may be cancelled; the transaction is not."""
        self.check()
        return await self.writes.begin(txn).settled()

    # -- names for attempts ------------------------------------------------------------------

    def take_key(self, key: bytes) -> bytes:
        """A key for one attempt of ours: `key` itself, or with a number behind it if it is in use.

        etcd's layout has one key for each lease under a name; several tasks that want one lock through
        one connection need one each, and an attempt whose end is not known yet keeps its own.
        """
        if key in self._names_taken:
            self._attempt_next += 1
            key = b"%b-%x" % (key, self._attempt_next)
        self._names_taken.add(key)
        return key

    def retake_key(self, key: bytes) -> bool:
        """Take a key that was taken before; False: it is in use."""
        if key in self._names_taken:
            return False
        self._names_taken.add(key)
        return True

    def free_key(self, key: bytes) -> None:
        """The attempt is over, and nothing of it is left in the store."""
        self._names_taken.discard(key)

    # -- tasks -------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Run something beside everything else, for as long as the connection is open at most.

        What it raises is logged: whoever cares about it waits for the task.
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

    # -- beginning and end -------------------------------------------------------------------

    async def begin(self) -> None:
        """The first session."""
        await self.succession.begin()

    async def close(self) -> None:
        """Stop everything that was started, and end the session."""
        self._closed = True
        self.held_long.close()
        await stop(*self._tasks)
        await self.tidying.close()
        await self.succession.close()
        await self.writes.close()


class Waiting(Scope):
    """See `Ground.waiting`."""

    __slots__ = ("_bell", "_clock", "_patience", "_session", "_what")

    def __init__(self, clock: Clock, what: str, patience: Patience, session: Session | None) -> None:
        super().__init__()
        self._clock, self._what, self._patience, self._session = clock, what, patience, session
        self._bell: Timer | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        left_s = self._patience.left
        if left_s is not None:
            late = TimedOut(self._what, timeout_s=self._patience.timeout)
            self._bell = self._clock.call_later(left_s, lambda: self.end(late))
        if self._session is not None:
            self._session.tell_loss(self, self._session_lost)
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
        if self._bell is not None:
            self._bell.cancel()
        if self._session is not None:
            self._session.forget(self)
        if self.left(kind):
            assert self.error is not None
            raise self.error from error


class Patience:
    """A timeout that is used up by several waits, one after the other."""

    __slots__ = ("_clock", "_deadline", "timeout")

    def __init__(self, clock: Clock, timeout: float | None) -> None:
        if timeout is not None and not timeout >= 0:
            raise InvalidRequest(f"timeout is {timeout}. Give seconds, 0 or more, or None: no limit.")
        self.timeout = math.inf if timeout is None else timeout
        self._clock = clock
        self._deadline = math.inf if timeout is None else clock.now() + timeout

    @property
    def left(self) -> float | None:
        """What is left of it; None: no end."""
        return None if self._deadline == math.inf else max(0.0, self._deadline - self._clock.now())
