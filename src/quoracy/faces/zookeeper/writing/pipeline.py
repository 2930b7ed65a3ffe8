"""The way of a write: from a request to a draft, to a transaction, to its outcome.

    submit -> the session's queue -> Draft on the tree and on what is in flight -> Store.submit
                                                                                      |
    settled  <-  the tree is at its revision (`Applier`)  <------  the watch  <-------+

A write is drafted on the state that those before it will leave, so that many share one commit of the
store.  Its compares make sure of that state.  They fail only when something else got in between: a
session that ended, another node, a hand in the store.  Then it is drafted again.

Invariants
    * The writes of a session take effect in the order in which they were submitted: the next one is
      drafted when the one before it is judged, which the embedded engine does within `submit`.
    * If it is not known what became of one, none of those that were submitted behind it is begun.
    * Each write takes effect only while its session lives and is served here: it compares the session's
      record.  [fencing: a server that was paused does not write for a session that ended meanwhile]
    * An error is as sure as a success: the store confirms the state that it was judged by.  One that
      was judged by what is in flight is judged again when that has landed.
    * What cannot be drafted before others have landed is not overtaken for ever: younger writes that
      want the same znodes have to wait for it.
    * An outcome is given once, while the tree is at the revision of the write.
"""

from __future__ import annotations

import logging
import random
from functools import partial
from typing import TYPE_CHECKING, Final

from quoracy.clock import Clock
from quoracy.errors import NoSpace, QuoracyError, StorageFailed, TooLarge, Unavailable
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree.paths import ZkError
from quoracy.faces.zookeeper.tree.znodes import SessionRecord
from quoracy.faces.zookeeper.writing.drafts import Draft, MustWait
from quoracy.faces.zookeeper.writing.in_flight import (
    Claims,
    InFlight,
    OnOutcome,
    Outcome,
    Request,
    SessionQueue,
    Write,
)
from quoracy.faces.zookeeper.writing.proposals import Caller, MultiRefused, WriteRequest, propose
from quoracy.store.api import Store
from quoracy.store.completion import Reply
from quoracy.store.model import Compare, CompareTarget, Put, Relation, Txn, TxnResult
from quoracy.wire.zookeeper.codes import Err
from quoracy.wire.zookeeper.replies import path_body
from quoracy.wire.zookeeper.requests import CloseSession, Sync

if TYPE_CHECKING:
    from quoracy.faces.zookeeper.tree.replica import Replica

__all__ = ["OnOutcome", "Outcome", "Request", "WritePipeline"]

_log = logging.getLogger(__name__)

# How often a write is drafted again before its outcome counts as unknown.
_ATTEMPTS_MAX = 100
# So often at once: of those that race one always wins, and a pause only lets younger ones pass.  One
# that has lost more often may be in step with another node: it waits for a random time, up to this
# much more with each.
_ATTEMPTS_AT_ONCE = 16
_APART_S = 0.001
_APART_S_MAX = 0.02

_OK: Final = int(Err.OK)
_MOD: Final = CompareTarget.MOD
_EQUAL: Final = Relation.EQUAL


_NO_COMPARES: Final[list[Compare]] = []


class WritePipeline:
    """All writes of one replica."""

    def __init__(
        self, replica: Replica, store: Store, settings: ZooKeeperSettings, clock: Clock
    ) -> None:
        self._replica = replica
        self._tree = replica.tree
        self._node_id = replica.node_id
        self._store = store
        self._settings = settings
        self._wall = clock.wall
        self._queues: dict[int, SessionQueue] = {}
        self.in_flight = InFlight()
        self._pending = self.in_flight.pending
        self.judged: dict[int, Write] = {}  # those that the tree does not show, by their revision
        self._newest = 0  # the newest revision that one of them has had
        self._foreign = 0  # up to here there may be revisions that are neither ours nor in the tree
        self._closing: dict[int, Write] = {}  # by session
        self._claims = Claims()
        self._submitted_count = 0
        self._random = random.Random()
        self._is_over = False
        self.count = 0  # submitted and without an outcome
        self.unsettled: set[int] = set()  # sessions with a write whose outcome is not known

    def submit(self, request: Request, caller: Caller, on_outcome: OnOutcome) -> None:
        if self._is_over:
            on_outcome.settled(None)
            return
        self.count += 1
        id = caller.session_id
        queue = self._queues.get(id)
        if queue is None:
            queue = self._queues[id] = SessionQueue(id)
        self._submitted_count += 1
        queue.waiting.append(Write(self, request, caller, on_outcome, queue, self._submitted_count))
        self._advance(queue)

    # -- the queue of a session ------------------------------------------------------------

    def _advance(self, queue: SessionQueue) -> None:
        """Begin what can be begun."""
        if queue.is_advancing:
            return  # the call that does will see what is new
        queue.is_advancing = True
        waiting = queue.waiting
        try:
            while waiting:
                write = waiting[0]
                if write.waits_for or write.is_held or not self._may_begin(queue, write):
                    break
                del waiting[0]
                if not self._begin(write):
                    waiting.insert(0, write)
                    break
        finally:
            queue.is_advancing = False
        if not waiting and not queue.in_flight:
            self._retire(queue)

    def _retire(self, queue: SessionQueue) -> None:
        """A queue is kept for as long as its session lives: most sessions will write again."""
        id = queue.session_id
        if id not in self._tree.sessions and self._queues.get(id) is queue:
            del self._queues[id]

    def _may_begin(self, queue: SessionQueue, write: Write) -> bool:
        if not queue.in_flight:
            return True
        if isinstance(write.request, CloseSession):
            return False
        before = queue.in_flight[-1]
        # A read between the two would be answered after what only looks, and must not see this one.
        return isinstance(write.request, Sync) or (before.is_judged and not before.only_looks)

    def _begin(self, write: Write) -> bool:
        """Have it carried out or answer it; False if it has to wait for others."""
        queue, request = write.queue, write.request
        if isinstance(request, Sync):
            write.only_looks = True
            queue.in_flight.append(write)
            self._replica.start(self._replica.sync, partial(self._synced, write, request))
            return True
        if isinstance(request, CloseSession):
            queue.in_flight.append(write)
            self._closing[queue.session_id] = write
            closing = partial(self._replica.end_session, queue.session_id)
            self._replica.start(closing, partial(self._closed, write))
            return True
        return self._draft(write, request)

    def _draft(self, write: Write, request: WriteRequest) -> bool:
        if write.claims:
            self._claims.drop(write)
        tree = self._tree
        session_id = write.caller.session_id
        session = tree.sessions.get(session_id) if session_id else None
        if session_id and (session is None or session.node_id != self._node_id):
            self._answer(write, None)
            return True
        draft = Draft(tree.nodes, self._pending, now_ms=int(self._wall() * 1000))
        refusal: Outcome | None = None
        try:
            try:
                write.proposal = propose(request, write.caller, draft, self._settings)
            except ZkError as error:
                refusal = Outcome(error.code, 0, b"")
            except MultiRefused as refused:
                refusal = Outcome(_OK, 0, refused.body)
            if self._claims.by_path and not self._claims.may_go_on(write, draft):
                return False
            if refusal is not None and not draft.paths:  # it is wrong in itself
                self._answer(write, refusal)
                return True
            self._send(write, draft, refusal, session)
        except MustWait:
            self._claims.wait(write, draft)
            return False
        return True

    def _send(
        self, write: Write, draft: Draft, refusal: Outcome | None, session: SessionRecord | None
    ) -> None:
        """Have the store carry out the draft, or confirm what refuses it.  Raises `MustWait`."""
        compares = _NO_COMPARES
        if refusal is not None or not self._knows_all():
            compares = draft.compares()
            if session is not None:
                compares.append(Compare(session.key, _MOD, _EQUAL, session.mod_revision))
        writes, after = draft.writes() if refusal is None else ([], {})
        bases = draft.depends
        if bases and not writes:
            raise MustWait  # the answer must not show what the tree does not show yet
        write.refusal = refusal
        write.only_looks = not writes
        write.queue.in_flight.append(write)
        if writes:
            first = writes[0]
            key = first.key if isinstance(first, Put) else bytes(first.keys)  # type: ignore[arg-type]
            self.in_flight.leave(write, key, after, bases)
        self._store.submit(Txn(tuple(compares), tuple(writes)), write)
        if writes and not write.is_judged:
            self.in_flight.await_judgement(write)

    def _knows_all(self) -> bool:
        """Whether the tree and what is in flight are all there is: then a draft cannot be overtaken.

        A write takes effect inside `submit` where the store has a head revision, and nothing happens
        between reading that and the call.
        """
        zxid = self._tree.zxid
        return self._foreign <= zxid and self._store.head_revision == max(self._newest, zxid)

    # -- what the store says (see `Completion`) ----------------------------------------------

    def applied(self, write: Write, result: TxnResult) -> None:
        if self._is_over:
            return
        if not result.succeeded:
            self.in_flight.withdraw(write)  # `done` comes when what it lost against is durable
        elif not write.only_looks:
            self._judge(write, result.revision)

    def reply(self, write: Write, result: TxnResult) -> Reply | None:
        """The reply to a write that was applied, if that can be made before the tree is there."""
        proposal = write.proposal
        if (
            proposal is None
            or not write.is_judged
            or self._is_over
            or self._foreign > self._tree.zxid  # others may have changed these znodes
        ):
            return None
        body = proposal.reply_ahead(write.left)
        if body is None:
            return None
        reply = write.on_outcome.reply(result.revision, body)
        write.has_reply = reply is not None
        return reply

    def done(self, write: Write, result: TxnResult | None, error: BaseException | None) -> None:
        if self._is_over:
            return
        if result is None:
            self.judged.pop(write.revision, None)
            if write.is_judged or isinstance(error, StorageFailed):
                # Nothing that was drafted on it will be durable either.
                self._replica.applier.fail(Unavailable(f"the store writes nothing any more: {error}"))
            self._give_up(write, error)
        elif not result.succeeded:
            self._try_again(write, result.revision)
        elif write.only_looks:
            self._finish(write, write.refusal or Outcome(_OK, 0, self._body(write, 0)))
        elif not write.is_judged:
            self._judge(write, result.revision)
        else:
            return  # known since it was applied
        self._replica.applier.resume()

    def _judge(self, write: Write, revision: int) -> None:
        """It took effect: what it left is known, and the next one can be drafted on that."""
        write.is_judged = True
        write.revision = revision
        self.judged[revision] = write
        self.in_flight.judged(write, revision)
        zxid = self._tree.zxid
        if revision > max(self._newest, zxid) + 1:
            self._foreign = revision - 1
        self._newest = revision
        if zxid >= revision:
            self.shown(revision)  # the replica has read the tree anew meanwhile
        elif write.queue.waiting:
            self._advance(write.queue)

    # -- what the tree shows -----------------------------------------------------------------

    def shown(self, revision: int) -> None:
        """The tree is at this revision: answer its author."""
        write = self.judged.pop(revision, None)
        if write is None:
            return
        if self._tree.zxid == revision:
            body = b"" if write.has_reply else self._body(write, revision)
            self._finish(write, Outcome(_OK, revision, body))
        else:  # it happened, but what it showed then cannot be shown any more
            self._finish(write, None)

    def skipped(self, revision: int) -> None:
        """The tree was read anew, and is at this revision: answer the authors of all up to it."""
        self.in_flight.started_anew()
        for made in sorted(each for each in self.judged if each <= revision):
            self.shown(made)

    def session_ended(self, session_id: int) -> None:
        """The tree does not show a session any more: if its client asked for that, answer it."""
        self.unsettled.discard(session_id)
        write = self._closing.pop(session_id, None)
        if write is not None:
            self._finish(write, Outcome(_OK, self._tree.zxid, b""))
        queue = self._queues.get(session_id)
        if queue is not None and not queue.waiting and not queue.in_flight:
            self._retire(queue)

    def _body(self, write: Write, revision: int) -> bytes:
        proposal = write.proposal
        assert proposal is not None
        return proposal.reply(self._tree.nodes, revision)

    def _finish(self, write: Write, outcome: Outcome | None) -> None:
        queue = write.queue
        if queue.in_flight[0] is write:
            del queue.in_flight[0]
        else:
            queue.in_flight.remove(write)
        self.in_flight.landed(write)
        self._answer(write, outcome)
        self._advance(queue)

    def _answer(self, write: Write, outcome: Outcome | None) -> None:
        self.count -= 1
        if write.claims:
            self._claims.drop(write)
        write.on_outcome.settled(outcome)
        if write.dependents:
            self._release(write)

    def _release(self, write: Write) -> None:
        """Those that were judged by what it would leave, or could not be, have their turn."""
        dependents, write.dependents = write.dependents, None
        for other in dependents or ():
            assert other.waits_for is not None
            other.waits_for.discard(write)
            if not other.waits_for:
                self._advance(other.queue)

    # -- failures ----------------------------------------------------------------------------

    def _give_up(self, write: Write, error: BaseException | None) -> None:
        """The store refused it, or its outcome is not known."""
        self.in_flight.withdraw(write)
        if isinstance(error, NoSpace):
            self._finish(write, Outcome(Err.SYSTEM_ERROR, 0, b""))
        elif isinstance(error, TooLarge):
            self._finish(write, Outcome(Err.BAD_ARGUMENTS, 0, b""))
        else:
            if isinstance(error, QuoracyError):
                _log.info("closing the connection of a client, because of a write: %s", error)
            elif error is not None:
                _log.error("a write failed in a way it never should", exc_info=error)
            self._lose(write)

    def _lose(self, write: Write) -> None:
        """Its outcome is not known, and never will be."""
        session_id = write.queue.session_id
        if not write.only_looks and session_id in self._tree.sessions:
            self.unsettled.add(session_id)
        # What the session submitted behind it may count on it: without it, that must not happen.
        waiting = list(write.queue.waiting)
        write.queue.waiting.clear()
        for other in waiting:
            self._answer(other, None)
        self._finish(write, None)

    def _try_again(self, write: Write, revision: int) -> None:
        """The state it was drafted on is not so: wait until the tree shows what is."""
        self.in_flight.withdraw(write)
        write.attempts += 1
        if write.attempts >= _ATTEMPTS_MAX:
            _log.warning("gave up a write that lost %d races", write.attempts)
            self._lose(write)
            return
        queue = write.queue
        queue.in_flight.remove(write)
        self.in_flight.landed(write)
        write.is_held, write.on_abandon, write.proposal = True, None, None
        queue.waiting.insert(0, write)
        self._release(write)
        apart_s = min(max(write.attempts - _ATTEMPTS_AT_ONCE, 0) * _APART_S, _APART_S_MAX)
        pause_s = self._random.uniform(0.0, apart_s)
        seen = partial(self._replica.caught_up, revision, pause_s=pause_s)
        self._replica.start(seen, partial(self._seen, write))

    def _seen(self, write: Write, _: None, error: Exception | None) -> None:
        if error is not None:
            raise error
        write.is_held = False
        self._advance(write.queue)

    # -- sync and close ----------------------------------------------------------------------

    def _synced(self, write: Write, request: Sync, _: None, error: Exception | None) -> None:
        if error is not None:
            self._give_up(write, error)
        else:
            self._finish(write, Outcome(_OK, 0, path_body(request.path)))

    def _closed(self, write: Write, _: None, error: Exception | None) -> None:
        session_id = write.queue.session_id
        if error is None:
            self.session_ended(session_id)
        elif self._closing.pop(session_id, None) is not None:
            self._give_up(write, error)

    # -- the end -----------------------------------------------------------------------------

    def end(self) -> None:
        """Nothing is begun any more."""
        self._is_over = True

    def abandon(self) -> None:
        """The outcome of what was begun will never be known; no task of it may be running."""
        queues = list(self._queues.values())
        self.in_flight.clear()
        for table in (self._queues, self.judged, self._closing, self._claims.by_path):
            table.clear()
        for queue in queues:
            for write in (*queue.in_flight, *queue.waiting):
                write.dependents = None
                write.abandon()
                self._answer(write, None)
