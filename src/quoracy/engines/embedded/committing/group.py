"""A group commit: the batch that goes to disk together, and everybody who waits for it."""

from __future__ import annotations

import asyncio
import logging

from quoracy.engines.embedded.committing.batch import Batch
from quoracy.store.completion import Reply
from quoracy.store.following import OnFailed
from quoracy.store.legacy import OnDone
from quoracy.store.model import PutResult, Revision

__all__ = ["Group"]

_log = logging.getLogger(__name__)


class Group(Batch):
    """A batch with those who hear how it ended; `takers` only if it failed."""

    __slots__ = (
        "answers",
        "callers",
        "leases_count",
        "replies",
        "revision",
        "takers",
        "waiters",
    )

    def __init__(self) -> None:
        super().__init__()
        self.leases_count = 0  # leases there are when it is durable
        self.revision: Revision = Revision(0)
        self.waiters: list[asyncio.Future[None]] = []
        self.answers: list[tuple[asyncio.Future[PutResult], PutResult]] = []
        self.callers: list[tuple[OnDone, object]] = []  # with the result they get
        self.takers: list[tuple[OnFailed, int]] = []  # with the revision they made
        self.replies: list[Reply] = []  # that leave in the moment in which it is durable

    @property
    def waiting_count(self) -> int:
        return len(self.answers) + len(self.waiters) + len(self.callers) + len(self.takers)

    @property
    def clients_count(self) -> int:
        """Of those who wait, the ones whom a face tells: they are elsewhere, and mostly back soon."""
        return len(self.callers) + len(self.takers)

    def succeeded(self) -> None:
        for answer, put in self.answers:
            if not answer.done():
                answer.set_result(put)
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        for on_done, result in self.callers:
            _tell(on_done, result, None)

    def failed(self, error: BaseException) -> None:
        for answer, _ in self.answers:
            if not answer.done():
                answer.set_exception(error)
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(error)
        for on_done, _ in self.callers:
            _tell(on_done, None, error)
        for on_failed, revision in self.takers:
            on_failed(revision, error)


def _tell(on_done: OnDone, result: object, error: BaseException | None) -> None:
    try:
        on_done(result, error)
    except Exception:  # noqa: BLE001 (it is told)
        # Against the contract.  The others wait as well, and nobody else would hear of it.
        _log.exception("whoever waited for a commit failed when told of it")
