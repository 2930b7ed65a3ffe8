"""Generated: the classes of `quoracy.connect`, for threads.

Do not change it by hand: run `python -m quoracy.threads.generator`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar, cast, overload

from quoracy.client.contender import Contender
from quoracy.client.held import Held as AsyncHeld
from quoracy.client.job import Job as AsyncJob
from quoracy.client.recipes.barrier import Barrier as AsyncBarrier
from quoracy.client.recipes.cache import Cache as AsyncCache
from quoracy.client.recipes.cache import CacheBatch, CacheEntry
from quoracy.client.recipes.config import Config as AsyncConfig
from quoracy.client.recipes.config import ConfigChange
from quoracy.client.recipes.counter import Counter as AsyncCounter
from quoracy.client.recipes.double_barrier import DoubleBarrier as AsyncDoubleBarrier
from quoracy.client.recipes.double_barrier import Entered as AsyncEntered
from quoracy.client.recipes.election import Election as AsyncElection
from quoracy.client.recipes.election import Leader
from quoracy.client.recipes.election import Term as AsyncTerm
from quoracy.client.recipes.group import Group as AsyncGroup
from quoracy.client.recipes.group import GroupChange, Member, MembershipEvent
from quoracy.client.recipes.group import Membership as AsyncMembership
from quoracy.client.recipes.latch import CountDownLatch as AsyncCountDownLatch
from quoracy.client.recipes.lock import Lock as AsyncLock
from quoracy.client.recipes.once import Once as AsyncOnce
from quoracy.client.recipes.priority_queue import PriorityQueue as AsyncPriorityQueue
from quoracy.client.recipes.queue import Queue as AsyncQueue
from quoracy.client.recipes.rate_limit import RateLimit as AsyncRateLimit
from quoracy.client.recipes.rwlock import Access, ReadWriteContender
from quoracy.client.recipes.rwlock import ReadHeld as AsyncReadHeld
from quoracy.client.recipes.rwlock import ReadWriteLock as AsyncReadWriteLock
from quoracy.client.recipes.rwlock import WriteHeld as AsyncWriteHeld
from quoracy.client.recipes.semaphore import Semaphore as AsyncSemaphore
from quoracy.client.recipes.semaphore import SemaphoreContender
from quoracy.client.recipes.semaphore import Share as AsyncShare
from quoracy.client.recipes.singleton import Singleton as AsyncSingleton
from quoracy.client.recipes.value import Change, Versioned
from quoracy.client.recipes.value import DefaultedValue as AsyncDefaultedValue
from quoracy.client.recipes.value import Value as AsyncValue
from quoracy.client.recipes.work_queue import DeadLetter, WorkStats
from quoracy.client.recipes.work_queue import WorkQueue as AsyncWorkQueue
from quoracy.errors import LeaseLost, ValueUnreadable
from quoracy.store.model import Compare, Op, TxnResult
from quoracy.threads.proxies import Attribute, Block, BlockProxy, Event, Proxy, Stream, same

D = TypeVar("D")
M = TypeVar("M")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class Barrier(Proxy[AsyncBarrier]):
    """A barrier by name; one object may be shared."""

    name = Attribute[str]()

    def raise_(self, *, while_alive: bool = False) -> bool:
        """Raise it.  False: it was raised already, and stays as it was.

        while_alive: it falls when the session of this connection ends.  Raises `SessionLost` if that
            has just happened.
        """
        return self._portal.run(lambda: self._it.raise_(while_alive=while_alive))

    def lower(self) -> bool:
        """Lower it: all waiters continue.  False: it was not raised."""
        return self._portal.run(self._it.lower)

    def is_raised(self) -> bool:
        """Whether it is raised now."""
        return self._portal.run(self._it.is_raised)

    def wait(self, *, timeout: float | None = None) -> None:
        """Wait until it is not raised.  Raises `TimedOut`."""
        self._portal.run(lambda: self._it.wait(timeout=timeout))


class CountDownLatch(Proxy[AsyncCountDownLatch]):
    """A latch by name; one object may be shared.

    count: the number to count down from.  None: another client sets it; until then none can count.
    """

    name = Attribute[str]()
    count = Attribute[int | None]()

    def set(self) -> bool:
        """Set the count now, for clients that do not know it.  False: it was set to the same before."""
        return self._portal.run(self._it.set)

    def count_down(self, n: int = 1, *, by: str | None = None, timeout: float | None = None) -> int:
        """Count down; returns what is left.  At zero it does nothing.

        by: a name that counts once, until the latch is reset.  No more names are kept than the count.
        timeout: how long to try against others that count at the same moment.
        """
        return self._portal.run(lambda: self._it.count_down(n, by=by, timeout=timeout))

    def remaining(self) -> int:
        """What is left to count down."""
        return self._portal.run(self._it.remaining)

    def wait(self, *, timeout: float | None = None) -> None:
        """Wait until it is set and has been counted down to zero.  Raises `TimedOut`."""
        self._portal.run(lambda: self._it.wait(timeout=timeout))

    def reset(self) -> None:
        """Delete the count and the names that have counted: the latch can be used anew.

        A client that counts down at this moment counts for the old or for the new one.
        """
        self._portal.run(self._it.reset)


class Counter(Proxy[AsyncCounter]):
    """A counter by name; one object may be shared.  A counter that was never changed is 0.

    remember: the seconds for which a request id is remembered, at least.
    """

    name = Attribute[str]()

    def get(self) -> int:
        """The value."""
        return self._portal.run(self._it.get)

    def add(self, n: int = 1, *, request_id: str | None = None, timeout: float | None = None) -> int:
        """Add a number, which may be negative; returns the new value.

        request_id: any text that is this addition's own.  Repeating it with another `n` is refused.
        timeout: how long to try against others that add at the same moment; `TimedOut` means that
            nothing was added.

        Raises `Indeterminate` if the answer was lost: it may have been added.
        """
        return self._portal.run(lambda: self._it.add(n, request_id=request_id, timeout=timeout))

    def compare_and_set(self, expected: int, value: int) -> bool:
        """Set it if it is what you expect; False: it is not, and nothing was changed."""
        return self._portal.run(lambda: self._it.compare_and_set(expected, value))


class Election(Proxy[AsyncElection]):
    """An election by name; one object may be shared, each term is its own `Term`."""

    name = Attribute[str]()

    def campaign(self, value: str | None = None, *, timeout: float | None = None) -> Term:
        """Become a candidate and wait to be elected.

        value: what other clients see; by default the connection's identity.  Raises `TimedOut`.
        """
        return Term(self._portal, self._portal.run(lambda: self._it.campaign(value, timeout=timeout)))

    def lead(self, value: str | None = None, *, timeout: float | None = None) -> Block[Term]:
        """A block as the leader: waits to be elected, and resigns at its end.

        A block whose term is lost raises `LeadershipLost`; in coroutines its body is cancelled first.
        A thread cannot be cancelled: look at the term's `lost`, or call its `check()`.
        """
        return Block(
            self._portal,
            self._portal.call(lambda: self._it.lead(value, timeout=timeout)),
            lambda it: Term(self._portal, it),
        )

    def leader(self) -> Leader | None:
        """The leader, if there is one."""
        return self._portal.run(self._it.leader)

    def observe(self) -> Stream[Leader]:
        """The leader, then every later one, and every value a leader proclaims, in order, without end.

        Close it when you leave the loop early, as `contextlib.aclosing` and `closing` do.
        """
        return Stream(self._portal, self._portal.call(self._it.observe), same)

    def candidates(self) -> tuple[Contender, ...]:
        """The leader and the candidates that stand by, in order."""
        return self._portal.run(self._it.candidates)


class RateLimit(Proxy[AsyncRateLimit]):
    """A limit by name; one object may be shared.  Keep it: it remembers the state it has seen.

    rate: tokens per second; all clients give the same.
    burst: the most tokens that may be taken at once, after a pause.
    """

    name = Attribute[str]()
    rate = Attribute[float]()
    burst = Attribute[float]()

    def take(self, n: float = 1, *, timeout: float | None = None) -> None:
        """Wait for tokens, and take them.

        Raises `TimedOut` as soon as it is known that they do not come in time; nothing is taken then.
        Raises `Indeterminate` if the answer was lost: they may have been taken in vain.
        """
        self._portal.run(lambda: self._it.take(n, timeout=timeout))

    def try_take(self, n: float = 1) -> bool:
        """Take tokens if they are free now; False: they are not, and nothing was taken."""
        return self._portal.run(lambda: self._it.try_take(n))

    def free(self) -> float:
        """The number of tokens that are free now; a negative number is reserved by waiters."""
        return self._portal.run(self._it.free)


class ReadWriteLock(Proxy[AsyncReadWriteLock]):
    """A read-write lock by name; one object may be shared, each acquisition has its own handle.

    cancel_on_loss: when the lock is lost inside the block, cancel the body and raise `LockLost`; in
        coroutines only.  False: only `held.lost` is set, and the block raises at its end.
    """

    name = Attribute[str]()

    def read(self, *, timeout: float | None = None) -> Block[ReadHeld]:
        """A block that reads: `lock.read(timeout=5)`."""
        return Block(
            self._portal,
            self._portal.call(lambda: self._it.read(timeout=timeout)),
            lambda it: ReadHeld(self._portal, it),
        )

    def write(self, *, timeout: float | None = None) -> Block[WriteHeld]:
        """A block that writes: `lock.write(timeout=5)`."""
        return Block(
            self._portal,
            self._portal.call(lambda: self._it.write(timeout=timeout)),
            lambda it: WriteHeld(self._portal, it),
        )

    def acquire_read(self, *, timeout: float | None = None) -> ReadHeld:
        """Wait until every writer that came before is gone.  The caller releases what is acquired.

        Raises `TimedOut`; `Unavailable` or `Indeterminate` if the store did not answer, and then it is
        not held.
        """
        return ReadHeld(self._portal, self._portal.run(lambda: self._it.acquire_read(timeout=timeout)))

    def acquire_write(self, *, timeout: float | None = None) -> WriteHeld:
        """Wait until all that came before are gone.  Raises what `acquire_read` raises."""
        return WriteHeld(
            self._portal, self._portal.run(lambda: self._it.acquire_write(timeout=timeout))
        )

    def try_acquire_read(self) -> ReadHeld | None:
        """Acquire a read lock if no writer holds it or waits; None otherwise, at once.

        Raises `TimedOut` if there is no session at the moment.
        """
        it = self._portal.run(self._it.try_acquire_read)
        return None if it is None else ReadHeld(self._portal, it)

    def try_acquire_write(self) -> WriteHeld | None:
        """Acquire the write lock if no client holds the lock or waits; None otherwise, at once.

        Raises `TimedOut` if there is no session at the moment.
        """
        it = self._portal.run(self._it.try_acquire_write)
        return None if it is None else WriteHeld(self._portal, it)

    def contenders(self) -> tuple[ReadWriteContender, ...]:
        """The holders and the waiters of the lock, in order."""
        return self._portal.run(self._it.contenders)


class Singleton(Proxy[AsyncSingleton]):
    """Work by name; one object may be shared, and one run goes on at a time.

    restart: when the work raises, log it, resign, and become a candidate again after a pause; the pause
        doubles from `restart_first` to `restart_max` seconds, and begins anew after a run that was
        longer than `restart_max`.
    """

    name = Attribute[str]()

    def __call__(self, work: Callable[[Term], R] | Callable[[], R]) -> Callable[[], R]:
        """As a decorator: calling the function runs it as `run` does."""
        return self._portal.running(
            self._portal.call(
                lambda: self._it(self._portal.errand(work, lambda it: Term(self._portal, it)))
            )
        )

    def run(self, work: Callable[[Term], R] | Callable[[], R], *, timeout: float | None = None) -> R:
        """Wait to be elected, run the work, resign, and return its result; after a loss, begin again.

        work: a coroutine function; with `quoracy.sync`, a plain one.  If it takes a parameter, that is
            the term, with the fencing token.
        timeout: how long to wait to be elected, each time; raises `TimedOut`.

        A result that comes after leadership was lost does not count: the next leader runs it as well.
        """
        return self._portal.run(
            lambda: self._it.run(
                self._portal.errand(work, lambda it: Term(self._portal, it)), timeout=timeout
            )
        )

    def runner(self) -> Leader | None:
        """The process that runs it now, if there is one."""
        return self._portal.run(self._it.runner)


class Held(Proxy[AsyncHeld]):
    """One acquisition: its fencing token, and whether it is still held.

    lost: set when it is not held any more although it was not released.
    """

    name = Attribute[str]()
    key = Attribute[bytes]()
    token = Attribute[int]()

    @property
    def lost(self) -> Event:
        return Event(self._portal, self._it.lost)

    error = Attribute[LeaseLost | None]()

    @property
    def is_held(self) -> bool:
        """Whether it is certainly held now: known from the clock, without asking the store."""
        return self._portal.call(lambda: self._it.is_held)

    @property
    def remaining_s(self) -> float:
        """How long it is certainly held if no further answer comes from the server."""
        return self._portal.call(lambda: self._it.remaining_s)

    def check(self) -> None:
        """Raise the loss if it is not held any more: for just before an action that relies on it."""
        self._portal.call(self._it.check)

    def guard(self) -> Compare:
        """A condition for a transaction: that it is still held."""
        return self._portal.call(self._it.guard)

    def txn(self, *then: Op) -> TxnResult:
        """Carry out operations on the store if, and only if, it is still held: the store decides.

        This is the one kind of write that a stale holder can never make, whatever its clock says.
        """
        return self._portal.run(lambda: self._it.txn(*then))

    def release(self) -> None:
        """Release it.  A second call does nothing.

        Raises the loss if the store answers that it was lost already: it was not held to the end.
        If the store does not answer, this raises the reason, and the release is tried again in the
        background; others may have to wait for the end of the session.
        """
        self._portal.run(self._it.release)

    def on_loss(self, listener: Callable[[LeaseLost], object]) -> None:
        """Call `listener` when it is lost; at once if it is lost already.

        In coroutines that is in the same turn of the loop; with `quoracy.sync`, in a thread for
        listeners.
        """
        self._portal.call(lambda: self._it.on_loss(self._portal.listener(listener)))


class Group(Proxy[AsyncGroup[M]], Generic[M]):
    """A group by name; one object may be shared, each membership is its own handle.

    type: of the metadata.  A member with metadata of another type is a member all the same: see
        `Member.error`.
    """

    name = Attribute[str]()

    def join(
        self,
        metadata: M,
        *,
        identity: str | None = None,
        rejoin: bool = False,
        timeout: float | None = None,
    ) -> Block[Membership[M]]:
        """A block as a member: `group.join({"zone": "a"})`.

        identity: the identity in the group; by default that of the connection.
        rejoin: join again with the next session when this one is lost; `membership.events()` reports
            it.  A member that was removed by others (its key was deleted) stays out.
        cancel_on_loss: cancel the body when the membership is lost, and raise `LeaseLost`; in
            coroutines only.  By default only `membership.lost` is set; a block that ends while it is
            lost raises `LeaseLost` then.
        """
        return Block(
            self._portal,
            self._portal.call(
                lambda: self._it.join(metadata, identity=identity, rejoin=rejoin, timeout=timeout)
            ),
            lambda it: Membership(self._portal, it),
        )

    def enroll(
        self,
        metadata: M,
        *,
        identity: str | None = None,
        rejoin: bool = False,
        timeout: float | None = None,
    ) -> Membership[M]:
        """Join without a block; `membership.release()` leaves.  See `join`."""
        return Membership(
            self._portal,
            self._portal.run(
                lambda: self._it.enroll(metadata, identity=identity, rejoin=rejoin, timeout=timeout)
            ),
        )

    def members(self) -> tuple[Member[M], ...]:
        """The members, in order of joining."""
        return self._portal.run(self._it.members)

    def watch(self) -> Stream[GroupChange[M]]:
        """The members, then every change, without end; in the first change all members have joined.

        If history was compacted while the store did not answer, the changes of that time are reported
        as one.  Close it when you leave the loop early, as `contextlib.aclosing` and `closing` do.
        """
        return Stream(self._portal, self._portal.call(self._it.watch), same)


class Once(Proxy[AsyncOnce[T]], Generic[T]):
    """A step by name; one object may be shared.

    type: the type of its result; `type(None)` if it returns nothing.
    """

    name = Attribute[str]()

    def run(self, step: Callable[[], T], *, timeout: float | None = None) -> T:
        """The result: remembered, or of the client that runs the step now, or of running it here.

        timeout: how long to wait for another client that runs it; the step itself is not limited.

        What the step raises is raised here, and nothing is recorded.  Raises `TimedOut`; `LockLost` if
        the session was lost while the step ran: the step is cancelled (in a thread it runs to its end),
        and its result does not count; `Indeterminate` if the step was done and it is not known whether
        its result was recorded: call it again.
        """
        return self._portal.run(lambda: self._it.run(self._portal.errand(step), timeout=timeout))

    def run_fenced(self, step: Callable[[int], T], *, timeout: float | None = None) -> T:
        """`run` for a step that takes the fencing token of its run, which grows with each run."""
        return self._portal.run(lambda: self._it.run_fenced(self._portal.errand(step), timeout=timeout))

    def is_done(self) -> bool:
        """Whether a result is recorded."""
        return self._portal.run(self._it.is_done)

    def result(self) -> T | None:
        """The result; None: there is none yet."""
        return self._portal.run(self._it.result)

    def forget(self) -> bool:
        """Delete the result, so that the step is done again.  False: there was none."""
        return self._portal.run(self._it.forget)


class Value(Proxy[AsyncValue[T]], Generic[T]):
    """A value by name; one object may be shared.

    type: any that does not include None, which stands for "there is no value".
    """

    name = Attribute[str]()

    def get(self) -> Versioned[T] | None:
        """The value and its revision; None: there is none."""
        return self._portal.run(self._it.get)

    def set(self, value: T) -> int:
        """Write it unconditionally; returns the revision."""
        return self._portal.run(lambda: self._it.set(value))

    def compare_and_set(self, value: T, *, revision: int) -> int | None:
        """Write it if it has not changed since that revision (0: if there is none).

        Returns the new revision; None: it has changed, and nothing was written.
        """
        return self._portal.run(lambda: self._it.compare_and_set(value, revision=revision))

    def update(self, fn: Callable[[T | None], T], *, timeout: float | None = None) -> Versioned[T]:
        """Replace it by the result of a plain function of it; None: there is none yet.

        fn: called again with the newest value after a conflict.  What it raises ends the update, and
            nothing is written; nothing is written either if the value stays the same.
        timeout: how long to try against others; `TimedOut` means that nothing was written.
        """
        return self._portal.asking(lambda fn, left: self._it.update(fn, timeout=left), fn, timeout)

    def delete(self, *, revision: int | None = None) -> bool:
        """Delete it, if it has not changed since that revision; False: nothing was deleted."""
        return self._portal.run(lambda: self._it.delete(revision=revision))

    def changes(self, *, after: int | None = None) -> Stream[Change[T]]:
        """Every change, in order; it does not end.

        after: the revision that is known, of a `Versioned`, a `Change` or a read.  None: the current
            value comes first, if there is one.

        Raises `Compacted` if the store no longer has the changes after that revision: read again, and
        continue from there.  Close it when you leave the loop early, as `contextlib.aclosing` and
        `closing` do.
        """
        return Stream(self._portal, self._portal.call(lambda: self._it.changes(after=after)), same)

    def wait_until(
        self, predicate: Callable[[T | None], bool], *, timeout: float | None = None
    ) -> Versioned[T] | None:
        """Wait for a value for which `predicate` is true (None: there is none), and return it.

        Raises `TimedOut`.
        """
        return self._portal.asking(
            lambda predicate, left: self._it.wait_until(predicate, timeout=left), predicate, timeout
        )


class WorkQueue(Proxy[AsyncWorkQueue[T]], Generic[T]):
    """A work queue by name; one object may be shared, each claim is its own `Job`.

    type: of the items: bytes, str, or anything msgspec can write as JSON.
    attempts_max: the most claims of an item; None: no limit.  The same for all workers.
    cancel_on_loss: when a claim is lost, cancel the body and raise `LockLost`; in coroutines only.
        False: only `job.lost` is set, and the block raises at its end.
    hold_max: the claim counts as lost after this many seconds.
    """

    name = Attribute[str]()

    def put(self, item: T) -> int:
        """Put an item at the end; returns the revision of the store at which it is there.

        Raises `Unavailable`: it was not put.  `Indeterminate`: it may have been; put again, it may be
        done twice.
        """
        return self._portal.run(lambda: self._it.put(item))

    def put_many(self, items: Sequence[T]) -> int:
        """Put items at the end, all or none; at most 127.

        Without items it does not ask the store, and returns 0.
        """
        return self._portal.run(lambda: self._it.put_many(items))

    def claim(self, *, timeout: float | None = None) -> Block[Job[T]]:
        """A block in which an item is claimed: `work.claim(timeout=5)`.

        At its normal end it acknowledges the job, unless that was done or it was released; after an
        exception or a cancellation it returns it.  A block whose claim is lost raises `LockLost`; in
        coroutines its body is cancelled first.  Raises `TimedOut` if there is no item.
        """
        return Block(
            self._portal,
            self._portal.call(lambda: self._it.claim(timeout=timeout)),
            lambda it: Job(self._portal, it),
        )

    def take(self, *, timeout: float | None = None) -> Job[T]:
        """Claim an item without a block: the caller calls `ack`, `fail` or `release`.

        Raises `TimedOut`; `Unavailable` or `Indeterminate` if the store did not answer, and then
        nothing is claimed (but an attempt may have been counted).
        """
        return Job(self._portal, self._portal.run(lambda: self._it.take(timeout=timeout)))

    def stats(self) -> WorkStats:
        """The numbers of items that wait, that are claimed, and of dead letters."""
        return self._portal.run(self._it.stats)

    def dead_letters(
        self, *, limit: int = 100, after: DeadLetter[T] | None = None
    ) -> tuple[DeadLetter[T], ...]:
        """Dead letters, the oldest items first; `after` the last one is the next page."""
        return self._portal.run(lambda: self._it.dead_letters(limit=limit, after=after))

    def requeue(self, letter: DeadLetter[T]) -> bool:
        """Put a dead letter back, at the end, like a new item; False: it does not exist any more."""
        return self._portal.run(lambda: self._it.requeue(letter))

    def discard(self, letter: DeadLetter[T]) -> bool:
        """Delete a dead letter; False: it did not exist any more."""
        return self._portal.run(lambda: self._it.discard(letter))


class Entered(Held):
    """A participant inside.  `token` is larger for each later entry of any participant.

    round: a number that is the same for all members of the round, and larger for each later round.
    members: the identities of all members of the round.
    missing: those that were gone without leaving; complete after `leave`.
    """

    _it: AsyncEntered

    round = Attribute[int]()
    members = Attribute[tuple[str, ...]]()
    missing = Attribute[tuple[str, ...]]()

    def withdraw(self) -> None:
        """Leave at once, without waiting for the others, for whom you are missing."""
        self._portal.run(self._it.withdraw)


class Term(Held):
    """A term of office.  `value` is what other clients see; `proclaim` changes it."""

    _it: AsyncTerm

    value = Attribute[str]()

    def proclaim(self, value: str) -> None:
        """Change the value that other clients see.  Raises `LeadershipLost` if the term is over."""
        self._portal.run(lambda: self._it.proclaim(value))

    def resign(self) -> None:
        """Resign: the next candidate is elected.  The same as `release`."""
        self._portal.run(self._it.resign)


class ReadHeld(Held):
    """A read lock that is held."""

    _it: AsyncReadHeld

    kind = Attribute[Access]()


class WriteHeld(Held):
    """A write lock that is held, and what it is after `downgrade`: a read lock."""

    _it: AsyncWriteHeld

    kind = Attribute[Access]()

    def downgrade(self) -> None:
        """Continue as a reader: waiting readers that come before the next writer join.

        No writer comes in between, the token stays, and the block in which it is held goes on as
        before.  A second call does nothing.  Raises `LockLost` if the lock is no longer held.  After
        `Indeterminate` the lock may be a read lock already: stop writing.  The call may be repeated.
        """
        self._portal.run(self._it.downgrade)


class Share(Held):
    """A share of a semaphore that is held.  `weight` is its size."""

    _it: AsyncShare

    weight = Attribute[int]()


class Cache(BlockProxy[AsyncCache[T]], Generic[T]):
    """A local copy of everything under a name, for the time of a block; one object may be shared.

    prefix: `services/` and `services` both mean the keys that begin with `services/`.
    entries_max, bytes_max: the most keys, and bytes of keys and values, that it holds.  If there is
        more, entering raises `TooLarge`; if it grows beyond, reading raises it from then on.
    stale_after: after that many seconds without a message from the server `is_stale` is True.
    """

    name = Attribute[str]()

    @property
    def revision(self) -> int:
        """The revision of the store that the copy shows."""
        return self._portal.call(lambda: self._it.revision)

    @property
    def unreadable(self) -> Mapping[str, ValueUnreadable]:
        """The names whose values are not of the type of the cache, with the reasons."""
        return self._portal.call(lambda: self._it.unreadable)

    def entry(self, name: str) -> CacheEntry[T] | None:
        """A key with its revisions, its lease and its raw value; None if it does not exist."""
        return self._portal.call(lambda: self._it.entry(name))

    def __getitem__(self, name: str) -> T:
        """The value under a name.  Raises `KeyError`; `ValueUnreadable` if it is of another type."""
        return self._portal.call(lambda: self._it[name])

    @overload
    def get(self, name: str) -> T | None: ...
    @overload
    def get(self, name: str, default: D) -> T | D: ...
    def get(self, name: str, default: D | None = None) -> T | D | None:
        """The value under a name, or `default` if there is none.  Raises `ValueUnreadable`."""
        it: T | D | None = self._portal.call(lambda: cast(Any, self._it).get(name, default))
        return it

    def items(self) -> list[tuple[str, T]]:
        """Every name with its value, in order, without those in `unreadable`."""
        return self._portal.call(self._it.items)

    def entries(self) -> list[CacheEntry[T]]:
        """All entries, in the order of the keys."""
        return self._portal.call(self._it.entries)

    def __contains__(self, name: object) -> bool:
        return self._portal.call(lambda: name in self._it)

    def __iter__(self) -> Iterator[str]:
        """The names, in order."""
        return self._portal.call(lambda: iter(list(self._it)))

    def __len__(self) -> int:
        return self._portal.call(lambda: len(self._it))

    def changes(self) -> Stream[CacheBatch[T]]:
        """Every change from this call on, a batch for each revision; it ends when the block is left.

        There is no gap between what is read now and these changes.  Each call is independent of the
        others; an iterator that is not read for long gets a summary.  Close it if you leave the loop
        early: with `contextlib.aclosing` in coroutines, with `closing` in threads.
        """
        return Stream(self._portal, self._portal.call(self._it.changes), same)

    def __enter__(self) -> Self:
        """Read everything.  Raises `TooLarge`, and `Unavailable` if the store does not answer."""
        self._enter(self._it)
        return self

    @property
    def silence_s(self) -> float:
        """The seconds since the server last confirmed what is here."""
        return self._portal.call(lambda: self._it.silence_s)

    @property
    def is_stale(self) -> bool:
        """Whether the server was silent for so long that what is here may be out of date."""
        return self._portal.call(lambda: self._it.is_stale)

    def wait_revision(self, revision: int, *, timeout: float | None = None) -> None:
        """Wait until everything up to a revision is here, such as one that a write has returned.

        Raises `TimedOut`.
        """
        self._portal.run(lambda: self._it.wait_revision(revision, timeout=timeout))


class Config(BlockProxy[AsyncConfig[S]], Generic[S]):
    """Settings by name, entered once at a time; one object may be shared.

    type: a `msgspec.Struct` or a dataclass.  Make it frozen: all readers get the same object.
    stale_after: after that many seconds without a message from the server `is_stale` is True.

    `set`, `update` and `reset` need no block.
    """

    name = Attribute[str]()

    def __enter__(self) -> Self:
        """Read the settings.  Raises `ValueUnreadable` if what is stored is not valid."""
        self._enter(self._it)
        return self

    @property
    def value(self) -> S:
        """The settings: the newest that are valid."""
        return self._portal.call(lambda: self._it.value)

    @property
    def revision(self) -> int:
        """The revision of the store at which `value` was stored."""
        return self._portal.call(lambda: self._it.revision)

    @property
    def error(self) -> ValueUnreadable | None:
        """The reason why the newest settings are not used; None: they are used."""
        return self._portal.call(lambda: self._it.error)

    def changes(self) -> Stream[ConfigChange[S]]:
        """Every change from this call on, valid or not; it ends when the block is left.

        A slow reader gets the newest: `previous` is what this iterator returned last.
        """
        return Stream(self._portal, self._portal.call(self._it.changes), same)

    def on_change(self, callback: Callable[[ConfigChange[S]], object]) -> Callable[[], None]:
        """Call `callback` with each change from now on.

        It ends with the block, or when the function that is returned is called.  Calls do not overlap;
        in coroutines they are made in a task, and it may be a coroutine function; with `quoracy.sync`,
        in a thread for listeners.  It may use the connection.  What it raises is logged.
        """
        return self._portal.ending(
            self._portal.call(lambda: self._it.on_change(self._portal.listener(callback)))
        )

    def set(self, **fields: object) -> int:
        """Set fields, all or none: `config.set(workers=8, greeting="hi")`.

        Returns the revision of the write, for `wait_revision`; if nothing changes, the revision at
        which that was seen.  Raises `InvalidRequest` if the result would not be valid, and then nothing
        is written.  It begins again when another client writes meanwhile; `update` takes a `timeout`.
        """
        return self._portal.run(lambda: self._it.set(**fields))

    def update(self, change: Callable[[S], S], *, timeout: float | None = None) -> int:
        """Set what `change` makes of the settings as they are; it is called again after a conflict.

        Raises `ValueUnreadable` if what is stored is not valid; otherwise as `set`.
        """
        return self._portal.asking(
            lambda change, left: self._it.update(change, timeout=left), change, timeout
        )

    def reset(self, field: str, *, timeout: float | None = None) -> int:
        """Delete what is stored for a field, which then has its default."""
        return self._portal.run(lambda: self._it.reset(field, timeout=timeout))

    @property
    def silence_s(self) -> float:
        """The seconds since the server last confirmed what is here."""
        return self._portal.call(lambda: self._it.silence_s)

    @property
    def is_stale(self) -> bool:
        """Whether the server was silent for so long that what is here may be out of date."""
        return self._portal.call(lambda: self._it.is_stale)

    def wait_revision(self, revision: int, *, timeout: float | None = None) -> None:
        """Wait until everything up to a revision is here, such as one that a write has returned.

        Raises `TimedOut`.
        """
        self._portal.run(lambda: self._it.wait_revision(revision, timeout=timeout))


class DefaultedValue(Value[T]):
    """A value that is the default until it is set, and after it was deleted.

    The default belongs to this object: it is not stored, and other clients may have another.
    """

    _it: AsyncDefaultedValue[T]

    default = Attribute[T]()

    def get(self) -> Versioned[T]:
        """The value and its revision; the default has revision 0."""
        return self._portal.run(self._it.get)

    def update(self, fn: Callable[[T], T], *, timeout: float | None = None) -> Versioned[T]:
        """Replace it by the result of a plain function of it, or of the default: see `Value.update`."""
        return self._portal.asking(lambda fn, left: self._it.update(fn, timeout=left), fn, timeout)

    def wait_until(
        self, predicate: Callable[[T], bool], *, timeout: float | None = None
    ) -> Versioned[T]:
        """Wait for a value for which `predicate` is true, and return it: see `Value.wait_until`."""
        return self._portal.asking(
            lambda predicate, left: self._it.wait_until(predicate, timeout=left), predicate, timeout
        )


class DoubleBarrier(BlockProxy[AsyncDoubleBarrier]):
    """A double barrier by name; one object may be shared, each entry is a participant.

    count: the number that enter together; all participants give the same.
    cancel_on_loss: when the own session is lost inside the block, cancel the body and raise `LockLost`;
        in coroutines only.  False: only `entered.lost` is set, and the block raises at its end.
    """

    name = Attribute[str]()
    count = Attribute[int]()

    def enter(self, *, timeout: float | None = None) -> Entered:
        """Wait until the round opens.  The caller leaves it: `entered.leave()`.

        Raises `TimedOut`; `SessionLost` if the session ends meanwhile, and then the others may have
        entered with this participant, which they find missing.
        """
        return Entered(self._portal, self._portal.run(lambda: self._it.enter(timeout=timeout)))

    def inside(
        self, *, timeout: float | None = None, leave_timeout: float | None = None
    ) -> Block[Entered]:
        """A block between entering and leaving: `barrier.inside(timeout=5)`.

        At its end it waits for the others.  If it raises it leaves at once, and is missing for them.
        """
        return Block(
            self._portal,
            self._portal.call(lambda: self._it.inside(timeout=timeout, leave_timeout=leave_timeout)),
            lambda it: Entered(self._portal, it),
        )

    def participants(self) -> tuple[str, ...]:
        """The identities of the participants, waiting or inside, in order of arrival."""
        return self._portal.run(self._it.participants)

    def __enter__(self) -> Entered:
        return Entered(self._portal, self._enter(self._it))


class Lock(BlockProxy[AsyncLock]):
    """A lock by name; one object may be shared, each acquisition has its own `Held`.

    cancel_on_loss: when the lock is lost inside the block, cancel the body and raise `LockLost`; in
        coroutines only.  False: only `held.lost` is set, and the block raises at its end.
    reentrant: its holder, which is a task or with `quoracy.sync` a thread, may enter it again.
    hold_max: it counts as lost after this many seconds.
    """

    name = Attribute[str]()

    def acquire(self, *, timeout: float | None = None) -> Held:
        """Wait for the lock.  The caller releases it; the block `lock.hold()` does both.

        Raises `TimedOut`; `Unavailable` or `Indeterminate` if the store did not answer, and then it is
        not held.
        """
        return Held(self._portal, self._portal.run(lambda: self._it.acquire(timeout=timeout)))

    def try_acquire(self) -> Held | None:
        """Acquire the lock if no client holds it or waits for it; None otherwise, at once.

        Raises `TimedOut` if there is no session at the moment.
        """
        it = self._portal.run(self._it.try_acquire)
        return None if it is None else Held(self._portal, it)

    def hold(self, *, timeout: float | None = None) -> Block[Held]:
        """A block in which the lock is held, for one use: `lock.hold(timeout=5)`."""
        return Block(
            self._portal,
            self._portal.call(lambda: self._it.hold(timeout=timeout)),
            lambda it: Held(self._portal, it),
        )

    def contenders(self) -> tuple[Contender, ...]:
        """The holder and the waiters of the lock, in order."""
        return self._portal.run(self._it.contenders)

    def __enter__(self) -> Held:
        return Held(self._portal, self._enter(self._it))


class PriorityQueue(Proxy[AsyncPriorityQueue[T]], Generic[T]):
    """A priority queue by name; one object may be shared.

    type: of the items: bytes, str, or anything msgspec can write as JSON.
    """

    def put(self, item: T, *, priority: int) -> int:
        """Put an item behind those of its priority; the smaller the number, the more urgent.

        priority: any whole number of 64 bits, negative ones too.  Returns the revision of the store at
        which it is there.  Raises `Unavailable`: it was not put.  `Indeterminate`: it may have been.
        """
        return self._portal.run(lambda: self._it.put(item, priority=priority))

    def put_many(self, items: Sequence[T], *, priority: int) -> int:
        """Put items of one priority, all or none, with nothing between them; at most 127.

        Without items it does not ask the store, and returns 0.
        """
        return self._portal.run(lambda: self._it.put_many(items, priority=priority))

    name = Attribute[str]()

    def get(self, *, timeout: float | None = None) -> T:
        """Remove the first item and return it; wait for one if there is none.

        Raises `TimedOut` (nothing was removed; with `timeout=0`, at once), `Unavailable` (nothing was
        removed), `Indeterminate`: an item may have been removed that no consumer got.  Raises
        `ValueUnreadable` for an item that is not of the queue's type; it is set aside under
        `name/unreadable/`.
        """
        return self._portal.run(lambda: self._it.get(timeout=timeout))

    def try_get(self) -> T | None:
        """Remove the first item and return it; None if there is none.  Raises what `get` raises."""
        return self._portal.run(self._it.try_get)

    def peek(self) -> T | None:
        """The first item, which stays; None if there is none."""
        return self._portal.run(self._it.peek)

    def size(self) -> int:
        """The number of items."""
        return self._portal.run(self._it.size)

    def __iter__(self) -> Self:
        """Iterate over the queue: one get after another, without end."""
        return self

    def __next__(self) -> T:
        return self._next(self._it)


class Queue(Proxy[AsyncQueue[T]], Generic[T]):
    """A queue by name; one object may be shared.

    type: of the items: bytes, str, or anything msgspec can write as JSON.
    """

    def put(self, item: T) -> int:
        """Put an item at the end; returns the revision of the store at which it is there.

        Raises `Unavailable`: it was not put.  `Indeterminate`: it may have been.
        """
        return self._portal.run(lambda: self._it.put(item))

    def put_many(self, items: Sequence[T]) -> int:
        """Put items at the end, all or none, with nothing between them; at most 127.

        Without items it does not ask the store, and returns 0.
        """
        return self._portal.run(lambda: self._it.put_many(items))

    name = Attribute[str]()

    def get(self, *, timeout: float | None = None) -> T:
        """Remove the first item and return it; wait for one if there is none.

        Raises `TimedOut` (nothing was removed; with `timeout=0`, at once), `Unavailable` (nothing was
        removed), `Indeterminate`: an item may have been removed that no consumer got.  Raises
        `ValueUnreadable` for an item that is not of the queue's type; it is set aside under
        `name/unreadable/`.
        """
        return self._portal.run(lambda: self._it.get(timeout=timeout))

    def try_get(self) -> T | None:
        """Remove the first item and return it; None if there is none.  Raises what `get` raises."""
        return self._portal.run(self._it.try_get)

    def peek(self) -> T | None:
        """The first item, which stays; None if there is none."""
        return self._portal.run(self._it.peek)

    def size(self) -> int:
        """The number of items."""
        return self._portal.run(self._it.size)

    def __iter__(self) -> Self:
        """Iterate over the queue: one get after another, without end."""
        return self

    def __next__(self) -> T:
        return self._next(self._it)


class Semaphore(BlockProxy[AsyncSemaphore]):
    """A semaphore by name; one object may be shared, each acquisition has its own `Share`.

    size: how much may be held at a time.  It is kept in the store: the first client that names one sets
        it, and a client that names another later gets an `InvalidRequest` at the first use.  None: the
        size in the store.
    cancel_on_loss: when the share is lost inside the block, cancel the body and raise `LockLost`; in
        coroutines only.  False: only `share.lost` is set, and the block raises at its end.
    """

    name = Attribute[str]()

    def acquire(self, weight: int = 1, *, timeout: float | None = None) -> Share:
        """Wait for a share.  The caller releases it; the block `slots.hold()` does both.

        Raises `TimedOut`; `InvalidRequest` for more than the size, also if the size shrinks to that
        while it waits; `Unavailable` or `Indeterminate` if the store did not answer, and then nothing
        is held.
        """
        return Share(self._portal, self._portal.run(lambda: self._it.acquire(weight, timeout=timeout)))

    def try_acquire(self, weight: int = 1) -> Share | None:
        """Take a share if there is room and no client waits; None otherwise, at once.

        Raises `TimedOut` if there is no session at the moment.
        """
        it = self._portal.run(lambda: self._it.try_acquire(weight))
        return None if it is None else Share(self._portal, it)

    def hold(self, weight: int = 1, *, timeout: float | None = None) -> Block[Share]:
        """A block in which a share is held: `slots.hold(weight=2, timeout=5)`."""
        return Block(
            self._portal,
            self._portal.call(lambda: self._it.hold(weight, timeout=timeout)),
            lambda it: Share(self._portal, it),
        )

    def size(self) -> int:
        """How much may be held at a time, now.  Raises `InvalidRequest` if no client has set it."""
        return self._portal.run(self._it.size)

    def resize(self, size: int) -> None:
        """Change how much may be held at a time, for all clients.

        A larger size is granted to waiters at once.  With less than what is held no holder is evicted,
        and nothing is granted until it fits.  A waiter whose weight is more than the new size gets an
        `InvalidRequest` when its turn comes.
        """
        self._portal.run(lambda: self._it.resize(size))

    def holders(self) -> tuple[SemaphoreContender, ...]:
        """The holders of shares, in the order in which they were granted."""
        return self._portal.run(self._it.holders)

    def contenders(self) -> tuple[SemaphoreContender, ...]:
        """The holders of shares, then the waiters, in order."""
        return self._portal.run(self._it.contenders)

    def __enter__(self) -> Share:
        return Share(self._portal, self._enter(self._it))


class Membership(Held, Generic[M]):
    """A membership of this client.  `token` is the revision at which it began.

    With `rejoin=True` it may begin again: `lost` is set while this client is no member, and cleared
    when it is one again, with a larger token.
    """

    _it: AsyncMembership[M]

    identity = Attribute[str]()

    @property
    def metadata(self) -> M:
        """The metadata that other clients see."""
        return self._portal.call(lambda: self._it.metadata)

    def update(self, metadata: M) -> None:
        """Change the metadata.  Raises `LeaseLost` if this client is no member any more.

        After `Indeterminate` too, it joins again with the new metadata.
        """
        self._portal.run(lambda: self._it.update(metadata))

    def events(self) -> Stream[MembershipEvent]:
        """Every loss and every rejoining from this call on; it ends when the membership ends for good.

        For a slow reader the last thousand are kept.
        """
        return Stream(self._portal, self._portal.call(self._it.events), same)

    def release(self) -> None:
        """Leave the group.  A second call does nothing."""
        self._portal.run(self._it.release)


class Job(Held, Generic[T]):
    """A claimed item.  `token` grows with each claim in the queue: pass it to what the job writes to.

    item: what was put.
    attempts: the number of claims of the item, this one included.
    """

    _it: AsyncJob[T]

    item = Attribute[T]()
    attempts = Attribute[int]()

    @property
    def is_acknowledged(self) -> bool:
        """Whether the store has confirmed the acknowledgement."""
        return self._portal.call(lambda: self._it.is_acknowledged)

    def ack(self) -> None:
        """Acknowledge that the job is done: its item is deleted.  A second call does nothing.

        Raises `LockLost` if the claim was lost: another worker has the job, or will have it.
        `Unavailable` if the store did not take it: the claim is still held, acknowledge again.
        `Indeterminate` if the answer was lost: the claim is released, and an item that was not deleted
        is done once more.
        """
        self._portal.run(self._it.ack)

    def fail(self, reason: str) -> None:
        """Return the job as failed; after `attempts_max` claims it becomes a dead letter."""
        self._portal.run(lambda: self._it.fail(reason))
