"""A connection: one session, and every recipe by name.

Made by `quoracy.connect`.  Each method makes a small object and asks nobody anything; it may be kept
and shared.  The modules of recipes are imported when they are first asked for.
"""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, TypeVar, overload

from quoracy.client.context import Ground

if TYPE_CHECKING:
    from quoracy.client.recipes.barrier import Barrier
    from quoracy.client.recipes.cache import Cache
    from quoracy.client.recipes.config import Config
    from quoracy.client.recipes.counter import Counter
    from quoracy.client.recipes.double_barrier import DoubleBarrier
    from quoracy.client.recipes.election import Election
    from quoracy.client.recipes.group import Group
    from quoracy.client.recipes.latch import CountDownLatch
    from quoracy.client.recipes.lock import Lock
    from quoracy.client.recipes.once import Once
    from quoracy.client.recipes.priority_queue import PriorityQueue
    from quoracy.client.recipes.queue import Queue
    from quoracy.client.recipes.rate_limit import RateLimit
    from quoracy.client.recipes.rwlock import ReadWriteLock
    from quoracy.client.recipes.semaphore import Semaphore
    from quoracy.client.recipes.singleton import Singleton
    from quoracy.client.recipes.value import DefaultedValue, Value
    from quoracy.client.recipes.work_queue import WorkQueue

__all__ = ["Connection"]

T = TypeVar("T")


class Connection(Ground):
    """What `connect` gives: one session, and every recipe by name.

    It belongs to the process that made it; in coroutines, to the event loop as well.

    store: the store itself, for what no recipe does.
    identity: who this is to others: among contenders, in groups.
    """

    # -- who may -----------------------------------------------------------------------------

    def lock(
        self,
        name: str,
        *,
        cancel_on_loss: bool = True,
        reentrant: bool = False,
        hold_max: float | None = None,
    ) -> Lock:
        """One at a time, in order of arrival, with a fencing token: `q.lock("x")` is a block.

        cancel_on_loss: cancel the body of the block when the lock is lost; in coroutines only.
        reentrant: whoever holds it may enter it again.
        hold_max: the most seconds it may be held.
        """
        from quoracy.client.recipes.lock import Lock

        return Lock(self, name, cancel_on_loss=cancel_on_loss, reentrant=reentrant, hold_max=hold_max)

    def rwlock(self, name: str, *, cancel_on_loss: bool = True) -> ReadWriteLock:
        """Many read or one writes, in order of arrival: `q.rwlock("x").read()` is a block."""
        from quoracy.client.recipes.rwlock import ReadWriteLock

        return ReadWriteLock(self, name, cancel_on_loss=cancel_on_loss)

    def semaphore(
        self, name: str, size: int | None = None, *, cancel_on_loss: bool = True
    ) -> Semaphore:
        """So many at a time, in order of arrival: `q.semaphore("x", 3)` is a block.

        size: how many; it is kept in the store, and whoever gives none takes what is there.
        """
        from quoracy.client.recipes.semaphore import Semaphore

        return Semaphore(self, name, size, cancel_on_loss=cancel_on_loss)

    def election(self, name: str, *, cancel_on_loss: bool = True) -> Election:
        """One leads, the others stand by: `q.election("x").lead("me")` is a block."""
        from quoracy.client.recipes.election import Election

        return Election(self, name, cancel_on_loss=cancel_on_loss)

    def singleton(
        self,
        name: str,
        *,
        restart: bool = False,
        restart_first: float = 1.0,
        restart_max: float = 60.0,
    ) -> Singleton:
        """Run a function in one process at a time, moved on loss: `@q.singleton("x")`.

        restart: when it raises, run it again after a pause of `restart_first` to `restart_max` seconds.
        """
        from quoracy.client.recipes.singleton import Singleton

        return Singleton(
            self, name, restart=restart, restart_first=restart_first, restart_max=restart_max
        )

    @overload
    def once(self, name: str) -> Once[None]: ...
    @overload
    def once(self, name: str, type: type[T]) -> Once[T]: ...
    def once(self, name: str, type: type[T] = NoneType) -> Once[T]:  # type: ignore[assignment]
        """A step done once ever, and its result remembered: `q.once("x", int).run(step)`."""
        from quoracy.client.recipes.once import Once

        return Once(self, name, type)

    def rate_limit(self, name: str, *, rate: float, burst: float = 1) -> RateLimit:
        """So much a second, shared by everyone: `q.rate_limit("x", rate=100).take()`."""
        from quoracy.client.recipes.rate_limit import RateLimit

        return RateLimit(self, name, rate=rate, burst=burst)

    # -- waiting for each other --------------------------------------------------------------

    def barrier(self, name: str) -> Barrier:
        """Everyone waits while it is raised: `q.barrier("x").wait()`."""
        from quoracy.client.recipes.barrier import Barrier

        return Barrier(self, name)

    def double_barrier(self, name: str, count: int, *, cancel_on_loss: bool = True) -> DoubleBarrier:
        """So many begin together and end together: `q.double_barrier("x", 5)` is a block."""
        from quoracy.client.recipes.double_barrier import DoubleBarrier

        return DoubleBarrier(self, name, count, cancel_on_loss=cancel_on_loss)

    def latch(self, name: str, count: int | None = None) -> CountDownLatch:
        """Opens when it was counted down so often: `q.latch("x", 3).wait()`."""
        from quoracy.client.recipes.latch import CountDownLatch

        return CountDownLatch(self, name, count)

    # -- handing over ------------------------------------------------------------------------

    @overload
    def queue(self, name: str) -> Queue[bytes]: ...
    @overload
    def queue(self, name: str, type: type[T]) -> Queue[T]: ...
    def queue(self, name: str, type: type[T] = bytes) -> Queue[T]:  # type: ignore[assignment]
        """First in, first out, among processes: `q.queue("x", Job).get()`."""
        from quoracy.client.recipes.queue import Queue

        return Queue(self, name, type)

    @overload
    def priority_queue(self, name: str) -> PriorityQueue[bytes]: ...
    @overload
    def priority_queue(self, name: str, type: type[T]) -> PriorityQueue[T]: ...
    def priority_queue(
        self,
        name: str,
        type: type[T] = bytes,  # type: ignore[assignment]
    ) -> PriorityQueue[T]:
        """The smallest priority first: `q.priority_queue("x", Job).put(job, priority=1)`."""
        from quoracy.client.recipes.priority_queue import PriorityQueue

        return PriorityQueue(self, name, type)

    @overload
    def work_queue(
        self,
        name: str,
        *,
        attempts_max: int | None = 5,
        cancel_on_loss: bool = True,
        hold_max: float | None = None,
    ) -> WorkQueue[bytes]: ...
    @overload
    def work_queue(
        self,
        name: str,
        type: type[T],
        *,
        attempts_max: int | None = 5,
        cancel_on_loss: bool = True,
        hold_max: float | None = None,
    ) -> WorkQueue[T]: ...
    def work_queue(
        self,
        name: str,
        type: type[T] = bytes,  # type: ignore[assignment]
        *,
        attempts_max: int | None = 5,
        cancel_on_loss: bool = True,
        hold_max: float | None = None,
    ) -> WorkQueue[T]:
        """At least once: what a dead worker had claimed goes to another: `work.claim()` is a block."""
        from quoracy.client.recipes.work_queue import WorkQueue

        return WorkQueue(
            self,
            name,
            type,
            attempts_max=attempts_max,
            cancel_on_loss=cancel_on_loss,
            hold_max=hold_max,
        )

    # -- knowing the same --------------------------------------------------------------------

    def counter(self, name: str, *, remember: float = 600.0) -> Counter:
        """A shared number: `q.counter("x").add(1)`.

        remember: for how many seconds the ids of requests are known, so that they can be repeated.
        """
        from quoracy.client.recipes.counter import Counter

        return Counter(self, name, remember=remember)

    @overload
    def value(self, name: str) -> Value[bytes]: ...
    @overload
    def value(self, name: str, type: type[T]) -> Value[T]: ...
    @overload
    def value(self, name: str, type: type[T], *, default: T) -> DefaultedValue[T]: ...
    def value(
        self,
        name: str,
        type: type[T] = bytes,  # type: ignore[assignment]
        *,
        default: T | None = None,
    ) -> Value[T]:
        """A shared value of a type: `q.value("x", int, default=0).update(lambda n: n + 1)`."""
        from quoracy.client.recipes.value import DefaultedValue, Value

        if default is None:
            return Value(self, name, type)
        return DefaultedValue(self, name, type, default)

    def config(self, name: str, type: type[T], *, stale_after: float = 10.0) -> Config[T]:
        """A typed section of keys, kept up to date: `q.config("app", Settings)` is a block.

        stale_after: how many seconds of silence of the server make it `is_stale`.
        """
        from quoracy.client.recipes.config import Config

        return Config(self, name, type, stale_after=stale_after)

    @overload
    def cache(
        self,
        prefix: str,
        *,
        entries_max: int = 100_000,
        bytes_max: int = 64 * 1024 * 1024,
        stale_after: float = 10.0,
    ) -> Cache[bytes]: ...
    @overload
    def cache(
        self,
        prefix: str,
        type: type[T],
        *,
        entries_max: int = 100_000,
        bytes_max: int = 64 * 1024 * 1024,
        stale_after: float = 10.0,
    ) -> Cache[T]: ...
    def cache(
        self,
        prefix: str,
        type: type[T] = bytes,  # type: ignore[assignment]
        *,
        entries_max: int = 100_000,
        bytes_max: int = 64 * 1024 * 1024,
        stale_after: float = 10.0,
    ) -> Cache[T]:
        """Everything under a prefix, mirrored here: `q.cache("services/")` is a block.

        entries_max, bytes_max: what it may hold; beyond that it refuses, and says so.
        """
        from quoracy.client.recipes.cache import Cache

        return Cache(
            self, prefix, type, entries_max=entries_max, bytes_max=bytes_max, stale_after=stale_after
        )

    @overload
    def group(self, name: str) -> Group[dict[str, str]]: ...
    @overload
    def group(self, name: str, type: type[T]) -> Group[T]: ...
    def group(
        self,
        name: str,
        type: type[T] = dict[str, str],  # type: ignore[assignment]
    ) -> Group[T]:
        """Who is there, with something about each: `q.group("x").join({"zone": "a"})`."""
        from quoracy.client.recipes.group import Group

        return Group(self, name, type)

    def __repr__(self) -> str:
        return f"<Connection {self.identity} {self.state.value}>"
