"""A commit group: the batch that goes to disk together, and the completions that wait for it."""

from __future__ import annotations

import logging
from typing import Any

from quoracy.engines.embedded.committing.batch import Batch
from quoracy.store.completion import Completion, FutureCompletion, Reply
from quoracy.store.model import Revision

__all__ = ["Group", "complete"]

_log = logging.getLogger(__name__)


class Group(Batch):
    """A batch and its completions, each with the result that it gets, or with why it was rejected."""

    __slots__ = ("clients_count", "completions", "leases_count", "replies", "revision")

    def __init__(self) -> None:
        super().__init__()
        self.leases_count = 0  # leases there are when it is durable
        self.revision: Revision = Revision(0)
        self.completions: list[tuple[Completion, Any]] = []
        self.clients_count = 0  # completions of a face, whose clients mostly write again at once
        self.replies: list[Reply] = []  # legacy

    def add(self, completion: Completion, result: Any) -> None:
        self.completions.append((completion, result))
        if type(completion) is not FutureCompletion:
            self.clients_count += 1

    def succeeded(self) -> None:
        for completion, result in self.completions:
            complete(completion, result)

    def failed(self, error: BaseException) -> None:
        for completion, _ in self.completions:
            complete(completion, error)


def complete(completion: Completion, result: Any) -> None:
    """Call `done` with a result, or with an error in its place."""
    try:
        if isinstance(result, BaseException):
            completion.done(None, result)
        else:
            completion.done(result, None)
    except Exception:  # noqa: BLE001 (it is logged)
        # Against the contract.  The others wait as well, and nobody else would learn of it.
        _log.exception("a completion failed")
