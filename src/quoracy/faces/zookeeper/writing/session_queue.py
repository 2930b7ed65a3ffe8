"""A write from its submission to its outcome, and the lane of the session it belongs to."""

from __future__ import annotations

import asyncio
from typing import Final, TypeAlias

from quoracy.faces.zookeeper.tree.znodes import Node, PlainChange
from quoracy.faces.zookeeper.writing.drafts import made_at
from quoracy.faces.zookeeper.writing.outcome import OnOutcome, Outcome
from quoracy.faces.zookeeper.writing.proposals import Caller, Proposal, WriteRequest, plain_reply
from quoracy.store.completion import Reply
from quoracy.store.following import Written
from quoracy.wire.zookeeper.requests import CloseSession, Sync

__all__ = ["NOTHING_LEFT", "Lane", "OnOutcome", "Outcome", "Request", "Write"]

NOTHING_LEFT: Final[dict[bytes, Node]] = {}

Request: TypeAlias = WriteRequest | CloseSession | Sync


class Write(Written):
    """One request, from submission to outcome.

    Most wait for nobody and nobody waits for them: what would hold those is made when there are some.
    """

    __slots__ = (
        "attempts",
        "caller",
        "claims",
        "dependents",
        "first_key",
        "followers",
        "is_known",
        "known",
        "lane",
        "left",
        "made_room",
        "number",
        "on_outcome",
        "only_looks",
        "plain",
        "proposal",
        "refusal",
        "replies",
        "request",
        "revision",
        "waits_for",
    )

    def __init__(
        self, request: Request, caller: Caller, on_outcome: OnOutcome, lane: Lane, number: int
    ) -> None:
        self.request = request
        self.caller = caller
        self.on_outcome = on_outcome
        self.lane = lane
        self.number = number  # in the order of submission, over all sessions
        self.attempts = 0
        self.made_room = False
        self.is_known = False  # the store has answered
        self.known: asyncio.Future[None] | None = None  # for whoever waits for that
        self.revision = 0  # and it went through
        self.only_looks = False  # it makes no revision, so nothing says when the tree is at its own
        self.plain: PlainChange | None = None  # of one that took the shortcut, while in flight
        self.replies = False  # with a reply that was made ahead, of one that took the shortcut
        self.proposal: Proposal | None = None  # of any other
        self.left: dict[bytes, Node] = NOTHING_LEFT  # the znodes as it leaves them, while in flight
        self.first_key = b""
        self.followers: list[Write] | None = None  # in flight, and prepared on what this one leaves
        self.refusal: Outcome | None = None  # judged, but by a state that is in flight
        self.waits_for: set[Write] | None = None
        self.dependents: list[Write] | None = None
        self.claims: tuple[bytes, ...] = ()  # znodes that nobody younger gets while it waits

    def reply(self, revision: int) -> Reply | None:
        """It took the shortcut, and is this revision."""
        plain = self.plain
        assert plain is not None
        node = plain.node
        made_at(node, revision)
        reply = self.on_outcome.ahead(revision, plain_reply(self.request, node.path, node))
        self.replies = reply is not None
        return reply


class Lane:
    """The writes of one session, in order.

    (Lists, though the first of them goes first: they are short, and empty ones take a tenth of the
    memory of a deque.)
    """

    __slots__ = ("in_flight", "is_stopped", "session_id", "unseen", "waiting")

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self.waiting: list[Write] = []
        self.in_flight: list[Write] = []
        self.is_stopped = False  # one has to be prepared again: first those after it must come back
        self.unseen = 0  # and what refused them must be seen
