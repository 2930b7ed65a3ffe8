"""How many calls of each method there were, and how they ended: what `/metrics` shows of them."""

from __future__ import annotations

from collections.abc import Mapping

from quoracy.wire.grpc import StatusCode

__all__ = ["CallCounts"]


class CallCounts:
    """How many calls of each method began, and how they ended."""

    __slots__ = ("_ended", "_started")

    def __init__(self) -> None:
        self._started: dict[str, int] = {}
        self._ended: dict[str, list[int]] = {}

    def started(self, path: str) -> None:
        """A call of a method that exists began."""
        try:
            self._started[path] += 1
        except KeyError:
            self._started[path] = 1
            self._ended[path] = [0] * len(StatusCode)

    def handled(self, path: str, code: StatusCode) -> None:
        """A call ended; one that never `started`, because there is no such method, is not counted."""
        ended = self._ended.get(path)
        if ended is not None:
            ended[code] += 1

    def of(self, path: str) -> tuple[int, Mapping[StatusCode, int]]:
        """How many calls of one method began, and how many ended with each code there was."""
        ended = self._ended.get(path, ())
        return self._started.get(path, 0), {StatusCode(c): n for c, n in enumerate(ended) if n}
