"""Sessions while nothing can be written: those of clients that said they would make do with reading.

A store on a cluster that has lost it still shows what it had.  A client that asked for it is then
served from that, and told so: its answers may be old, nothing it asks changes anything, and no
ephemeral is kept alive for it.  When the store is back everybody is hung up on, and finds a server that
writes.

Two kinds of sessions
    * A client that has none gets one that exists only here and only now.  Its id is below 0, which no
      other is: so every server knows that it is over, and says so.
    * A client that comes back to its session keeps it, id and password, though it is not known whether
      it is still alive: the cluster may go on without this node, and end it.  Only when the store is
      back does the client learn that: being served read-only says nothing about its ephemerals.

Invariants
    * Nothing here asks or changes the store.
    * A client learns that its session does not exist only if it never can again: an id below 0 that is
      not here, or a wrong password.  One that this node has not heard of may have been made elsewhere a
      moment before: its client is hung up on.
    * A client that is silent for its timeout is hung up on.  There are at most `SESSIONS_MAX`
      sessions; past that, clients without one are hung up on.

Differs from ZooKeeper, whose read-only server has to be switched on, hangs up on a client that comes
back to its session, tells one whose session it does not know that it is over, and makes sessions only
where localSessionsEnabled is set.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from quoracy.clock import Clock
from quoracy.faces.zookeeper.serving.sessions import (
    Session,
    SessionConnection,
    negotiated,
    random_id,
    random_password,
)
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree.acl import is_same
from quoracy.faces.zookeeper.tree.znodes import Tree
from quoracy.wire.zookeeper.codes import Op
from quoracy.wire.zookeeper.requests import ConnectRequest

__all__ = ["NOT_READ_ONLY_OPS", "SESSIONS_MAX", "ReadOnlySessions"]

logger = logging.getLogger(__name__)

SESSIONS_MAX: Final = 100_000
# How often to look for clients that have been silent for too long.
_LOOK_EVERY_S: Final = 0.5

# What a read-only server refuses without a look at it, as ZooKeeper's ReadOnlyRequestProcessor does.
NOT_READ_ONLY_OPS: Final = frozenset(
    int(op)
    for op in (
        Op.SYNC,
        Op.CREATE,
        Op.CREATE2,
        Op.CREATE_TTL,
        Op.CREATE_CONTAINER,
        Op.DELETE,
        Op.DELETE_CONTAINER,
        Op.SET_DATA,
        Op.RECONFIG,
        Op.SET_ACL,
        Op.MULTI,
        Op.CHECK,
    )
)


class ReadOnlySessions:
    """The sessions of one time without the store; the next one has others."""

    def __init__(self, tree: Tree, settings: ZooKeeperSettings, clock: Clock) -> None:
        self._tree, self._settings, self._clock = tree, settings, clock
        self._now = clock.now
        self._sessions: dict[int, Session] = {}
        self._watching: asyncio.Task[None] | None = None

    def connect(self, request: ConnectRequest, connection: SessionConnection) -> None:
        zxid, seen = self._tree.zxid, request.last_zxid_seen
        if not request.read_only:
            connection.hang_up("nothing can be written, and it did not ask to be served all the same")
        elif seen > zxid:
            connection.hang_up(f"it has seen zxid {seen:#x}, and here it is {zxid:#x}")
        elif not request.session_id:
            self._open(request, connection)
        else:
            self._come_back(request, connection)

    def _open(self, request: ConnectRequest, connection: SessionConnection) -> None:
        if len(self._sessions) >= SESSIONS_MAX:
            connection.hang_up(f"there are {SESSIONS_MAX:,} sessions without the store already")
            return
        id = 0
        while not id or id in self._sessions:
            id = -random_id()
        self._serve(Session(id, random_password()), request, connection)

    def _come_back(self, request: ConnectRequest, connection: SessionConnection) -> None:
        id = request.session_id
        session = self._sessions.get(id)
        record = self._tree.sessions.get(id)
        if session is None and record is not None:
            session = Session(id, record.password)
        if session is None and id > 0:
            connection.hang_up(f"its session {id:x} is not known here, and the cluster cannot be asked")
        elif session is None or not is_same(session.password, request.password):
            connection.refused()
        else:
            self._serve(session, request, connection)

    def _serve(self, session: Session, request: ConnectRequest, connection: SessionConnection) -> None:
        before = session.connection
        if before is not None:
            before.hang_up("its client has connected again")
        session.timeout_ms = negotiated(request.timeout_ms, self._settings)
        record = self._tree.sessions.get(session.id)
        if record is not None:
            session.timeout_ms = min(session.timeout_ms, record.timeout_ms)
        session.heard_at = self._now()
        session.connection = connection
        self._sessions[session.id] = session
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self._hang_up_on_the_silent())
            self._watching.add_done_callback(_stopped)
        connection.established(session)

    def touch(self, session: Session) -> float:
        session.heard_at = now = self._now()
        return now

    def doubt(self, session: Session, now: float) -> None:  # noqa: ARG002 (as `SessionKeeper` has it)
        raise AssertionError("sessions are never doubted while nothing can be written")

    def disconnected(self, session: Session, connection: SessionConnection) -> None:
        if session.connection is connection:
            session.connection = None
            if session.id > 0:
                self._sessions.pop(session.id, None)  # it is not kept here

    def close(self, session: Session) -> bool:
        """Its client is done with it.  False, with nothing done, if that is not ours to say."""
        if session.id > 0:
            return False
        self._sessions.pop(session.id, None)
        return True

    def gone(self, id: int) -> None:
        """The tree no longer shows the session."""
        session = self._sessions.get(id)
        if session is not None and session.connection is not None:
            session.connection.session_ended()

    def moved(self, id: int) -> None:
        """Another node serves the session from now on."""
        session = self._sessions.get(id)
        if session is not None and session.connection is not None:
            session.connection.hang_up("its client is connected to another node now")

    async def _hang_up_on_the_silent(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_EVERY_S)
            now = self._now()
            for session in list(self._sessions.values()):
                if now <= session.heard_at + session.timeout_ms / 1000:
                    continue
                self._sessions.pop(session.id, None)
                if session.connection is not None:
                    session.connection.hang_up("it was silent for as long as its session may be")

    def stop(self) -> None:
        """The store is back, or nothing can be shown any more: all clients are hung up on."""
        sessions = list(self._sessions.values())
        self._sessions.clear()
        for session in sessions:
            if session.connection is not None:
                session.connection.hang_up("it was served read-only, and may be served better now")
        if self._watching is not None:
            self._watching.cancel()


def _stopped(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("looking for silent clients failed", exc_info=error)
