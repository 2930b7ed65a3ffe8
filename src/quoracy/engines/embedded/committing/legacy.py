"""Completions around the calls that faces used before `submit`.  Being removed."""

from __future__ import annotations

from typing import Any

from quoracy.store.completion import Completion, Reply
from quoracy.store.following import OnFailed
from quoracy.store.legacy import Ahead, OnDone

__all__ = ["LegacyCompletion", "LegacyTaker"]


class LegacyCompletion(Completion):
    def __init__(self, on_done: OnDone, ahead: Ahead | None = None) -> None:
        super().__init__()
        self._on_done, self._ahead = on_done, ahead

    def reply(self, result: Any) -> Reply | None:
        return None if self._ahead is None else self._ahead(result)

    def done(self, result: Any, error: BaseException | None) -> None:
        self._on_done(result, error)


class LegacyTaker(Completion):
    def __init__(self, on_failed: OnFailed, revision: int) -> None:
        super().__init__()
        self._on_failed, self._revision = on_failed, revision

    def done(self, result: Any, error: BaseException | None) -> None:
        del result
        if error is not None:
            self._on_failed(self._revision, error)
