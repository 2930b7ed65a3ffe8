"""Generated: the classes of `quoracy.connect`, for threads.

Do not change it by hand: run `python -m quoracy.threads.generator`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any, TypeVar, cast, overload

from quoracy.client.connection import Connection as AsyncConnection
from quoracy.client.recipes.value import DefaultedValue as AsyncDefaultedValue
from quoracy.client.session import SessionState
from quoracy.clock import Clock
from quoracy.connecting import CLOSE_S
from quoracy.connecting import connect as async_connect
from quoracy.remote.urls import TlsOptions
from quoracy.sync.recipes import (
    Barrier,
    Cache,
    Config,
    CountDownLatch,
    Counter,
    DefaultedValue,
    DoubleBarrier,
    Election,
    Group,
    Lock,
    Once,
    PriorityQueue,
    Queue,
    RateLimit,
    ReadWriteLock,
    Semaphore,
    Singleton,
    Value,
    WorkQueue,
)
from quoracy.sync.store import Store
from quoracy.threads.portal import Portal
from quoracy.threads.proxies import Attribute, ConnectionProxy, refuse_others

T = TypeVar("T")


class Connection(ConnectionProxy[AsyncConnection]):
    """A connection as `connect` returns it: one session, and every recipe by name.

    It belongs to the process that made it; in coroutines, to the event loop as well.

    store: the store itself, for everything that no recipe does.
    identity: the name of this client for others, as a contender or as a member of a group.
    """

    def lock(self, name: str, *, reentrant: bool = False, hold_max: float | None = None) -> Lock:
        """One at a time, in order of arrival, with a fencing token: `q.lock("x")` is a block.

        cancel_on_loss: cancel the body of the block when the lock is lost; in coroutines only.
        reentrant: its holder may enter it again.
        hold_max: the most seconds it may be held.
        """
        return Lock(
            self._portal,
            self._portal.call(lambda: self._it.lock(name, reentrant=reentrant, hold_max=hold_max)),
        )

    def rwlock(self, name: str) -> ReadWriteLock:
        """Many read or one writes, in order of arrival: `q.rwlock("x").read()` is a block."""
        return ReadWriteLock(self._portal, self._portal.call(lambda: self._it.rwlock(name)))

    def semaphore(self, name: str, size: int | None = None) -> Semaphore:
        """A number at a time, in order of arrival: `q.semaphore("x", 3)` is a block.

        size: the number; it is kept in the store, and a client that gives none uses that.
        """
        return Semaphore(self._portal, self._portal.call(lambda: self._it.semaphore(name, size)))

    def election(self, name: str) -> Election:
        """One leads, the others stand by: `q.election("x").lead("me")` is a block."""
        return Election(self._portal, self._portal.call(lambda: self._it.election(name)))

    def singleton(
        self, name: str, *, restart: bool = False, restart_first: float = 1.0, restart_max: float = 60.0
    ) -> Singleton:
        """Run a function in one process at a time, moved on loss: `@q.singleton("x")`.

        restart: when it raises, run it again after a pause of `restart_first` to `restart_max` seconds.
        """
        return Singleton(
            self._portal,
            self._portal.call(
                lambda: self._it.singleton(
                    name, restart=restart, restart_first=restart_first, restart_max=restart_max
                )
            ),
        )

    @overload
    def once(self, name: str) -> Once[None]: ...
    @overload
    def once(self, name: str, type: type[T]) -> Once[T]: ...
    def once(self, name: str, type: Any = NoneType) -> Once[T]:
        """A step that is done once, and its result remembered: `q.once("x", int).run(step)`."""
        return Once(self._portal, self._portal.call(lambda: cast(Any, self._it).once(name, type)))

    def rate_limit(self, name: str, *, rate: float, burst: float = 1) -> RateLimit:
        """A number per second, shared by all clients: `q.rate_limit("x", rate=100).take()`."""
        return RateLimit(
            self._portal, self._portal.call(lambda: self._it.rate_limit(name, rate=rate, burst=burst))
        )

    def barrier(self, name: str) -> Barrier:
        """Clients wait while it is raised: `q.barrier("x").wait()`."""
        return Barrier(self._portal, self._portal.call(lambda: self._it.barrier(name)))

    def double_barrier(self, name: str, count: int) -> DoubleBarrier:
        """A number begin together and end together: `q.double_barrier("x", 5)` is a block."""
        return DoubleBarrier(
            self._portal, self._portal.call(lambda: self._it.double_barrier(name, count))
        )

    def latch(self, name: str, count: int | None = None) -> CountDownLatch:
        """Opens when it was counted down to zero: `q.latch("x", 3).wait()`."""
        return CountDownLatch(self._portal, self._portal.call(lambda: self._it.latch(name, count)))

    @overload
    def queue(self, name: str) -> Queue[bytes]: ...
    @overload
    def queue(self, name: str, type: type[T]) -> Queue[T]: ...
    def queue(self, name: str, type: Any = bytes) -> Queue[T]:
        """First in, first out, among processes: `q.queue("x", Job).get()`."""
        return Queue(self._portal, self._portal.call(lambda: cast(Any, self._it).queue(name, type)))

    @overload
    def priority_queue(self, name: str) -> PriorityQueue[bytes]: ...
    @overload
    def priority_queue(self, name: str, type: type[T]) -> PriorityQueue[T]: ...
    def priority_queue(self, name: str, type: Any = bytes) -> PriorityQueue[T]:
        """The smallest priority first: `q.priority_queue("x", Job).put(job, priority=1)`."""
        return PriorityQueue(
            self._portal, self._portal.call(lambda: cast(Any, self._it).priority_queue(name, type))
        )

    @overload
    def work_queue(
        self, name: str, *, attempts_max: int | None = 5, hold_max: float | None = None
    ) -> WorkQueue[bytes]: ...
    @overload
    def work_queue(
        self, name: str, type: type[T], *, attempts_max: int | None = 5, hold_max: float | None = None
    ) -> WorkQueue[T]: ...
    def work_queue(
        self,
        name: str,
        type: Any = bytes,
        *,
        attempts_max: int | None = 5,
        hold_max: float | None = None,
    ) -> WorkQueue[T]:
        """Work that is done at least once, also if a worker dies: `work.claim()` is a block."""
        return WorkQueue(
            self._portal,
            self._portal.call(
                lambda: cast(Any, self._it).work_queue(
                    name, type, attempts_max=attempts_max, hold_max=hold_max
                )
            ),
        )

    def counter(self, name: str, *, remember: float = 600.0) -> Counter:
        """A shared number: `q.counter("x").add(1)`.

        remember: the seconds for which ids of requests are remembered, so that they can be repeated.
        """
        return Counter(
            self._portal, self._portal.call(lambda: self._it.counter(name, remember=remember))
        )

    @overload
    def value(self, name: str) -> Value[bytes]: ...
    @overload
    def value(self, name: str, type: type[T]) -> Value[T]: ...
    @overload
    def value(self, name: str, type: type[T], *, default: T) -> DefaultedValue[T]: ...
    def value(self, name: str, type: Any = bytes, *, default: T | None = None) -> Value[T]:
        """A shared value of a type: `q.value("x", int, default=0).update(lambda n: n + 1)`."""
        it: Any = self._portal.call(lambda: cast(Any, self._it).value(name, type, default=default))
        if isinstance(it, AsyncDefaultedValue):
            return DefaultedValue(self._portal, it)
        return Value(self._portal, it)

    def config(self, name: str, type: type[T], *, stale_after: float = 10.0) -> Config[T]:
        """Typed settings, kept up to date: `q.config("app", Settings)` is a block.

        stale_after: after that many seconds without a message from the server it `is_stale`.
        """
        return Config(
            self._portal,
            self._portal.call(lambda: self._it.config(name, type, stale_after=stale_after)),
        )

    @overload
    def cache(
        self,
        prefix: str,
        *,
        entries_max: int = 100000,
        bytes_max: int = 64 * 1024 * 1024,
        stale_after: float = 10.0,
    ) -> Cache[bytes]: ...
    @overload
    def cache(
        self,
        prefix: str,
        type: type[T],
        *,
        entries_max: int = 100000,
        bytes_max: int = 64 * 1024 * 1024,
        stale_after: float = 10.0,
    ) -> Cache[T]: ...
    def cache(
        self,
        prefix: str,
        type: Any = bytes,
        *,
        entries_max: int = 100000,
        bytes_max: int = 64 * 1024 * 1024,
        stale_after: float = 10.0,
    ) -> Cache[T]:
        """Everything under a prefix, mirrored here: `q.cache("services/")` is a block.

        entries_max, bytes_max: the most it holds; beyond that it raises `TooLarge`.
        """
        return Cache(
            self._portal,
            self._portal.call(
                lambda: cast(Any, self._it).cache(
                    prefix, type, entries_max=entries_max, bytes_max=bytes_max, stale_after=stale_after
                )
            ),
        )

    @overload
    def group(self, name: str) -> Group[dict[str, str]]: ...
    @overload
    def group(self, name: str, type: type[T]) -> Group[T]: ...
    def group(self, name: str, type: Any = dict[str, str]) -> Group[T]:
        """The members that are present, with metadata: `q.group("x").join({"zone": "a"})`."""
        return Group(self._portal, self._portal.call(lambda: cast(Any, self._it).group(name, type)))

    @property
    def store(self) -> Store:
        return Store(self._portal, self._it.store)

    identity = Attribute[str]()
    namespace = Attribute[str | None]()

    @property
    def state(self) -> SessionState:
        """The state of the session."""
        return self._portal.call(lambda: self._it.state)

    def on_state(self, listener: Callable[[SessionState], object]) -> Callable[[], None]:
        """Call `listener` with each new state; the function that is returned ends that.

        In coroutines it is called on the loop, in a turn of its own, and must not block.  With
        `quoracy.sync` it is called in a thread for listeners, and may use the connection.
        """
        return self._portal.ending(
            self._portal.call(lambda: self._it.on_state(self._portal.listener(listener)))
        )

    def wait_state(self, state: SessionState, *, timeout: float | None = None) -> None:
        """Wait until the session is in that state."""
        self._portal.run(lambda: self._it.wait_state(state, timeout=timeout))


def connect(
    where: str | Store,
    *,
    session_ttl: float = 10.0,
    identity: str | None = None,
    namespace: str | None = None,
    tls: TlsOptions | None = None,
    user: str | None = None,
    password: str | None = None,
    request_timeout: float | None = None,
    close_timeout: float = CLOSE_S,
    clock: Clock | None = None,
) -> Connection:
    """A connection, with a session of its own: locks, elections and all the other recipes.

    where: a URL as for `open_store` (`memory:`, `sqlite:PATH`, `quoracy://HOST`, `etcd://H1,H2,H3`), or
        a store that is open already, for several connections on one store in this process.
    session_ttl: how many seconds after this process dies, or is cut off, what it holds is free again.
        The server may make it longer (etcd: at least 2).
    identity: who this is to others; by default host name and process id.
    namespace: put before every name, with a `/`.
    request_timeout: the most a single request to a server may take.
    close_timeout: the most that leaving the block takes.

    In coroutines (with `quoracy.sync`, the same without `async`):

        async with quoracy.connect("memory:") as q:
            async with q.lock("reports/nightly") as held:
                print(held.token)

    Leaving the block ends the session: everything held is free at once.  Raises what `open_store`
    raises, and `Unavailable` if the server cannot be reached.
    """

    refuse_others(where)
    portal = Portal()
    it = portal.open(
        lambda: async_connect(
            where._it if isinstance(where, Store) else where,
            session_ttl=session_ttl,
            identity=identity,
            namespace=namespace,
            tls=tls,
            user=user,
            password=password,
            request_timeout=request_timeout,
            close_timeout=close_timeout,
            clock=clock,
        ),
        close_timeout,
    )
    return Connection(portal, it)
