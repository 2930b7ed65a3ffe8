"""Redlock for threads and scripts: the same names as in `quoracy.redlock`, without `await`.

Everything is done by the asynchronous Redlock on an event loop in a thread of its own (portal.py),
which also extends what is held.  What differs: nobody can interrupt a thread, so the body of a `with`
goes on after a loss.  `held.check()` and `held.lost` tell it; the block raises the loss at its end.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Never, Self, TypedDict, Unpack

from quoracy.clock import Clock
from quoracy.errors import LockLost, Unsupported
from quoracy.redlock import holding, locking
from quoracy.redlock.portal import Portal

__all__ = ["Held", "Holding", "Lock", "LockOptions", "LostEvent", "Redlock", "RedlockOptions"]


class RedlockOptions(TypedDict, total=False):
    """What `quoracy.redlock.Redlock` takes besides its servers, with its meanings and defaults."""

    namespace: str | None
    server_timeout: float
    retry_delay: float
    drift_factor: float
    connections_max: int
    clock: Clock | None
    rng: random.Random | None


class LockOptions(TypedDict, total=False):
    """What `quoracy.redlock.Redlock.lock` takes besides a name, with its meanings and defaults."""

    ttl: float
    renew: bool
    hold_max: float | None


class Redlock:
    """Locks on one or more independent Redis servers; may be shared between threads.

    with Redlock(servers) as redlock:  # ["redis://10.0.0.1:6379", ...]
        with redlock.lock("reports/nightly", ttl=10).hold(timeout=5) as held:
            held.check()
            write_report()
    """

    def __init__(self, servers: Sequence[str], **options: Unpack[RedlockOptions]) -> None:
        self._redlock = locking.Redlock(servers, **options)
        self._portal = Portal("quoracy-redlock")

    def lock(self, name: str, **options: Unpack[LockOptions]) -> Lock:
        """A lock with this name; nothing is sent before it is acquired."""
        return Lock(self._portal, self._redlock.lock(name, **options))

    def close(self) -> None:
        """Release what is held, finish what was begun, disconnect, end the thread.  Once is enough."""
        if not self._portal.is_closed:
            self._portal.run(self._redlock.close)
            self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Lock:
    """A name to hold.  `with lock as held`, `hold()`, or `acquire()` and `held.release()`."""

    def __init__(self, portal: Portal, lock: locking.Lock) -> None:
        self.name, self.key = lock.name, lock.key
        self._portal, self._lock = portal, lock
        self._entered = threading.local()

    def acquire(self, *, timeout: float | None = None) -> Held:
        """Wait for it, as `quoracy.redlock.Lock.acquire` does."""
        held = self._portal.run(
            lambda: self._lock.acquire(timeout=timeout), undo=lambda held: held.release()
        )
        return Held(self._portal, held)

    def try_acquire(self) -> Held | None:
        """Try once; None: somebody else has it, or tried at the same moment."""
        held = self._portal.run(self._lock.try_acquire, undo=_release_if_any)
        return None if held is None else Held(self._portal, held)

    def hold(self, *, timeout: float | None = None) -> Holding:
        """A block in which the lock is held: `with lock.hold(timeout=5) as held`."""
        return Holding(lambda: self.acquire(timeout=timeout))

    def __enter__(self) -> Held:
        holding = self.hold()
        held = holding.__enter__()
        self._mine().append(holding)
        return held

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._mine().pop().__exit__(kind, error, trace)

    def _mine(self) -> list[Holding]:
        """What this thread has entered and not left."""
        if not hasattr(self._entered, "blocks"):
            self._entered.blocks = []
        mine: list[Holding] = self._entered.blocks
        return mine


class Holding:
    """A block in which a lock is held, once."""

    def __init__(self, acquire: Callable[[], Held]) -> None:
        self._acquire = acquire
        self._held: Held | None = None

    def __enter__(self) -> Held:
        self._held = self._acquire()
        return self._held

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._held is not None
        self._held.release()
        if kind is None and self._held.error is not None:
            raise self._held.error


class Held:
    """One acquisition of one lock; may be passed between threads."""

    def __init__(self, portal: Portal, held: holding.Held) -> None:
        self.name, self.key, self.value = held.name, held.key, held.value
        self.lost = LostEvent(portal, held)
        self._portal, self._held = portal, held

    @property
    def token(self) -> Never:
        """There is none: asking raises `Unsupported`, which says why."""
        raise Unsupported(holding.NO_TOKEN)

    @property
    def is_held(self) -> bool:
        """Whether the lock is held now, by this machine's clock."""
        return self._held.is_held

    @property
    def remaining_s(self) -> float:
        """For how long it is held if nothing extends it; 0 if it is not held."""
        return self._held.remaining_s

    @property
    def error(self) -> LockLost | None:
        """The loss, once it is lost."""
        return self._held.error

    def check(self) -> None:
        """Raise `LockLost` unless the lock is held: for just before something that counts on it."""
        self._portal.check_owner()
        if not self._held.is_held:
            raise self._held.loss()

    def extend(self) -> None:
        """Hold it for a whole time to live from now, as `quoracy.redlock.Held.extend` does."""
        self._portal.run(self._held.extend)

    def release(self) -> None:
        """Give it up on all servers.  Once is enough; a second time does nothing."""
        if not self._portal.is_closed:  # which has released everything
            self._portal.run(self._held.release)


class LostEvent:
    """Set when a lock is lost: a `threading.Event` that only the Redlock sets."""

    def __init__(self, portal: Portal, held: holding.Held) -> None:
        self._portal, self._held = portal, held

    def is_set(self) -> bool:
        return self._held.lost.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, for `timeout` seconds at most; whether it is."""

        async def wait() -> bool:
            try:
                async with asyncio.timeout(timeout):
                    return await self._held.lost.wait()
            except TimeoutError:
                return False

        return self._portal.run(wait)


async def _release_if_any(held: holding.Held | None) -> None:
    if held is not None:
        await held.release()
