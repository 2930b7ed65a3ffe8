"""Requests that wait for their turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quoracy.faces.zookeeper.writing.outcome import OnOutcome, Outcome
from quoracy.store.completion import Reply
from quoracy.wire.zookeeper.requests import Request

if TYPE_CHECKING:
    from quoracy.faces.zookeeper.serving.connection import Connection

__all__ = ["Turn"]


class Turn(OnOutcome):
    """A request that waits to be answered."""

    __slots__ = (
        "connection",
        "is_pending",
        "op",
        "outcome",
        "reply",
        "request",
        "size",
        "started",
        "xid",
    )

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
        self.reply: Reply | None = None  # that another thread may send, or has sent

    def ahead(self, zxid: int, body: bytes) -> Reply | None:
        return self.connection.reply_ahead(self, zxid, body)

    def settled(self, outcome: Outcome | None) -> None:
        self.is_pending = False
        self.outcome = outcome
        self.connection.settled(self)
