"""Writes on their way: prepared one upon the other, carried out by the store, answered in order.

    submit -> lane of the session -> Draft on the tree and on what is in flight -> store.txn
                                                                                       |
    on_outcome  <-  the replica applies the revision  <-----------  the watch   <------+

A write is prepared on the state that those before it will leave, so that many share one commit of the
store.  Its compares make sure of that state.  They fail only when something else got in between: a
session that ended, another node, a hand in the store.  Then it is prepared again.

Invariants
    * The writes of a session take effect in the order they were submitted.  In a store in this process
      one is carried out when the next is prepared; in any other the next waits for it, as no compare
      could prove that it took effect: another may have left the very same records.
    * If it is not known what became of one, none of those that were submitted behind it is begun.
    * Each write takes effect only while its session lives and is served here: it compares the session's
      record.  [fencing: a server that was paused does not write for a session that ended meanwhile]
    * An error is as sure as a success: one that was judged by a state in flight is told when that state
      has landed, and judged again if it did not.  Where others write, the store confirms it.
    * What cannot be prepared before others have landed is not overtaken for ever: whoever comes later
      and wants the same znodes has to wait for it.
    * `on_outcome` is called once, while the tree is at the revision of the write.
"""

from __future__ import annotations

import asyncio
import logging
import random
from functools import partial
from typing import TYPE_CHECKING, Final

from quoracy.clock import Clock
from quoracy.errors import NoSpace, QuoracyError, TooLarge
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree.errors import ZkError
from quoracy.faces.zookeeper.writing.claims import Claims
from quoracy.faces.zookeeper.writing.drafts import Draft, MustWait
from quoracy.faces.zookeeper.writing.in_flight import Flights
from quoracy.faces.zookeeper.writing.proposals import (
    Caller,
    MultiRefused,
    WriteRequest,
    plain_reply,
    propose,
)
from quoracy.faces.zookeeper.writing.session_queue import Lane, OnOutcome, Outcome, Request, Write
from quoracy.faces.zookeeper.writing.shortcuts import plain_write
from quoracy.faces.zookeeper.writing.tasks import Errands
from quoracy.store.api import Store
from quoracy.store.following import Following
from quoracy.store.legacy import Begins, InProcess
from quoracy.store.model import Compare, CompareTarget, Put, Relation, Txn, TxnResult
from quoracy.wire.zookeeper.codes import Err
from quoracy.wire.zookeeper.replies import path_body
from quoracy.wire.zookeeper.requests import CloseSession, PlainWrite, Sync

if TYPE_CHECKING:
    from quoracy.faces.zookeeper.tree.replica import Replica
    from quoracy.faces.zookeeper.tree.znodes import Node

__all__ = ["Commits", "OnOutcome", "Outcome", "Request"]

_log = logging.getLogger(__name__)

# How often a write is prepared again before its client is told that nobody knows.
_ATTEMPTS_MAX = 100
# So often at once: of those that race one always wins, and a pause only lets younger ones pass.  Who
# has lost more than that may be in step with another node: it waits for a random time, up to so much
# more with each.
_ATTEMPTS_AT_ONCE = 16
_APART_S = 0.001
_APART_S_MAX = 0.02

_OK: Final = int(Err.OK)
_MOD, _EQUAL = CompareTarget.MOD, Relation.EQUAL
_NO_COMPARES: list[Compare] = []


class Commits:
    """All writes of one replica."""

    def __init__(
        self,
        replica: Replica,
        store: Store,
        settings: ZooKeeperSettings,
        clock: Clock,
        *,
        sole_writer: bool,
    ) -> None:
        self._replica = replica
        self._tree, self._watches = replica.tree, replica.watches
        self._node_id = replica.node_id
        self._store = store
        self._settings = settings
        self._wall = clock.wall
        self._sole_writer = sole_writer
        self.following: Following | None = None  # in a store in this process, once it is followed
        self._begins = store if isinstance(store, Begins) else None
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[int, Lane] = {}
        self.flights = Flights()
        self._pending = self.flights.pending
        self._expected: dict[int, Write] = {}  # by the revision it was given
        self._closing: dict[int, Write] = {}  # by session
        self._claims = Claims()
        self._submitted_count = 0
        self._random = random.Random()
        self._is_over = False
        self._on_failed = self._failed  # made once
        self.errands = Errands(replica, store)
        self.count = 0  # submitted and without an outcome
        self.unsettled: set[int] = set()  # sessions of writes of which nobody knows, or ever will

    def submit(self, request: Request, caller: Caller, on_outcome: OnOutcome) -> None:
        if self._is_over:
            on_outcome.settled(None)
            return
        self.count += 1
        id = caller.session_id
        lane = self._lanes.get(id)
        if lane is None:
            lane = self._lanes[id] = Lane(id)
        self._submitted_count += 1
        write = Write(request, caller, on_outcome, lane, self._submitted_count)
        if lane.waiting or lane.is_stopped:
            lane.waiting.append(write)
        elif not self._begin(write):
            lane.waiting.insert(0, write)
        elif not lane.in_flight:
            self._retire(lane)

    # -- a lane --------------------------------------------------------------------------

    def _pump(self, lane: Lane) -> None:
        """Begin what can be begun."""
        while lane.waiting and not lane.is_stopped:
            write = lane.waiting[0]
            if write.waits_for:
                return
            del lane.waiting[0]
            if not self._begin(write):
                lane.waiting.insert(0, write)
                return
        self._retire(lane)

    def _retire(self, lane: Lane) -> None:
        """A lane is kept for as long as its session lives: most will write again.

        (Whoever was answered may have submitted more: then this is another lane, or not empty.)
        """
        id = lane.session_id
        if lane.waiting or lane.in_flight or id in self._tree.sessions:
            return
        if self._lanes.get(id) is lane:
            del self._lanes[id]

    def _begin(self, write: Write) -> bool:
        """Have it carried out or answer it; False leaves it where it is."""
        lane, request = write.lane, write.request
        if isinstance(request, PlainWrite):  # nearly all, and quickly told
            if not self._may_follow(lane):
                return False
            return self._take_shortcut(write, request) or self._prepare(write, request)
        if isinstance(request, Sync):
            write.only_looks = True
            lane.in_flight.append(write)
            self.errands.start(self._replica.sync, partial(self._synced, write, request))
            return True
        if isinstance(request, CloseSession):
            if lane.in_flight:
                return False
            lane.in_flight.append(write)
            self._closing[lane.session_id] = write
            closing = partial(self.errands.end_session, lane.session_id)
            self.errands.start(closing, partial(self._closed, write))
            return True
        return self._may_follow(lane) and self._prepare(write, request)

    def _take_shortcut(self, write: Write, request: WriteRequest) -> bool:
        """Carry out what is plain; False, with nothing done, for all else."""
        following, tree = self.following, self._tree
        session = tree.sessions.get(write.lane.session_id)
        if (
            following is None
            or following.foreign_revision > tree.zxid
            or session is None
            or session.node_id != self._node_id
            or write.refusal is not None
            or self._claims.by_path
        ):
            return False
        now_ms = int(self._wall() * 1000)
        plain = plain_write(request, session.id, tree.nodes, self._pending, now_ms)
        if plain is None:
            return False
        writes, change = plain
        write.plain = change
        try:
            revision = following.write(writes, self._on_failed, write)
        except QuoracyError:
            write.plain = None
            return False  # the long way ends there as well, and knows what to do then
        write.is_known = True
        write.revision = revision
        write.lane.in_flight.append(write)
        self._expected[revision] = write
        self.flights.leave_plain(write, change, revision)
        return True

    def _may_follow(self, lane: Lane) -> bool:
        """Whether the next write can be prepared on those in flight."""
        if not lane.in_flight:
            return True
        if lane.session_id in self._closing:
            return False
        if lane.in_flight[-1].only_looks:
            # A read between the two would be answered after what only looks, and must not see this one.
            return False
        return self.following is not None  # in this process, those are judged already

    def _prepare(self, write: Write, request: WriteRequest) -> bool:
        if write.claims:
            self._claims.drop(write)
        tree = self._tree
        session_id = write.caller.session_id
        session = tree.sessions.get(session_id) if session_id else None
        if session_id and (session is None or session.node_id != self._node_id):
            self._answer(write, None)
            return True
        refusal, write.refusal = write.refusal, None
        if refusal is not None:  # what it was judged by has landed
            self._answer(write, refusal)
            return True
        draft = Draft(tree.nodes, self._pending, now_ms=int(self._wall() * 1000))
        following = self.following
        refused: Outcome | None = None
        try:
            try:
                write.proposal = propose(request, write.caller, draft, self._settings)
            except ZkError as error:
                refused = Outcome(error.code, 0, b"")
            except MultiRefused as error:
                refused = Outcome(Err.OK, 0, error.body)
            if self._claims.by_path and not self._claims.may_go_on(write, draft):
                return False
            if refused is not None and self._is_final(draft):
                return self._refuse(write, draft, refused)
            if following is None or following.foreign_revision > tree.zxid:
                compares = draft.compares()
                if session is not None:
                    compares.append(Compare(session.key, _MOD, _EQUAL, session.mod_revision))
            else:
                compares = _NO_COMPARES  # nothing can be otherwise: see `Following.foreign_revision`
            writes, after = draft.writes() if refused is None else ([], {})
            if following is not None:
                return self._take(write, following, Txn(tuple(compares), tuple(writes)), after)
            if not writes and draft.depends:
                raise MustWait
        except MustWait:
            self._claims.wait(write, draft, None)
            return False
        write.refusal = refused
        if writes:
            first = writes[0]
            key = first.key if isinstance(first, Put) else bytes(first.keys)  # type: ignore[arg-type]
            self.flights.send(write, key, after, draft.depends)
        write.only_looks = not writes
        write.lane.in_flight.append(write)
        self._send(write, Txn(tuple(compares), tuple(writes)))
        return True

    def _take(self, write: Write, following: Following, txn: Txn, after: dict[bytes, Node]) -> bool:
        """Carried out at once, but not durable yet; the compares are judged already."""
        try:
            result = following.take(txn, self._on_failed)
        except NoSpace:
            if not write.made_room:
                write.made_room = write.lane.is_stopped = True
                write.lane.unseen += 1
                assert isinstance(self._store, InProcess)
                self.errands.start(self._store.make_room, partial(self._made_room, write.lane))
                return False
            self._answer(write, Outcome(Err.SYSTEM_ERROR, 0, b""))
            return True
        except TooLarge:
            self._answer(write, Outcome(Err.BAD_ARGUMENTS, 0, b""))
            return True
        except QuoracyError:
            self._forsake_behind(write)
            self._answer(write, None)
            return True
        write.is_known = True
        write.only_looks = not txn.then
        write.lane.in_flight.append(write)
        revision = result.revision
        if not result.succeeded:
            self._try_again(write, revision)
        elif not txn.then:
            seen = partial(self._replica.caught_up, revision)
            self.errands.start(seen, partial(self._looked, write))
        else:
            write.revision = revision
            self._expected[revision] = write
            self.flights.leave(write, after, revision)
        return True

    def _failed(self, revision: int, error: BaseException) -> None:
        """It will never be known to be durable."""
        write = self._expected.pop(revision, None)
        if write is not None and not self._is_over:
            self._give_up(write, error)

    def _made_room(self, lane: Lane, _: None, error: Exception | None) -> None:
        if error is not None:
            _log.warning("there is no room for a write, and none can be made: %s", error)
        lane.unseen -= 1
        self._restart(lane)

    def _looked(self, write: Write, _: None, error: Exception | None) -> None:
        """It only looked, and what it saw is durable now that the replica shows it."""
        if error is not None:
            self._give_up(write, error)
        else:
            self._finish(write, Outcome(Err.OK, 0, self._reply(write, 0)))

    def _send(self, write: Write, txn: Txn) -> None:
        """To a store elsewhere, which answers when it has carried it out; never in this call."""
        if self._begins is not None:
            try:
                if self._begins.begin(txn, partial(self._told, write)):
                    return
            except QuoracyError as error:
                self._loop.call_soon(self._told, write, None, error)
                return
        told = partial(self._told, write)
        self.errands.start(partial(self._store.txn, txn), told, may_raise=Exception)

    def _told(self, write: Write, result: TxnResult | None, error: BaseException | None) -> None:
        if self._is_over:
            return
        if result is None:
            self.flights.settled(write)
            self._give_up(write, error)
        else:
            self._answered(write, result)

    # -- waiting for others --------------------------------------------------------------

    def _is_final(self, draft: Draft) -> bool:
        """Whether the tree, with what is in flight, is enough to refuse something.

        Where others write it may be behind: then the store has to say that it is as was read.
        """
        return self._sole_writer or self.following is not None or not draft.paths

    def _refuse(self, write: Write, draft: Draft, outcome: Outcome) -> bool:
        if draft.depends:
            self._claims.wait(write, draft, outcome)
            return False
        self._answer(write, outcome)
        return True

    def _release(self, write: Write, *, went_through: bool) -> None:
        """Those who were judged by what it would leave, or could not be, have their turn."""
        dependents, write.dependents = write.dependents, None
        for other in dependents or ():
            assert other.waits_for is not None
            other.waits_for.discard(write)
            if not went_through:
                other.refusal = None
            if not other.waits_for:
                self._pump(other.lane)

    # -- what comes back -----------------------------------------------------------------

    def _answered(self, write: Write, result: TxnResult) -> None:
        if not result.succeeded:
            self.flights.settled(write)
            self._try_again(write, result.revision)
        elif not write.first_key:  # it only looked
            self.flights.settled(write)
            self._finish(write, write.refusal or Outcome(Err.OK, 0, self._reply(write, 0)))
        else:
            write.revision = result.revision
            self._expected[write.revision] = write
            self.flights.settled(write)
            if self._tree.zxid >= write.revision:
                self.applied(write.revision)  # the replica started anew meanwhile and is past it

    def wrote(self, first: int, last: int) -> None:
        """These revisions, all of them plain writes of ours, are durable: show and answer each."""
        expected, tree, watches = self._expected, self._tree, self._watches
        for revision in range(first, last + 1):
            write = expected[revision]
            del expected[revision]
            plain = write.plain
            assert plain is not None
            change = tree.land(plain, revision)
            if watches.is_any:
                watches.fire((change,), revision)
            # (Who has a reply already need not be told what to say.)
            body = b"" if write.replies else plain_reply(write.request, plain.node.path, change[2])
            self._finish(write, Outcome(_OK, revision, body))

    def applied(self, revision: int) -> None:
        """The tree is at this revision: answer whoever made it."""
        write = self._expected.pop(revision, None)
        if write is None:
            return
        if self._tree.zxid == revision:
            self._finish(write, Outcome(Err.OK, revision, self._reply(write, revision)))
        else:  # it happened, but what it showed then cannot be shown any more
            self._finish(write, None)

    def expected_until(self, revision: int) -> list[int]:
        """Revisions of ours up to this one that were not applied one by one."""
        return sorted(made for made in self._expected if made <= revision)

    def session_ended(self, session_id: int) -> None:
        """The tree shows a session no more: if its client asked for that, here is the answer."""
        self.unsettled.discard(session_id)
        write = self._closing.pop(session_id, None)
        if write is not None:
            self._finish(write, Outcome(Err.OK, self._tree.zxid, b""))
        lane = self._lanes.get(session_id)
        if lane is not None:
            self._retire(lane)

    def _reply(self, write: Write, revision: int) -> bytes:
        nodes = self._tree.nodes
        if write.proposal is not None:
            return write.proposal.reply(nodes, revision)
        assert write.plain is not None
        path = write.plain.node.path
        return plain_reply(write.request, path, nodes.get(path))

    def _finish(self, write: Write, outcome: Outcome | None) -> None:
        lane = write.lane
        if lane.in_flight[0] is write:
            del lane.in_flight[0]
        else:
            lane.in_flight.remove(write)
        self.flights.landed(write)
        self._answer(write, outcome)
        if lane.is_stopped:
            self._restart(lane)
        elif lane.waiting:
            self._pump(lane)
        else:
            self._retire(lane)

    def _answer(self, write: Write, outcome: Outcome | None) -> None:
        self.count -= 1
        if write.claims:
            self._claims.drop(write)
        write.on_outcome.settled(outcome)
        if write.dependents:
            self._release(write, went_through=outcome is not None)

    def _give_up(self, write: Write, error: BaseException | None) -> None:
        """The store refused it, or nobody knows."""
        if isinstance(error, NoSpace):
            self.flights.withdraw(write)
            self._finish(write, Outcome(Err.SYSTEM_ERROR, 0, b""))
        elif isinstance(error, TooLarge):
            self.flights.withdraw(write)
            self._finish(write, Outcome(Err.BAD_ARGUMENTS, 0, b""))
        else:
            if isinstance(error, QuoracyError):
                _log.info("a client has to be hung up on, because of a write: %s", error)
            elif error is not None:
                _log.error("a write failed in a way it never should", exc_info=error)
            self._lose(write)

    def _lose(self, write: Write) -> None:
        """Nobody knows what became of it, or ever will."""
        if write.first_key and write.lane.session_id in self._tree.sessions:
            self.unsettled.add(write.lane.session_id)
        self.flights.withdraw(write)
        self._forsake_behind(write)
        self._finish(write, None)

    def _forsake_behind(self, write: Write) -> None:
        """What a session submitted behind a write may count on it: without it, it must not happen."""
        waiting = list(write.lane.waiting)
        write.lane.waiting.clear()
        for other in waiting:
            self._answer(other, None)

    # -- again ---------------------------------------------------------------------------

    def _try_again(self, write: Write, revision: int) -> None:
        """What it was prepared on is not so.  Those after it will find the same."""
        write.attempts += 1
        if write.attempts >= _ATTEMPTS_MAX:
            _log.warning("gave up a write that lost %d races", write.attempts)
            self._lose(write)
            return
        lane = write.lane
        write.revision = -revision
        self.flights.withdraw(write)
        self.flights.landed(write)
        lane.is_stopped = True
        lane.unseen += 1
        self._release(write, went_through=False)
        apart_s = min(max(write.attempts - _ATTEMPTS_AT_ONCE, 0) * _APART_S, _APART_S_MAX)
        # The state that refused one of them must be seen first.
        pause_s = self._random.uniform(0.0, apart_s)
        seen = partial(self.errands.seen, revision, pause_s=pause_s)
        self.errands.start(seen, partial(self._restart_at_last, lane))

    def _restart(self, lane: Lane) -> None:
        """When all that were in flight are back: prepare those that have to be, in their order."""
        lost = [write for write in lane.in_flight if write.is_known and write.revision < 0]
        if not lane.is_stopped or lane.unseen or len(lost) < len(lane.in_flight):
            return
        lane.in_flight.clear()
        for write in reversed(lost):
            write.is_known, write.known, write.revision = False, None, 0
            write.proposal = write.refusal = None
            lane.waiting.insert(0, write)
        lane.is_stopped = False
        self._pump(lane)

    def _restart_at_last(self, lane: Lane, _: None, error: Exception | None) -> None:
        if error is not None:
            raise error
        lane.unseen -= 1
        self._restart(lane)

    # -- sync and close ------------------------------------------------------------------

    def _synced(self, write: Write, request: Sync, _: None, error: Exception | None) -> None:
        if error is not None:
            self._give_up(write, error)
        else:
            self._finish(write, Outcome(Err.OK, 0, path_body(request.path)))

    def _closed(self, write: Write, _: None, error: Exception | None) -> None:
        session_id = write.lane.session_id
        if error is None:
            self.session_ended(session_id)
        elif self._closing.pop(session_id, None) is not None:
            self._give_up(write, error)

    def end(self) -> None:
        """Nothing is begun any more."""
        self._is_over = True

    def abandon(self) -> None:
        """Of what was begun, nobody will know; no errand may be under way."""
        lanes = list(self._lanes.values())
        self.flights.clear()
        for table in (self._lanes, self._expected, self._closing, self._claims.by_path):
            table.clear()
        for lane in lanes:
            for write in (*lane.in_flight, *lane.waiting):
                write.dependents = None
                self._answer(write, None)
