"""Sessions: what a client comes back to, and what keeps its ephemerals alive.

A session is a lease of the store with the same id, and a record that hangs on it.  When the lease ends
(revoked by closeSession, or not renewed in time) the record goes in the same revision as the session's
ephemerals, and every node sees that in the one order there is.  So nothing here decides that a session
is over: the replica calls `gone`.

Invariants
    * A client learns of a session only when its record is durable and in this node's tree, and of an
      expiry only when the store says that there is no such session.  Whatever else goes wrong on the
      way (the store is away, overloaded, full, or does not know what it did) is answered by hanging up:
      the client tries again, and an untold session ends by itself.
    * A session never ends early, and hardly late: see `rhythm`.  Where the lease is much longer than
      the timeout (a store has a least time to live, and that of a lease cannot be changed when a client
      comes back with a shorter timeout), the node that serves the session ends it.
    * On a cluster no answer promises more than the lease is known to have: see `rhythm`.
    * Only the node whose client is connected keeps a lease alive, and only when the client is heard of.
    * A session has one connection.  A second one that knows the password takes it over, at this node or
      at another: the record says at which, and writes compare it.  Where it is not known what became of
      a write, the record is written anew before the session goes on: if the write is still on its way,
      it comes to nothing then.
    * At most one renewal of a session is under way.

Differs from ZooKeeper:
    * A wrong password is refused before the session's other connection is hung up on.  There it is the
      other way round, and a client that knows an id can disconnect its owner.
    * A client that comes back may shorten the session's timeout, but make it no longer than the session
      was made for: the time to live of a lease is for good.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import os
from collections.abc import Coroutine
from typing import Any, Protocol

from quoracy.clock import Clock
from quoracy.errors import Indeterminate, LeaseExists, LeaseNotFound, QuoracyError, Unavailable
from quoracy.faces.zookeeper.serving.session_timing import CLUSTER, NEAR, RENEW_S
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree.acl import is_same
from quoracy.faces.zookeeper.tree.layout import encode_session, session_key
from quoracy.faces.zookeeper.tree.replica import Replica
from quoracy.faces.zookeeper.tree.znodes import SessionRecord
from quoracy.store.api import Store
from quoracy.store.model import Compare, LeaseId, Put, Txn
from quoracy.wire.zookeeper.codes import PASSWORD_BYTES
from quoracy.wire.zookeeper.requests import ConnectRequest

__all__ = [
    "Session",
    "SessionConnection",
    "SessionKeeper",
    "Sessions",
    "negotiated",
    "random_id",
    "random_password",
]

logger = logging.getLogger(__name__)

# How long a client that has seen more than this node waits until the node has seen it too.
CATCH_UP_S = 2.0
# How often a session is moved here before its client has to try again: others want it as well.
_MOVES_MAX = 3
# Before a renewal is tried again for which a client waits.
_RENEW_AGAIN_S = 0.25
# In the record of a session that no node serves any more, and no client can come back to.
_NOBODY = bytes(8)


class SessionConnection(Protocol):
    """What sessions call of a connection."""

    @property
    def is_over(self) -> bool: ...

    def established(self, session: Session) -> None:
        """The session stands: tell the client, and serve it."""
        ...

    def refused(self) -> None:
        """The session it asked for does not exist: tell the client, and hang up."""
        ...

    def session_ended(self) -> None: ...

    def session_is_sure(self) -> None:
        """Requests that waited for that are to be taken."""
        ...

    def hang_up(self, reason: str) -> None: ...


class SessionKeeper(Protocol):
    """Has the sessions that connections are for."""

    def connect(self, request: ConnectRequest, connection: SessionConnection) -> None:
        """Find or make the session a client asks for; `connection` gets the outcome, once."""
        ...

    def touch(self, session: Session) -> float:
        """The client gave a sign of life; returns when."""
        ...

    def doubt(self, session: Session, now: float) -> None:
        """It is past `sure_until`: the connection hears `session_is_sure`, or is hung up on."""
        ...

    def disconnected(self, session: Session, connection: SessionConnection) -> None:
        """A connection is over; its session waits for the client to come back, as long as it lives."""
        ...


class Session:
    """A session as the node that serves it sees it; `connection` is None while the client is away."""

    __slots__ = (
        "confirmed_at",
        "connection",
        "heard_at",
        "heard_since",
        "id",
        "is_awaited",
        "password",
        "renew_s",
        "renewed_at",
        "renewing",
        "sure_until",
        "timeout_ms",
    )

    def __init__(self, id: int, password: bytes) -> None:
        self.id, self.password = id, password
        self.connection: SessionConnection | None = None
        self.timeout_ms = 0
        self.renew_s = 0.0
        self.heard_at = 0.0  # the last sign of life
        self.renewed_at = 0.0  # the last one that was passed on
        self.renewing = False
        self.heard_since = False  # another one is to be passed on as soon as that is done
        self.confirmed_at = 0.0  # when the last renewal was begun of which is known that it was one
        self.sure_until = math.inf  # until then requests may be answered
        self.is_awaited = False  # requests wait for a renewal


class SessionUnknown(Exception):
    """There is no such session, or the password is not its."""


class Sessions:
    """The sessions this node serves."""

    def __init__(
        self, store: Store, replica: Replica, settings: ZooKeeperSettings, clock: Clock
    ) -> None:
        self._store, self._replica, self._clock = store, replica, clock
        self._settings = settings
        self._rhythm = NEAR if store.cluster is None else CLUSTER
        self._now = clock.now
        self._sessions: dict[int, Session] = {}
        # Those whose lease would let them live on for long after their timeout: (deadline, id), each id
        # once.  A deadline that was put off meanwhile is put right when it comes to the top.
        self._overlong: list[tuple[float, int]] = []
        self._minded: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Task[None] | None = None

    def get(self, id: int) -> Session | None:
        return self._sessions.get(id)

    # -- a client connects -----------------------------------------------------------------

    def connect(self, request: ConnectRequest, connection: SessionConnection) -> None:
        self._start(self._connect(request, connection))

    async def _connect(self, request: ConnectRequest, connection: SessionConnection) -> None:
        timeout_ms = negotiated(request.timeout_ms, self._settings)
        is_new = not request.session_id
        try:
            if not await self._has_seen(request.last_zxid_seen):
                # Another node may know it; this one must not show the client an older state.
                seen, zxid = request.last_zxid_seen, self._replica.tree.zxid
                connection.hang_up(f"it has seen zxid {seen:#x}, and here it is {zxid:#x}")
                return
            if is_new:
                session = await self.open(timeout_ms)
            else:
                session = await self.attach(request.session_id, request.password, timeout_ms)
        except SessionUnknown:
            connection.refused()
        except QuoracyError as error:
            connection.hang_up(f"its session could not be established: {error}")
        except Exception:
            connection.hang_up("its session could not be established, because of an error here")
            raise
        else:
            if not connection.is_over:
                self._take_over(session, connection)
                connection.established(session)
            elif is_new and session.connection is None:
                # No client knows its id and password, so none can come back for it.
                await self._end(session.id)

    async def _has_seen(self, zxid: int) -> bool:
        """Whether this node is where the client has been, after a moment if need be.

        Differs from ZooKeeper: that refuses at once a client which has seen more.
        """
        tree = self._replica.tree
        if tree.zxid < zxid:
            try:
                async with asyncio.timeout(CATCH_UP_S):
                    await self._replica.sync()
            except TimeoutError:
                logger.info("the replica did not catch up with a client within %g s", CATCH_UP_S)
        return tree.zxid >= zxid

    def _take_over(self, session: Session, connection: SessionConnection) -> None:
        before = session.connection
        if before is not None and before is not connection:
            before.hang_up("its session is served by another connection now")
        session.connection = connection

    async def open(self, timeout_ms: int) -> Session:
        """A new session, once it is durable and in the tree."""
        password = random_password()
        started = self._now()
        while True:
            id = random_id()
            if not id:
                continue  # means "a new one" in a ConnectRequest
            try:
                lease = await self._store.grant(self._rhythm.ttl_s(timeout_ms), id=LeaseId(id))
            except LeaseExists:
                continue
            break
        record = encode_session(password, timeout_ms, self._replica.node_id)
        put = await self._store.put(session_key(id), record, lease=id)
        await self._replica.caught_up(put.revision)
        if id not in self._replica.tree.sessions:
            raise LeaseNotFound(id)
        session = self._sessions[id] = Session(id, password)
        self._begin(session, timeout_ms, started, lease.ttl_s)
        return session

    def _begin(self, session: Session, timeout_ms: int, started: float, ttl_s: float) -> None:
        """It is served here from now on, and was renewed by what was begun at `started`."""
        session.timeout_ms = timeout_ms
        session.renew_s = self._rhythm.renew_s(timeout_ms)
        session.heard_at = session.renewed_at = started
        self._confirm(session, started)
        self._mind_overlong(session, ttl_s)

    def _confirm(self, session: Session, began: float) -> None:
        session.confirmed_at = began
        session.sure_until = began + self._rhythm.answers_s(session.timeout_ms)

    async def attach(self, id: int, password: bytes, timeout_ms: int) -> Session:
        """The session a client comes back to.  Raises `SessionUnknown` if there is none such."""
        record = await self._find(id)
        if record is None or not is_same(record.password, password):
            raise SessionUnknown
        session = self._sessions.get(id)
        if session is not None and session.connection is not None:
            session.connection.hang_up("its client has connected again")
        started = self._now()
        try:
            lease = await self._store.keep_alive(id)
            timeout_ms = min(timeout_ms, self._rhythm.timeout_ms_of(lease.ttl_s))
            await self._serve_here(id, password, timeout_ms)
        except LeaseNotFound as error:
            raise SessionUnknown from error
        session = self._sessions.get(id)
        if session is None:
            session = self._sessions[id] = Session(id, password)
        self._begin(session, timeout_ms, started, lease.ttl_s)
        return session

    async def _serve_here(self, id: int, password: bytes, timeout_ms: int) -> None:
        """See to it that the record says that this node serves the session, and with which timeout."""
        replica = self._replica
        for _ in range(_MOVES_MAX):
            record = replica.tree.sessions.get(id)
            if record is None or not is_same(record.password, password):
                raise SessionUnknown
            is_so = record.node_id == replica.node_id and record.timeout_ms == timeout_ms
            if is_so and id not in replica.unsettled:
                return
            value = encode_session(record.password, timeout_ms, replica.node_id)
            if await self._rewrite(record, value):
                replica.unsettled.discard(id)
                return
        raise Unavailable(f"session {id:x} is wanted by other connections too. Connect again.")

    async def _rewrite(self, record: SessionRecord, value: bytes) -> bool:
        """Write the record unless another node has; either way the tree shows what came of it."""
        key = session_key(record.id)
        unchanged = Compare.mod_revision(key, "=", record.mod_revision)
        result = await self._store.txn(Txn((unchanged,), (Put(key, value, lease=record.id),)))
        await self._replica.caught_up(result.revision)
        return result.succeeded

    async def _find(self, id: int) -> SessionRecord | None:
        sessions = self._replica.tree.sessions
        if id not in sessions and id > 0:
            # It may have been made at another node a moment ago: the store knows.
            found = await self._store.range(session_key(id))
            if found.kvs:
                await self._replica.caught_up(found.revision)
        return sessions.get(id)

    # -- while it lives --------------------------------------------------------------------

    def touch(self, session: Session) -> float:
        now = self._now()
        session.heard_at = now
        if now - session.renewed_at >= session.renew_s:
            self._renew_soon(session)
        return now

    def doubt(self, session: Session, now: float) -> None:
        if now - session.confirmed_at > self._rhythm.doubt_s(session.timeout_ms):
            self._give_up(session)
        else:
            session.is_awaited = True
            self._renew_soon(session)

    def _give_up(self, session: Session) -> None:
        if session.connection is not None:
            session.connection.hang_up("it is not sure any more that its session lives")

    def _renew_soon(self, session: Session) -> None:
        if session.renewing:
            session.heard_since = True
        else:
            session.renewing = True
            self._start(self._renew(session))

    async def _renew(self, session: Session) -> None:
        try:
            while True:
                session.heard_since = False
                session.renewed_at = session.heard_at
                began = self._now()
                try:
                    await self._store.keep_alive(session.id)
                except LeaseNotFound:
                    # The tree will show it any moment; nothing may be done for the session meanwhile.
                    self.gone(session.id)
                    return
                except (Unavailable, Indeterminate) as error:
                    # The client's next sign of life tries again: by then the store may be back.
                    session.renewed_at = -math.inf
                    logger.info("session %x could not be renewed: %s", session.id, error)
                    if not await self._may_renew_again(session):
                        return
                else:
                    self._confirm(session, began)
                    if session.is_awaited:
                        session.is_awaited = False
                        if session.connection is not None:
                            session.connection.session_is_sure()
                    if not session.heard_since:
                        return
        finally:
            session.renewing = False

    async def _may_renew_again(self, session: Session) -> bool:
        """After a moment, if the client is there and waits for it; nothing is kept alive otherwise."""
        if not session.is_awaited or session.connection is None:
            session.is_awaited = False
            return False
        await self._clock.sleep(_RENEW_AGAIN_S)
        if self._now() - session.confirmed_at > self._rhythm.doubt_s(session.timeout_ms):
            self._give_up(session)
        return session.connection is not None

    def disconnected(self, session: Session, connection: SessionConnection) -> None:
        if session.connection is connection:
            session.connection = None
            session.is_awaited = False

    # -- the end ---------------------------------------------------------------------------

    def gone(self, id: int) -> None:
        """The session ended: there is nothing left to serve."""
        session = self._sessions.pop(id, None)
        if session is not None and session.connection is not None:
            session.connection.session_ended()

    def moved(self, id: int) -> None:
        """Another node serves the session from now on."""
        session = self._sessions.pop(id, None)
        if session is not None and session.connection is not None:
            session.connection.hang_up("its client is connected to another node now")

    def _mind_overlong(self, session: Session, ttl_s: float) -> None:
        """See to it that the session ends in time, if its lease would not.

        ZooKeeper itself rounds up to the next tick; no less is much longer.
        """
        tick_s = max(RENEW_S, self._settings.tick_time / 1000)
        enough_s = max(session.timeout_ms / 1000 + tick_s, self._rhythm.ttl_s(session.timeout_ms))
        if ttl_s <= enough_s or session.id in self._minded:
            return
        self._minded.add(session.id)
        heapq.heappush(self._overlong, (self._deadline(session), session.id))
        if self._ending is None or self._ending.done():
            self._ending = self._start(self._end_overlong())

    async def _end_overlong(self) -> None:
        overlong = self._overlong
        while overlong:
            due_s, id = overlong[0]
            now = self._now()
            if due_s > now:
                # No longer, as one may come that is due earlier.
                pause_s = min(due_s - now, RENEW_S)
                await self._clock.sleep(pause_s)
                if self._now() > now + pause_s + RENEW_S:
                    # The process was held up: first hear what clients have said meanwhile.
                    await self._clock.sleep(RENEW_S)
                continue
            heapq.heappop(overlong)
            session = self._sessions.get(id)
            if session is not None and self._deadline(session) > now:
                heapq.heappush(overlong, (self._deadline(session), id))
                continue
            self._minded.discard(id)
            if session is not None:
                await self._end(id)

    def _deadline(self, session: Session) -> float:
        return session.heard_at + self._rhythm.ttl_s(session.timeout_ms)

    async def _end(self, id: int) -> None:
        try:
            if await self._close_record(id):
                await self._store.revoke(id)
        except LeaseNotFound:
            pass  # it has ended already
        except (Unavailable, Indeterminate) as error:
            logger.info("session %x could not be ended, so its lease has to run out: %s", id, error)

    async def _close_record(self, id: int) -> bool:
        """Before a lease is revoked: where there are other nodes, the session may have moved there.

        A revocation cannot be made to depend on anything.  So first no client can come back to it.
        """
        record = self._replica.tree.sessions.get(id)
        if record is None or record.node_id != self._replica.node_id:
            return False
        password = random_password()
        return await self._rewrite(record, encode_session(password, record.timeout_ms, _NOBODY))

    # -- tasks -----------------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("work for a session failed", exc_info=error)

    async def stop(self) -> None:
        """Do nothing more for any session.  They live on, for as long as their leases last."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def random_password() -> bytes:
    # (The module `secrets` draws from the same source, and loads OpenSSL with it.)
    return os.urandom(PASSWORD_BYTES)


def random_id() -> int:
    """From 0 to 2**63 - 1."""
    return int.from_bytes(os.urandom(8), "big") >> 1


def negotiated(timeout_ms: int, settings: ZooKeeperSettings) -> int:
    return min(max(timeout_ms, settings.session_timeout_min), settings.session_timeout_max)
