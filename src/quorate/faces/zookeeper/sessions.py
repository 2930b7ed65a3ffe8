"""Sessions: what a client comes back to, and what keeps its ephemerals alive.

A session is a lease of the store with the same id, and a record that hangs on it.  When the lease ends
(revoked by closeSession, or not renewed in time) the record goes in the same revision as the session's
ephemerals, and every node sees that in the one order there is.  So nothing here decides that a session
is over: `gone` is told, by the replica.

Invariants
    * A client is told of a session only when its record is durable and in this node's tree, and of an
      expiry only when the store says that there is no such session.  Whatever else goes wrong on the
      way (the store is away, overloaded, full, or does not know what it did) is answered by hanging up:
      the client tries again, and an untold session ends by itself.
    * A session never ends early: its lease is longer than its timeout by as much as a sign of life may
      go unreported.  It ends at most that much late, plus what the store's own clockwork needs.  Where
      the lease is much longer (a store has a least time to live, and that of a lease cannot be changed
      when a client comes back with a shorter timeout), the node that serves the session ends it.
    * A session has one connection.  A second one that knows the password takes it over.
    * At most one renewal of a session is under way.

Differs from ZooKeeper:
    * A wrong password is refused before the session's other connection is hung up on.  There it is the
      other way round, and whoever knows an id can throw its owner out.
    * A client that comes back may shorten the session's timeout, but make it no longer than the session
      was made for: the time to live of a lease is for good.
"""

from __future__ import annotations

import asyncio
import heapq
import hmac
import logging
import secrets
from collections.abc import Coroutine
from typing import Any, Protocol

from quorate.clock import Clock
from quorate.errors import Indeterminate, LeaseExists, LeaseNotFound, QuorateError, Unavailable
from quorate.faces.zookeeper.layout import encode_session, session_key
from quorate.faces.zookeeper.replica import Replica
from quorate.faces.zookeeper.settings import ZooKeeperSettings
from quorate.faces.zookeeper.tree import SessionRecord
from quorate.store.api import Store
from quorate.store.model import Compare, LeaseId, Put, Txn
from quorate.wire.zookeeper.codes import PASSWORD_BYTES
from quorate.wire.zookeeper.requests import ConnectRequest

__all__ = ["RENEW_S", "Session", "SessionConnection", "Sessions", "lease_ttl_s"]

logger = logging.getLogger(__name__)

# A sign of life is passed on to the store unless one was so short a time ago; of a short timeout, at
# most an eighth.
RENEW_S = 0.5


class SessionConnection(Protocol):
    """What a connection has to offer to those who give it a session, and take it away."""

    @property
    def is_over(self) -> bool: ...

    def established(self, session: Session) -> None:
        """The session stands: tell the client, and serve it."""
        ...

    def refused(self) -> None:
        """The session it asked for does not exist: tell the client, and hang up."""
        ...

    def session_ended(self) -> None: ...

    def hang_up(self, reason: str) -> None: ...


class Session:
    """A session as the node that serves it sees it; `connection` is None while the client is away."""

    __slots__ = (
        "connection",
        "heard_at",
        "heard_since",
        "id",
        "password",
        "renew_s",
        "renewed_at",
        "renewing",
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

    def set_timeout(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.renew_s = _renew_s(timeout_ms)


class SessionUnknown(Exception):
    """There is no such session, or the password is not its."""


class Sessions:
    """The sessions this node serves."""

    def __init__(
        self, store: Store, replica: Replica, settings: ZooKeeperSettings, clock: Clock
    ) -> None:
        self._store, self._replica, self._clock = store, replica, clock
        self._settings = settings
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
        """Find or make the session a client asks for; `connection` is told the outcome, once."""
        self._start(self._connect(request, connection))

    async def _connect(self, request: ConnectRequest, connection: SessionConnection) -> None:
        timeout_ms = self._negotiated(request.timeout_ms)
        is_new = not request.session_id
        try:
            if is_new:
                session = await self.open(timeout_ms)
            else:
                session = await self.attach(request.session_id, request.password, timeout_ms)
        except SessionUnknown:
            connection.refused()
        except QuorateError as error:
            connection.hang_up(f"its session could not be established: {error}")
        except Exception:
            connection.hang_up("its session could not be established, because of an error here")
            raise
        else:
            if not connection.is_over:
                self._take_over(session, connection)
                connection.established(session)
            elif is_new and session.connection is None:
                # Nobody was told its id and password: nobody can come back for it.
                await self._end(session.id)

    def _negotiated(self, timeout_ms: int) -> int:
        settings = self._settings
        return min(max(timeout_ms, settings.session_timeout_min), settings.session_timeout_max)

    def _take_over(self, session: Session, connection: SessionConnection) -> None:
        before = session.connection
        if before is not None and before is not connection:
            before.hang_up("its session is served by another connection now")
        session.connection = connection

    async def open(self, timeout_ms: int) -> Session:
        """A new session, once it is durable and in the tree."""
        password = secrets.token_bytes(PASSWORD_BYTES)
        started = self._now()
        while True:
            id = secrets.randbits(63)
            if not id:
                continue  # means "a new one" in a ConnectRequest
            try:
                lease = await self._store.grant(lease_ttl_s(timeout_ms), id=LeaseId(id))
            except LeaseExists:
                continue
            break
        record = encode_session(password, timeout_ms, self._replica.node_id)
        put = await self._store.put(session_key(id), record, lease=id)
        await self._replica.caught_up(put.revision)
        if id not in self._replica.tree.sessions:
            raise LeaseNotFound(id)
        session = Session(id, password)
        session.set_timeout(timeout_ms)
        session.heard_at = session.renewed_at = started
        self._sessions[id] = session
        self._mind_overlong(session, lease.ttl_s)
        return session

    async def attach(self, id: int, password: bytes, timeout_ms: int) -> Session:
        """The session a client comes back to.  Raises `SessionUnknown` if there is none such."""
        record = await self._find(id)
        if record is None or not hmac.compare_digest(record.password, password):
            raise SessionUnknown
        session = self._sessions.get(id)
        if session is not None and session.connection is not None:
            session.connection.hang_up("its client has connected again")
        started = self._now()
        try:
            lease = await self._store.keep_alive(id)
            timeout_ms = min(timeout_ms, _timeout_ms_of(lease.ttl_s))
            if record.node_id != self._replica.node_id or record.timeout_ms != timeout_ms:
                await self._move_here(record, timeout_ms)
        except LeaseNotFound as error:
            raise SessionUnknown from error
        if id not in self._replica.tree.sessions:
            raise SessionUnknown
        session = self._sessions.get(id)
        if session is None:
            session = self._sessions[id] = Session(id, password)
        session.set_timeout(timeout_ms)
        session.heard_at = session.renewed_at = started
        self._mind_overlong(session, lease.ttl_s)
        return session

    async def _find(self, id: int) -> SessionRecord | None:
        sessions = self._replica.tree.sessions
        if id not in sessions and id > 0:
            # It may have been made at another node a moment ago: the store knows.
            found = await self._store.range(session_key(id))
            if found.kvs:
                await self._replica.caught_up(found.revision)
        return sessions.get(id)

    async def _move_here(self, record: SessionRecord, timeout_ms: int) -> None:
        """Say in the record that this node serves the session, and with which timeout."""
        key = session_key(record.id)
        value = encode_session(record.password, timeout_ms, self._replica.node_id)
        result = await self._store.txn(
            Txn(
                (Compare.mod_revision(key, "=", record.mod_revision),),
                (Put(key, value, lease=record.id),),
            )
        )
        if not result.succeeded:
            if record.id in self._replica.tree.sessions:
                raise Unavailable(
                    f"session {record.id:x} was taken over by another connection meanwhile. "
                    "Connect again."
                )
            raise SessionUnknown
        await self._replica.caught_up(result.revision)

    # -- while it lives --------------------------------------------------------------------

    def touch(self, session: Session) -> float:
        """The client gave a sign of life; returns when."""
        now = self._now()
        session.heard_at = now
        if now - session.renewed_at >= session.renew_s:
            if session.renewing:
                session.heard_since = True
            else:
                session.renewing = True
                self._start(self._renew(session))
        return now

    async def _renew(self, session: Session) -> None:
        try:
            while True:
                session.heard_since = False
                session.renewed_at = session.heard_at
                await self._store.keep_alive(session.id)
                if not session.heard_since:
                    break
        except LeaseNotFound:
            # The tree will show it any moment; nothing may be done for the session meanwhile.
            self.gone(session.id)
        except (Unavailable, Indeterminate) as error:
            # The client's next sign of life tries again: by then the store may be back.
            session.renewed_at = float("-inf")
            logger.info("session %x could not be renewed: %s", session.id, error)
        finally:
            session.renewing = False

    def disconnected(self, session: Session, connection: SessionConnection) -> None:
        """A connection is over; its session waits for the client to come back, as long as it lives."""
        if session.connection is connection:
            session.connection = None

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
        if ttl_s <= session.timeout_ms / 1000 + tick_s or session.id in self._minded:
            return
        self._minded.add(session.id)
        heapq.heappush(self._overlong, (_deadline(session), session.id))
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
            if session is not None and _deadline(session) > now:
                heapq.heappush(overlong, (_deadline(session), id))
                continue
            self._minded.discard(id)
            if session is not None:
                await self._end(id)

    async def _end(self, id: int) -> None:
        try:
            await self._store.revoke(id)
        except LeaseNotFound:
            pass  # it has ended already
        except (Unavailable, Indeterminate) as error:
            logger.info("session %x could not be ended, so its lease has to run out: %s", id, error)

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


def lease_ttl_s(timeout_ms: int) -> float:
    """The time to live of a session's lease: so long that it cannot end early."""
    return timeout_ms / 1000 + _renew_s(timeout_ms)


def _deadline(session: Session) -> float:
    return session.heard_at + lease_ttl_s(session.timeout_ms)


def _renew_s(timeout_ms: int) -> float:
    return min(RENEW_S, timeout_ms / 8000)


def _timeout_ms_of(ttl_s: float) -> int:
    """The longest timeout a lease is long enough for: the inverse of `lease_ttl_s`."""
    return round(1000 * (ttl_s - RENEW_S if ttl_s >= 9 * RENEW_S else ttl_s / 9 * 8))
