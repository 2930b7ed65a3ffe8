"""Requests that wait for their turn, and the guard around whatever is done for a connection."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TYPE_CHECKING

from quorate.errors import ProtocolError
from quorate.faces.zookeeper.commits import Outcome
from quorate.wire.zookeeper.requests import Request

if TYPE_CHECKING:
    from quorate.faces.zookeeper.connection import Connection

__all__ = ["Guard", "Turn"]

logger = logging.getLogger(__name__)


class Turn:
    """A request that waits to be answered."""

    __slots__ = ("connection", "is_pending", "op", "outcome", "request", "size", "started", "xid")

    def __init__(
        self,
        connection: Connection,
        xid: int,
        op: int,
        request: Request | None,
        size: int,
        started: float,
    ) -> None:
        self.connection = connection
        self.xid, self.op, self.request = xid, op, request
        self.size, self.started = size, started
        self.is_pending = False  # submitted, and not settled yet
        self.outcome: Outcome | None = None

    def settled(self, outcome: Outcome | None) -> None:
        self.is_pending = False
        self.outcome = outcome
        self.connection.settled(self)


class Guard:
    """Around whatever a connection does: replies are flushed after it, and no exception leaves it."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.is_busy = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        connection = self._connection
        connection.is_busy = False
        if error is None:
            return True
        if isinstance(error, ProtocolError):
            connection.hang_up(f"what it sent makes no sense: {error}")
            return True
        if not isinstance(error, Exception):
            return False
        connection.failed()
        logger.error("an error here, not of the client, whose connection has to end", exc_info=error)
        connection.hang_up("there was an error here")
        return True
