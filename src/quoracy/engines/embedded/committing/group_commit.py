"""Group commit: what changed in memory goes to disk together, and is completed together.

    submit  -> State (at once, in memory)  -> the group that is filling
                                                   |  one frame of the commit log, one sync
    read    <- State as of the newest durable <- committed -> WatchHub -> watchers
                                                   |
                                             the group's completions

Everything here happens in one turn of the loop; what has to wait is `EmbeddedStore`'s.  So this module
has no coroutines and is compiled.

Invariants
    * Nothing leaves before what it depends on is durable.  Writes are completed, and events published,
      when their group is durable.  Reads are answered as of the newest durable revision: they wait for
      no disk, show nothing a crash could undo, and see every write that was completed before they came.
    * Writes take effect in the order of `submit` and end in that order, also behind one that waits for
      room: then all that follow wait as well, in a queue that is bounded by number and by bytes.
    * A group leaves for the disk when the writer has room; what arrives meanwhile goes into the next.
      While nothing is on its way it may wait for some turns, for clients that were just answered
      (`commit_delay`).  Groups end in their order.
    * A failed commit is the end of writing: its writers get `Indeterminate` (it may be on disk), all
      later ones `StorageFailed`, and the alarm is up.  Reads go on.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from quoracy.engines.embedded.committing.commit_delay import CommitDelay
from quoracy.engines.embedded.committing.group import Group, complete
from quoracy.engines.embedded.disk.writer import InstantWriter, Writer
from quoracy.engines.embedded.memory.state import State
from quoracy.engines.embedded.watching.hub import WatchHub
from quoracy.engines.embedded.watching.queue_waits import QueueWaits
from quoracy.errors import (
    Indeterminate,
    NoSpace,
    Overloaded,
    QuoracyError,
    Rejected,
    StorageFailed,
    StoreClosed,
    Unavailable,
)
from quoracy.store.completion import Completion, FutureCompletion, Reply
from quoracy.store.model import (
    Alarm,
    Delete,
    Put,
    Range,
    Revision,
    Txn,
    TxnResult,
    WaitFirst,
)
from quoracy.store.rules import (
    Limits,
    check_delete,
    check_put,
    check_range,
    check_txn,
    writes,
)

__all__ = ["GroupCommit", "put_bytes"]

# Writes in one group, and writes that wait for room: bounded by number as well as by bytes.
_PENDING_MAX: Final = 100_000
# Completions of a group that are asked for their replies while it is synced.
_REPLIES_MAX: Final = 64

# Clients that come back may need this very processor.
_give_way: Callable[[], None] = getattr(os, "sched_yield", lambda: None)

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())  # nothing on stderr unless the program sets up logging


class GroupCommit:
    """The state, the group that is filling and the one that is on its way to disk.

    on_compacted: called when a compaction is durable and the state has forgotten.
    on_full: called when a write waits for room; `take_waiting` must follow.
    on_left: called when a group has left for the disk: until it is back, its writers need no loop.
    """

    def __init__(
        self,
        state: State,
        *,
        path: Path | None,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
        on_compacted: Callable[[], None],
        on_full: Callable[[], None],
        on_left: Callable[[], None],
    ) -> None:
        self.state = state
        self.limits = limits
        # Each is looked at for every write, and in a struct that takes longer than the comparison.
        self._storage_bytes_max = limits.storage_bytes_max
        self._pending_bytes_max = limits.pending_bytes_max
        self.writer: Writer  # set before the first write
        self._sends_replies = False
        self._syncs = False  # so that a commit less is worth waiting for
        self.hub = WatchHub(
            state,
            revision=state.revision,
            events_max=limits.watch_buffer_events_max,
            bytes_max=limits.watch_buffer_bytes_max,
        )
        self.queue_waits = QueueWaits(state, self.hub)
        self.durable: Revision = state.revision
        self.durable_leases_count = len(state.leases)
        self.commits_count = 0
        self.alarms: frozenset[Alarm] = frozenset()
        self.failure: BaseException | None = None  # what stopped writing, for good
        self.is_closed = False
        self._path = path
        self._loop = loop
        self._on_compacted, self._on_full, self._on_left = on_compacted, on_full, on_left
        self._filling = Group()
        self._under_way: deque[Group] = deque()  # on their way to disk, in their order
        self._waiting: deque[_Waiting] = deque()  # for room, in their order
        self._waiting_bytes = 0
        self._makes_room = False
        self._flush_due = False
        self._delay = CommitDelay()
        self._stays_awake = False
        self._is_lone_writer = False
        self._has_replies = False  # since all was quiet the last time
        self._leases_torn = False  # the failure that stopped writes hit grants or ends of leases

    def use(self, writer: Writer) -> None:
        """Before the first write."""
        self.writer = writer
        self._sends_replies = writer.sends_replies
        self._syncs = not isinstance(writer, InstantWriter)

    # -- reading -------------------------------------------------------------------------

    def read(self, op: Range | WaitFirst, completion: Completion) -> None:
        """`Store.read`."""
        try:
            self.check_open()
            if isinstance(op, Range):
                check_range(op, self.limits)
                result = self.state.range(op, newest=self.durable)
            else:
                self.queue_waits.begin(op, completion)
                return
        except Rejected as error:
            completion.done(None, error)
        except Unavailable as error:
            completion.done(None, error)
        else:
            completion.done(result, None)

    # -- writing -------------------------------------------------------------------------

    def submit(self, op: Put | Delete | Txn, completion: Completion) -> None:
        """`Store.submit`."""
        try:
            if isinstance(op, Put):
                size = check_put(op, self.limits)
            elif isinstance(op, Txn):
                check_txn(op, self.limits)
                if not writes((op,)):
                    self._submit_reads(op, completion)
                    return
                size = put_bytes(op)
            else:
                check_delete(op, self.limits)
                size = 0
            self.check_writable()
        except Rejected as error:
            self._loop.call_soon(complete, completion, error)
            return
        except Unavailable as error:
            self._loop.call_soon(complete, completion, error)
            return
        if self._waiting or (size and self.is_full(size)):
            self._wait_for_room(op, size, completion)
            return
        group = self._filling
        if group.put_bytes > self._pending_bytes_max or len(group.completions) >= _PENDING_MAX:
            self._loop.call_soon(complete, completion, self._overloaded(group.put_bytes))
        else:
            self._execute(op, size, completion)

    def _submit_reads(self, txn: Txn, completion: Completion) -> None:
        result: TxnResult | Rejected
        self.check_open()
        try:
            result = self.state.read_txn(txn, newest=self.durable)
        except Rejected as error:
            result = error
        self._loop.call_soon(complete, completion, result)

    def _execute(self, op: Put | Delete | Txn, size: int, completion: Completion) -> None:
        """Carry it out in memory; complete it when that, or what rejected it, is durable."""
        group, state = self._filling, self.state
        if self._is_lone_writer and not self._under_way:
            self.writer.expect()
        group.put_bytes += size
        before = state.revision
        try:
            result = state.execute(op)
        except Rejected as error:
            self._complete_when_durable(completion, error)
            return
        if self.stage(before):
            group.add(completion, result)
            completion.applied(result)
            self.schedule_flush()
        else:
            self._complete_when_durable(completion, result)
            completion.applied(result)

    def _complete_when_durable(self, completion: Completion, result: object) -> None:
        """With a result that changes nothing and was judged by everything in memory."""
        if self._filling:
            self._filling.add(completion, result)
        elif self._under_way:
            self._under_way[-1].add(completion, result)
        else:
            self._loop.call_soon(complete, completion, result)

    # -- waiting for room ------------------------------------------------------------------

    def _wait_for_room(self, op: Put | Delete | Txn, size: int, completion: Completion) -> None:
        if self._waiting_bytes > self._pending_bytes_max or len(self._waiting) >= _PENDING_MAX:
            self._loop.call_soon(complete, completion, self._overloaded(self._waiting_bytes))
            return
        waiting = _Waiting(op, size, completion)
        completion.on_abandon = lambda: self._abandon(waiting)
        self._waiting.append(waiting)
        self._waiting_bytes += size
        if not self._makes_room:
            self._makes_room = True
            self._on_full()

    def _abandon(self, waiting: _Waiting) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            self._waiting_bytes -= waiting.size
            error = Unavailable("the caller no longer waits")
            self._loop.call_soon(complete, waiting.completion, error)

    def take_waiting(self) -> bool:
        """Room was made, as far as possible: carry out what waits for it, in order.

        False, if that used it up again, and some still wait.  Then more is to be made.
        """
        progressed = False
        while self._waiting:
            waiting = self._waiting[0]
            error = self._refusal(waiting.size, progressed)
            if error is None and waiting.size and self.is_full(waiting.size):
                return False
            self._waiting.popleft()
            self._waiting_bytes -= waiting.size
            waiting.completion.on_abandon = None
            if error is None:
                progressed = True
                self._execute(waiting.op, waiting.size, waiting.completion)
            else:
                self._loop.call_soon(complete, waiting.completion, error)
        self._makes_room = False
        return True

    def _refusal(self, size: int, progressed: bool) -> QuoracyError | None:
        """Why a write that waited for room can not be carried out, not even when more is made."""
        if self.is_closed:
            return StoreClosed()
        if self.failure is not None:
            return StorageFailed(str(self._path), self.failure)
        if size and not progressed and self.is_full(size):
            return self._no_space()
        return None

    def catch_up(self) -> None:
        """`Store.catch_up`."""
        if self._has_replies:
            self.writer.catch_up()

    def end_lease(self, lease: int) -> Revision:
        """End a lease without waiting for the disk: it goes with the next commit."""
        before = self.state.revision
        revision = self.state.end_lease(lease)
        self._filling.leases.append((lease, None))
        self.stage(before)
        self.schedule_flush()
        return revision

    def enlist_grant(self, lease: int, ttl_s: float) -> FutureCompletion:
        """A lease was granted; done when that is durable."""
        self._filling.leases.append((lease, ttl_s))
        return self.enlist()

    def enlist_compaction(self, at: int) -> FutureCompletion:
        """Compact with the next commit; done when that is durable and the state has forgotten."""
        self._filling.compact_revision = at
        return self.enlist()

    def remember(self, name: str, value: object) -> None:
        """Keep something beside the data, with the next commit."""
        self._filling.meta[name] = value
        self.schedule_flush()

    # -- waiting for the disk --------------------------------------------------------------

    def stage(self, before: int) -> bool:
        """Put what changed, if anything did, into the group that is filling."""
        revision = self.state.revision
        if revision == before:
            return False
        self._filling.changes.append(self.state.changes(revision))
        return True

    def enlist(self) -> FutureCompletion:
        """Done when the group that is filling is durable."""
        completion = FutureCompletion(self._loop)
        self._filling.add(completion, None)
        self.schedule_flush()
        return completion

    def settling(self) -> FutureCompletion | None:
        """Done when everything in memory is durable; None if it is."""
        if not self._filling and not self._under_way:
            self.check_unfailed()
            return None
        completion = FutureCompletion(self._loop)
        self._complete_when_durable(completion, None)
        return completion

    def leases_settling(self) -> FutureCompletion | None:
        """Done when every grant and end of a lease is durable; None if it is.

        A keep-alive itself is never written (after a restart every lease has its full time again), so
        it need not wait for the disk unless the lease itself is on its way there.
        """
        if self._filling.leases:
            return self.settling()
        for group in self._under_way:
            if group.leases:
                return self.settling()
        if self._leases_torn:
            self.check_unfailed()
        return None

    def schedule_flush(self) -> None:
        # Not at once: all that is submitted in this turn of the loop gets into the group.  Unless there
        # seems to be only one writer, which would lose that time; if there are others after all, they
        # meet in the next group.
        if self._flush_due:
            return
        if self._delay.awaited and self._delay.came():
            return  # `_stay_awake` lets it leave at the latest
        if not self.writer.has_room:
            return
        if self._is_lone_writer:
            self._flush()
        else:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        group = self._filling
        if self.failure is not None or not group or not self.writer.has_room:
            return
        group.revision = self.state.revision
        group.leases_count = len(self.state.leases)
        self._is_lone_writer = len(group.completions) == 1
        self._filling = Group()
        self._under_way.append(group)
        self.writer.commit(group, self._committed)
        if self._sends_replies:
            self._attach_replies(group)
        self._on_left()

    def _attach_replies(self, group: Group) -> None:
        """The group is on its way to disk: meanwhile make the answers that may leave with the sync.

        Of a commit that ends waits in a queue it is those of the waits only: they matter more.
        """
        if len(group.completions) > _REPLIES_MAX:
            return
        replies_wait = False
        for changes in group.changes:
            replies_wait |= self._attach(self.queue_waits.reply_ahead(changes, group.revision))
        if replies_wait:
            return
        for completion, result in group.completions:
            if not isinstance(result, Rejected):
                self._attach(completion.reply(result))

    def _attach(self, reply: Reply | None) -> bool:
        if reply is None:
            return False
        self.writer.attach(reply)
        self._has_replies = True
        return True

    def _committed(self, error: BaseException | None, _: object) -> None:
        group = self._under_way.popleft()
        if not self._under_way:
            self._has_replies = False
        if error is not None:
            self.fail(error, group)
            return
        self.commits_count += 1
        self.durable = group.revision
        self.durable_leases_count = group.leases_count
        if group.compact_revision is not None:
            self.state.compact(group.compact_revision)
            self._on_compacted()
        # Events first: a client that gets its answer may ask what the watches of others have.
        try:
            self.hub.publish(group.revision)
            self.queue_waits.tell()
        finally:
            group.succeeded()
            # Not at once: writers that were just answered come back in this same turn.  Leaving without
            # them splits writers into groups that never meet again, each with a sync of its own.
            if self._syncs and not self._under_way and self._delay.answered(group.clients_count):
                self._stay_awake_soon()
            elif self._filling:
                self.schedule_flush()

    def _stay_awake_soon(self) -> None:
        if not self._stays_awake:
            self._stays_awake = True
            self._loop.call_soon(self._stay_awake)

    def _stay_awake(self) -> None:
        """For another turn, while writers are on their way back; then let go what is there."""
        self._stays_awake = False
        if self._delay.turn():
            # Not to the worker: it copies pages for milliseconds, and a loop that has yielded to it
            # waits though another processor sleeps, since the system looks for one only when it wakes a
            # thread.
            if not self.writer.is_at_work:
                _give_way()
            self._stay_awake_soon()
        elif self._filling:
            self.schedule_flush()

    def fail(self, error: BaseException, group: Group | None = None) -> None:
        """The journal failed: stop writing, say so, keep reading."""
        if self.failure is None:
            # A disk error is logged in a line; anything else is a bug and wants its traceback.
            expected = isinstance(error, StorageFailed)
            _log.error("writing stopped: %s", error, exc_info=None if expected else error)
            self.failure = error.cause if isinstance(error, StorageFailed) else error
            self.alarms |= {Alarm.STORAGE_FAILED}
        if self._filling.leases or (group is not None and group.leases):
            self._leases_torn = True
        filling, self._filling = self._filling, Group()
        if group is not None:
            group.failed(Indeterminate(f"this write may be on disk or not: {error}"))
        filling.failed(StorageFailed(str(self._path), self.failure))

    # -- refusing ------------------------------------------------------------------------

    def check_open(self) -> None:
        if self.is_closed:
            raise StoreClosed

    def check_writable(self) -> None:
        if self.is_closed:
            raise StoreClosed
        self.check_unfailed()

    def check_unfailed(self) -> None:
        # A new error each time: one that is raised again and again gathers the traceback of each.
        if self.failure is not None:
            raise StorageFailed(str(self._path), self.failure)

    def is_full(self, size: int) -> bool:
        return bool(self.alarms) or self.state.size_bytes + size > self._storage_bytes_max

    def check_room(self) -> None:
        self.check_writable()
        if self.is_full(0):
            raise self._no_space()

    def _no_space(self) -> NoSpace:
        """The alarm is up from now on."""
        limit = self.limits.storage_bytes_max
        if not self.alarms:
            _log.warning("the quota of %d bytes is used up: writes are refused", limit)
        self.alarms |= {Alarm.NO_SPACE}
        return NoSpace(size=self.state.size_bytes, size_max=limit)

    def _overloaded(self, pending: int) -> Overloaded:
        return Overloaded(pending=pending, pending_max=self._pending_bytes_max)

    def review_space(self) -> None:
        """Writes resume when there is room again, with some to spare so that they do not stutter."""
        if (
            Alarm.NO_SPACE in self.alarms
            and self.state.size_bytes <= self.limits.storage_bytes_max * 0.95
        ):
            self.alarms -= {Alarm.NO_SPACE}
            _log.warning("there is room again: writes are taken")

    @property
    def pressed_for_space(self) -> bool:
        """Whether history should give way to data."""
        state, limit = self.state, self.limits.storage_bytes_max
        if Alarm.NO_SPACE in self.alarms:
            return state.history_bytes > 0
        return state.size_bytes > limit * 3 // 4 and state.history_bytes > limit // 20


class _Waiting:
    """A write that waits for room."""

    __slots__ = ("completion", "op", "size")

    def __init__(self, op: Put | Delete | Txn, size: int, completion: Completion) -> None:
        self.op, self.size, self.completion = op, size, completion


def put_bytes(txn: Txn) -> int:
    """What its puts could add at most, both branches together."""
    size = 0
    for op in (*txn.then, *txn.otherwise):
        if isinstance(op, Put):
            size += len(op.key) + len(op.value)
        elif isinstance(op, Txn):
            size += put_bytes(op)
    return size
