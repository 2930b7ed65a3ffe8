"""Writes in flight: each from its submission to its outcome, and the znodes as they will be.

    leave -> pending: a request that is drafted now finds the znodes as this write will leave them
    judged -> it has its revision; whatever it wrote has that zxid
    landed, withdrawn -> it is in the tree, or will never be

A write that is not judged yet may come to nothing.  Then so will all that was drafted on what it would
have left, and so on: all of that is withdrawn at once, or requests that come meanwhile would be drafted
on it too, and fail for ever.  What was in flight before it still counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from quoracy.faces.zookeeper.tree.znodes import Node
from quoracy.faces.zookeeper.writing.drafts import Draft, Pending, made_at
from quoracy.faces.zookeeper.writing.proposals import Caller, Proposal, WriteRequest
from quoracy.store.completion import Completion, Reply
from quoracy.wire.zookeeper.requests import CloseSession, Sync

if TYPE_CHECKING:
    from quoracy.faces.zookeeper.writing.pipeline import WritePipeline

__all__ = [
    "Claims",
    "InFlight",
    "OnOutcome",
    "Outcome",
    "OutcomeCall",
    "Request",
    "SessionQueue",
    "Write",
]

_NOTHING_LEFT: Final[dict[bytes, Node]] = {}

Request: TypeAlias = WriteRequest | CloseSession | Sync


class Outcome:
    """What to answer.  A zxid of 0 is that of the moment the answer is sent: nothing was written."""

    __slots__ = ("body", "err", "zxid")

    def __init__(self, err: int, zxid: int, body: bytes) -> None:
        self.err, self.zxid, self.body = err, zxid, body


class OnOutcome:
    """Gets the outcome of a write, once; None if it is not known.

    (A class and not a function: a bound method is made for each call and called by its name.)
    """

    __slots__ = ()

    def settled(self, outcome: Outcome | None) -> None:
        raise NotImplementedError

    def reply(self, zxid: int, body: bytes) -> Reply | None:
        """The write will end so, once it is durable: the reply that may leave in that moment."""
        del zxid, body
        return None


class OutcomeCall(OnOutcome):
    """Calls a function."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[Outcome | None], object]) -> None:
        self._call = call

    def settled(self, outcome: Outcome | None) -> None:
        self._call(outcome)


class Write(Completion):
    """One request, from submission to outcome; the completion of its transaction.

    Most wait for no other and no other waits for them: the tables for that are made when needed.
    """

    __slots__ = (
        "attempts",
        "caller",
        "claims",
        "dependents",
        "first_key",
        "followers",
        "has_reply",
        "is_held",
        "is_judged",
        "left",
        "number",
        "on_outcome",
        "only_looks",
        "pipeline",
        "proposal",
        "queue",
        "refusal",
        "request",
        "revision",
        "waits_for",
    )

    def __init__(
        self,
        pipeline: WritePipeline,
        request: Request,
        caller: Caller,
        on_outcome: OnOutcome,
        queue: SessionQueue,
        number: int,
    ) -> None:
        super().__init__()
        self.pipeline = pipeline
        self.request = request
        self.caller = caller
        self.on_outcome = on_outcome
        self.queue = queue
        self.number = number  # in the order of submission, over all sessions
        self.attempts = 0
        self.is_held = False  # it lost a race, and is drafted again when the tree shows the winner
        self.is_judged = False  # it took effect, as `revision`
        self.revision = 0
        self.only_looks = False  # it makes no revision, so nothing says when the tree is at its own
        self.has_reply = False  # that may leave with the sync
        self.proposal: Proposal | None = None
        self.refusal: Outcome | None = (
            None  # what to answer if the store confirms the state it rests on
        )
        self.left: dict[bytes, Node] = _NOTHING_LEFT  # the znodes as it leaves them, while in flight
        self.first_key = b""  # the first that it writes, until it is judged
        self.followers: list[Write] | None = None  # drafted on what this one leaves, while not judged
        self.waits_for: set[Write] | None = None
        self.dependents: list[Write] | None = None
        self.claims: tuple[bytes, ...] = ()  # znodes that no younger write gets while it waits

    def applied(self, result: Any) -> None:
        self.pipeline.applied(self, result)

    def reply(self, result: Any) -> Reply | None:
        return self.pipeline.reply(self, result)

    def done(self, result: Any, error: BaseException | None) -> None:
        self.pipeline.done(self, result, error)


class SessionQueue:
    """The writes of one session, in order.

    (Lists, though the first of them goes first: they are short, and an empty one takes far less
    memory than a deque.)
    """

    __slots__ = ("in_flight", "is_advancing", "session_id", "waiting")

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self.waiting: list[Write] = []
        self.in_flight: list[Write] = []
        self.is_advancing = False


class InFlight:
    """All that is in flight, of one replica."""

    def __init__(self) -> None:
        self.pending: Pending = {}
        self._writes: dict[Write, None] = {}  # in the order in which they were drafted
        self._unjudged: dict[bytes, deque[Write]] = {}  # by the first key

    def leave(
        self, write: Write, first_key: bytes, after: dict[bytes, Node], bases: Iterable[object]
    ) -> None:
        """It is on its way, drafted on what the bases leave: it will leave the znodes like this."""
        for base in bases:
            assert isinstance(base, Write)
            if not base.is_judged:
                if base.followers is None:
                    base.followers = []
                base.followers.append(write)
        write.first_key = first_key
        write.left = after
        self._writes[write] = None
        pending = self.pending
        for path, node in after.items():
            pending[path] = (node, write)

    def await_judgement(self, write: Write) -> None:
        """The store has not judged it within the call: the watch may show its revision first."""
        self._unjudged.setdefault(write.first_key, deque()).append(write)

    def judged(self, write: Write, revision: int) -> None:
        """It took effect."""
        self._forget_key(write)
        write.followers = None
        for node in write.left.values():
            made_at(node, revision)

    def landed(self, write: Write) -> None:
        """What it left in flight is in the tree now, or will never be."""
        pending = self.pending
        for path in write.left:
            state = pending.get(path)
            if state is not None and state[1] is write:
                del pending[path]
        write.left = _NOTHING_LEFT
        self._writes.pop(write, None)
        self._forget_key(write)

    def withdraw(self, write: Write) -> None:
        """It came to nothing, and so will whatever was drafted on it: nothing more should be."""
        pending = self.pending
        left: set[bytes] = set()
        doomed = [write]
        while doomed:
            one = doomed.pop()
            left.update(one.left)
            one.left = _NOTHING_LEFT
            if one.followers is not None:
                doomed += one.followers
                one.followers = None
        for path in left:
            pending.pop(path, None)
        if left:
            for other in self._writes:
                for path in left & other.left.keys():
                    pending[path] = (other.left[path], other)

    def child_lost(self, path: bytes) -> None:
        """A child of this znode went with its lease: what is in flight was drafted before that."""
        for write in self._writes:
            node = write.left.get(path)
            if node is not None:
                node.children_count -= 1

    def started_anew(self) -> None:
        """The tree was read anew: what is in flight was drafted on another, and is no guide now."""
        self.pending.clear()
        for write in self._writes:
            write.left = _NOTHING_LEFT

    def clear(self) -> None:
        self.pending.clear()
        self._writes.clear()
        self._unjudged.clear()

    def may_have_made(self, first_key: bytes) -> bool:
        """Whether a revision that begins with this key may be a write that is not judged yet."""
        return first_key in self._unjudged

    def _forget_key(self, write: Write) -> None:
        same = self._unjudged.get(write.first_key) if write.first_key else None
        if same is not None and write in same:
            same.remove(write)
            if not same:
                del self._unjudged[write.first_key]
        write.first_key = b""


class Claims:
    """What a write that cannot be drafted before others have landed has to itself until then.

    Without claims it could be overtaken for ever by writes that need not wait.
    """

    __slots__ = ("by_path",)

    def __init__(self) -> None:
        self.by_path: dict[bytes, Write] = {}

    def wait(self, write: Write, draft: Draft) -> None:
        """Wait for all that is in flight and that the draft was made upon."""
        for other in draft.depends:
            assert isinstance(other, Write)
            _wait_for(write, other)
        write.claims = tuple(draft.paths)
        for path in write.claims:
            self.by_path.setdefault(path, write)

    def may_go_on(self, write: Write, draft: Draft) -> bool:
        """Not if an older one waits for one of the znodes."""
        for path in draft.paths:
            other = self.by_path.get(path)
            if other is not None and other.number < write.number:
                _wait_for(write, other)
        return not write.waits_for

    def drop(self, write: Write) -> None:
        for path in write.claims:
            if self.by_path.get(path) is write:
                del self.by_path[path]
        write.claims = ()


def _wait_for(write: Write, other: Write) -> None:
    if write.waits_for is None:
        write.waits_for = set()
    if other not in write.waits_for:
        write.waits_for.add(other)
        if other.dependents is None:
            other.dependents = []
        other.dependents.append(write)
