"""Protocols that stores and faces used before `submit` and `read`.  Being removed; use `store.api`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias, runtime_checkable

from quoracy.errors import Unavailable, Unsupported
from quoracy.store.api import Cluster, Store
from quoracy.store.completion import Completion, Reply
from quoracy.store.following import Following
from quoracy.store.model import (
    ClusterHealth,
    Delete,
    KeyRange,
    KeyValue,
    Put,
    Range,
    Revision,
    Txn,
    WaitFirst,
    WatchBatch,
)

__all__ = [
    "Ahead",
    "Begins",
    "Follower",
    "Following",
    "InProcess",
    "LegacyStore",
    "LegacyWatch",
    "OnCluster",
    "OnDone",
    "RepliesAhead",
]

# The result, or what went wrong.
OnDone: TypeAlias = Callable[[Any, BaseException | None], None]
Ahead: TypeAlias = Callable[[Any], Reply | None]


class Follower(Protocol):
    """A follower of a store in this process; called in the turn in which a commit is durable."""

    def changed(self, revision: int, kvs: Sequence[KeyValue]) -> None:
        """A revision is durable; its changes, in order.  One with version 0 is a deletion."""
        ...

    def wrote(self, first: int, last: int) -> None:
        """These revisions are durable, and each is one that it made with `Following.write`."""
        ...

    def durable(self, revision: int) -> None:
        """Everything up to here is durable, and this follower has received what concerns it."""
        ...

    def failed(self, error: BaseException) -> None:
        """Nothing more will come: the store was closed, its disk failed, or the follower raised."""
        ...


@runtime_checkable
class Begins(Protocol):
    """A store that takes a write in the call, and calls when it is done: no task, no future between."""

    def begin(self, op: Put | Txn, on_done: OnDone) -> bool:
        """`Store.put` or `Store.txn` with a call at the end instead of a wait.

        `on_done` gets the result or the error, once, after this has returned; it must not raise.
        False: this one may have to wait before it can begin, and nothing was done.  Raises what is
        wrong with the request itself.
        """
        ...


@runtime_checkable
class RepliesAhead(Begins, Protocol):
    """A store that can have the answer to a write sent in the moment in which the write is durable."""

    def expect(self) -> None:
        """A write is begun in this turn, very likely: what has to wake up for it may do so now."""
        ...

    def begin_replying(self, op: Put | Txn, on_done: OnDone, ahead: Ahead) -> bool:
        """`begin`; before it returns, `ahead` may be called with what the result will be.

        It may return a reply, which is then sent by another thread as soon as the write is durable, or
        not at all: `on_done` is called in any case, and by then it is known how much of it was sent.
        """
        ...

    def catch_up(self) -> None:
        """Call this when something has come from a client, before looking at it.

        That client may have seen such an answer before the store knows that it was sent.
        """
        ...


@runtime_checkable
class InProcess(Begins, Protocol):
    """A store whose state is in this process: a follower is called in the turn of the commit itself."""

    def follow(self, keys: KeyRange, *, after: int, follower: Follower) -> Following:
        """Tell a follower of every change after a revision; what happened already, before it returns.

        Raises `Compacted`.
        """
        ...

    async def make_room(self) -> None:
        """Let history give way to data.  Raises `NoSpace` if that does not help."""
        ...


@runtime_checkable
class OnCluster(Protocol):
    """A store that is a replica of what a cluster holds: it may know less than there is, and says so.

    While it is not serving, writes and linearizable reads raise `Unavailable` at once; serializable
    reads and watches go on with what is here.  It resumes by itself.
    """

    def health(self) -> ClusterHealth:
        """As it is known now: nobody is asked."""
        ...

    def on_serving(self, changed: Callable[[bool], None]) -> Callable[[], None]:
        """Call `changed` each time `health().is_serving` changes; what it returns ends that.

        Called on the loop of the store, in the turn of the change; it must not raise.
        """
        ...

    async def sync(self) -> Revision:
        """Wait until everything acknowledged anywhere before this call is here; return its revision."""
        ...


class LegacyStore:
    """`submit` and `read` by a task around the coroutines, until an engine has its own."""

    cluster: Cluster | None = None
    head_revision: int | None = None

    def submit(self: Any, op: Put | Delete | Txn, completion: Completion, /) -> None:
        if isinstance(op, Put):
            work = self.put(
                op.key,
                op.value,
                lease=op.lease,
                prev_kv=op.prev_kv,
                ignore_value=op.ignore_value,
                ignore_lease=op.ignore_lease,
            )
        elif isinstance(op, Delete):
            work = self.delete(op.keys, prev_kv=op.prev_kv)
        else:
            work = self.txn(op)
        _run(work, completion)

    def read(self: Any, op: Range | WaitFirst, completion: Completion, /) -> None:
        if isinstance(op, WaitFirst):
            work = self.wait_first(op.name, op.key, op.token)
        else:
            names = op.__struct_fields__
            options = {name: getattr(op, name) for name in names if name != "keys"}
            work = self.range(op.keys, **options)
        _run(work, completion)

    async def wait_first(self: Any, name: bytes, key: bytes, token: int) -> Revision | None:
        from quoracy.store.contention import wait_by_watching

        store: Store = self
        return await wait_by_watching(store, name, key, token)

    async def revision_at(self, age_s: float) -> Revision:
        raise Unsupported(f"the revision of {age_s} s ago: this store does not note times")

    def catch_up(self) -> None:
        pass


class LegacyWatch:
    """A watch that cannot be polled yet."""

    is_polled = False

    def poll(self) -> WatchBatch | None:
        raise NotImplementedError

    def on_ready(self, call: Callable[[], None]) -> None:
        raise NotImplementedError


_tasks: set[asyncio.Task[Any]] = set()


def _run(work: Coroutine[Any, Any, Any], completion: Completion) -> None:
    task = asyncio.get_running_loop().create_task(work)
    _tasks.add(task)
    task.add_done_callback(partial(_ended, completion))
    completion.on_abandon = task.cancel  # type: ignore[assignment]


def _ended(completion: Completion, task: asyncio.Task[Any]) -> None:
    _tasks.discard(task)
    if task.cancelled():
        completion.done(None, Unavailable("the caller no longer waits"))
    elif (error := task.exception()) is not None:
        completion.done(None, error)
    else:
        completion.done(task.result(), None)
