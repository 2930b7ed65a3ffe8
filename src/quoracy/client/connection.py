"""A connection: one session, and every recipe by name.

Made by `quoracy.connect`.  Each method makes a small object without asking the store; it may be kept
and shared.
"""

from __future__ import annotations

from types import NoneType
from typing import TypeVar, overload

from quoracy.client.context import Context
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


class Connection(Context):
    """A connection as `connect` returns it: one session, and every recipe by name.

    It belongs to the process that made it; in coroutines, to the event loop as well.

    store: the store itself, for everything that no recipe does.
    identity: the name of this client for others, as a contender or as a member of a group.
    """

    # -- locks and limits --------------------------------------------------------------------

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
        reentrant: its holder may enter it again.
        hold_max: the most seconds it may be held.
        """
        return Lock(self, name, cancel_on_loss=cancel_on_loss, reentrant=reentrant, hold_max=hold_max)

    def rwlock(self, name: str, *, cancel_on_loss: bool = True) -> ReadWriteLock:
        """Many read or one writes, in order of arrival: `q.rwlock("x").read()` is a block."""
        return ReadWriteLock(self, name, cancel_on_loss=cancel_on_loss)

    def semaphore(
        self, name: str, size: int | None = None, *, cancel_on_loss: bool = True
    ) -> Semaphore:
        """A number at a time, in order of arrival: `q.semaphore("x", 3)` is a block.

        size: the number; it is kept in the store, and a client that gives none uses that.
        """
        return Semaphore(self, name, size, cancel_on_loss=cancel_on_loss)

    def election(self, name: str, *, cancel_on_loss: bool = True) -> Election:
        """One leads, the others stand by: `q.election("x").lead("me")` is a block."""
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
        return Singleton(
            self, name, restart=restart, restart_first=restart_first, restart_max=restart_max
        )

    @overload
    def once(self, name: str) -> Once[None]: ...
    @overload
    def once(self, name: str, type: type[T]) -> Once[T]: ...
    def once(self, name: str, type: type[T] = NoneType) -> Once[T]:  # type: ignore[assignment]
        """A step that is done once, and its result remembered: `q.once("x", int).run(step)`."""
        return Once(self, name, type)

    def rate_limit(self, name: str, *, rate: float, burst: float = 1) -> RateLimit:
        """A number per second, shared by all clients: `q.rate_limit("x", rate=100).take()`."""
        return RateLimit(self, name, rate=rate, burst=burst)

    # -- barriers ----------------------------------------------------------------------------

    def barrier(self, name: str) -> Barrier:
        """Clients wait while it is raised: `q.barrier("x").wait()`."""
        return Barrier(self, name)

    def double_barrier(self, name: str, count: int, *, cancel_on_loss: bool = True) -> DoubleBarrier:
        """A number begin together and end together: `q.double_barrier("x", 5)` is a block."""
        return DoubleBarrier(self, name, count, cancel_on_loss=cancel_on_loss)

    def latch(self, name: str, count: int | None = None) -> CountDownLatch:
        """Opens when it was counted down to zero: `q.latch("x", 3).wait()`."""
        return CountDownLatch(self, name, count)

    # -- queues ------------------------------------------------------------------------------

    @overload
    def queue(self, name: str) -> Queue[bytes]: ...
    @overload
    def queue(self, name: str, type: type[T]) -> Queue[T]: ...
    def queue(self, name: str, type: type[T] = bytes) -> Queue[T]:  # type: ignore[assignment]
        """First in, first out, among processes: `q.queue("x", Job).get()`."""
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
        """Work that is done at least once, also if a worker dies: `work.claim()` is a block."""
        return WorkQueue(
            self,
            name,
            type,
            attempts_max=attempts_max,
            cancel_on_loss=cancel_on_loss,
            hold_max=hold_max,
        )

    # -- shared state ------------------------------------------------------------------------

    def counter(self, name: str, *, remember: float = 600.0) -> Counter:
        """A shared number: `q.counter("x").add(1)`.

        remember: the seconds for which ids of requests are remembered, so that they can be repeated.
        """
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
        if default is None:
            return Value(self, name, type)
        return DefaultedValue(self, name, type, default)

    def config(self, name: str, type: type[T], *, stale_after: float = 10.0) -> Config[T]:
        """Typed settings, kept up to date: `q.config("app", Settings)` is a block.

        stale_after: after that many seconds without a message from the server it `is_stale`.
        """
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

        entries_max, bytes_max: the most it holds; beyond that it raises `TooLarge`.
        """
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
        """The members that are present, with metadata: `q.group("x").join({"zone": "a"})`."""
        return Group(self, name, type)

    def __repr__(self) -> str:
        return f"<Connection {self.identity} {self.state.value}>"
