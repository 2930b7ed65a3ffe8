"""Waits for the front of a queue of `store.contention`, completed in the turn of the commit.

What `contention.wait_by_watching` does with a watch and a read, done by the store itself, without a
task: the next in the queue learns of its turn in the commit that makes it the first, before the write
that released it is completed.

Invariants
    * Each wait ends once: at a durable revision at which its key was there and no older one was, or
      without a revision if its key was gone.
    * It watches the youngest of the older keys and nothing else: a release makes one wait look.
    * The keys that are older than one that is there only become fewer: they are looked for when a wait
      begins, and after that only whether they are still there.
    * Nothing is left of a wait that is over or was abandoned.
    * What is not durable yet changes nothing here: of it only a reply is made, which leaves with it.
"""

from __future__ import annotations

from bisect import bisect_left

from quoracy.engines.embedded.committing.group import complete
from quoracy.engines.embedded.memory.revision_log import Changes
from quoracy.engines.embedded.memory.state import State
from quoracy.engines.embedded.watching.hub import Watcher, WatchHub
from quoracy.errors import Unavailable
from quoracy.store.completion import Completion, Reply
from quoracy.store.contention import queue_of
from quoracy.store.model import KeyRange, Range, WaitFirst

__all__ = ["QueueWaits"]


class _Queue:
    """The known keys below a name: those created before `known_until`, oldest first."""

    __slots__ = ("keys", "known_until", "name", "waits_count")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.keys: list[tuple[int, bytes]] = []  # with the revision that created each
        self.known_until = 0
        self.waits_count = 0


class _Wait:
    """One wait; `watcher` is there while it watches an older key, which is `older`."""

    __slots__ = ("completion", "key", "older", "queue", "token", "watcher")

    def __init__(self, queue: _Queue, key: bytes, token: int, completion: Completion) -> None:
        self.queue, self.key, self.token = queue, key, token
        self.completion = completion
        self.watcher: Watcher | None = None
        self.older = b""


class QueueWaits:
    """All such waits of one store."""

    def __init__(self, state: State, hub: WatchHub) -> None:
        self._state, self._hub = state, hub
        self._all: dict[_Wait, None] = {}
        self._queues: dict[bytes, _Queue] = {}  # those with a wait
        self._woken: dict[_Wait, None] = {}
        self._by_older: dict[bytes, _Wait] = {}  # by the key that they watch

    def begin(self, op: WaitFirst, completion: Completion) -> None:
        """Complete with the revision, or with None once the key is gone; maybe at once."""
        queue = self._queues.get(op.name)
        if queue is None:
            queue = self._queues[op.name] = _Queue(op.name)
        queue.waits_count += 1
        wait = _Wait(queue, op.key, op.token, completion)
        self._all[wait] = None
        completion.on_abandon = lambda: self._abandon(wait)
        self._look(wait)

    def tell(self) -> None:
        """The hub has published: look at the waits whose turn it may be."""
        if self._woken:
            woken, self._woken = self._woken, {}
            for wait in woken:
                self._look(wait)

    def reply_ahead(self, changes: Changes, revision: int) -> Reply | None:
        """The reply of the wait that ends with these changes of a commit on its way to disk."""
        if not self._by_older:
            return None
        for kv in changes:
            if not kv.version:
                wait = self._by_older.get(kv.key)
                if wait is not None and self._is_first(wait, revision):
                    return wait.completion.reply(revision)
        return None

    def dismiss(self, error: BaseException) -> None:
        """End all of them with an error."""
        for wait in list(self._all):
            self._end(wait, error)

    def _look(self, wait: _Wait) -> None:
        """End it, or watch the last of the keys before it."""
        if wait not in self._all:
            return
        self._stop_watching(wait)
        revision = self._hub.revision
        kv = self._state.get(wait.key, revision)
        if kv is None or kv.create_revision != wait.token:
            self._end(wait, None)
            return
        older = self._last_before(wait.queue, wait.token, revision)
        if older is None:
            self._end(wait, revision)
            return
        wait.watcher = Watcher(
            KeyRange.exactly(older),
            next_revision=revision + 1,
            wake=lambda: self._woken.__setitem__(wait, None),
            puts=False,
        )
        self._hub.add(wait.watcher, now=0.0)  # which is for progress, and it asks for none
        wait.older = older
        self._by_older[older] = wait

    def _is_first(self, wait: _Wait, at: int) -> bool:
        """What `_look` will find at a revision, if nothing else happens until then."""
        kv = self._state.get(wait.key, at)
        if kv is None or kv.create_revision != wait.token:
            return False
        keys = wait.queue.keys
        for number in range(bisect_left(keys, (wait.token, b""))):
            created, key = keys[number]
            kv = self._state.get(key, at)
            if kv is not None and kv.create_revision == created:
                return False
        return True

    def _last_before(self, queue: _Queue, token: int, at: int) -> bytes | None:
        """The youngest of the keys that are older than the one created at `token`, which is there."""
        if token > queue.known_until:
            found = self._state.range(
                Range(queue_of(queue.name), create_revision_max=token - 1), newest=at
            )
            queue.keys = sorted([(kv.create_revision, kv.key) for kv in found.kvs])
            queue.known_until = token
        keys = queue.keys
        count = bisect_left(keys, (token, b""))
        while count:
            count -= 1
            created, key = keys[count]
            kv = self._state.get(key, at)
            if kv is not None and kv.create_revision == created:
                return key
            del keys[count]
        return None

    def _abandon(self, wait: _Wait) -> None:
        self._end(wait, Unavailable("the caller no longer waits"))

    def _end(self, wait: _Wait, result: int | BaseException | None) -> None:
        if wait in self._all:
            wait.completion.on_abandon = None
            self._leave(wait)
            complete(wait.completion, result)

    def _leave(self, wait: _Wait) -> None:
        if self._all.pop(wait, wait) is None:
            queue = wait.queue
            queue.waits_count -= 1
            if not queue.waits_count:
                del self._queues[queue.name]
            self._woken.pop(wait, None)
            self._stop_watching(wait)

    def _stop_watching(self, wait: _Wait) -> None:
        if wait.watcher is not None:
            self._hub.remove(wait.watcher)
            wait.watcher = None
            if self._by_older.get(wait.older) is wait:
                del self._by_older[wait.older]
