"""What all generated classes have in common: an object of the loop, and the way there."""

from __future__ import annotations

import threading
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self, TypeVar

from quoracy.errors import InvalidRequest
from quoracy.sync.blocks import Block, same
from quoracy.sync.portal import Portal

__all__ = ["Closeable", "Face", "refuse_others"]

V = TypeVar("V")

# Guards the lists of blocks that were entered; for a moment each time.
_entries = threading.Lock()


class Face:
    """The synchronous face of one object."""

    def __init__(self, portal: Portal) -> None:
        self._portal = portal
        # Blocks that were entered through this object, and by whom.
        self._entered: list[tuple[threading.Thread, Block[object]]] = []

    def _enter(self, block: AbstractAsyncContextManager[V]) -> V:
        entering = Block(self._portal, block, same)
        value: V = entering.__enter__()
        with _entries:
            self._entered.append((threading.current_thread(), entering))
        return value

    def _exit(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._last_entered().__exit__(kind, error, trace)

    def _last_entered(self) -> Block[object]:
        """The last of this thread; failing that, of a thread that is over (an exit stack handed on)."""
        thread = threading.current_thread()
        with _entries:
            for own in (True, False):
                for entry in reversed(self._entered):
                    by, block = entry
                    if by is thread if own else not by.is_alive():
                        self._entered.remove(entry)
                        return block
        raise RuntimeError("this block was entered by another thread, which is still running.")

    def __repr__(self) -> str:
        # Without a question to the loop: a debugger asks this of a program that stands still.
        of = getattr(self, "name", None) or getattr(self, "identity", None)
        return f"<quoracy.sync {type(self).__name__}{f' {of}' if of else ''}>"


class Closeable(Face):
    """The face of a connection: closed at the end of a block, or by `close`."""

    def close(self) -> None:
        """End the session: everything held is free at once, and calls in other threads raise
        `StoreClosed`.

        From any thread; a second time it does nothing.  In a forked child it does nothing either: the
        connection is the parent's.
        """
        self._portal.close()

    def __enter__(self) -> Self:
        self._portal.check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def refuse_others(where: object) -> None:
    """A store that lives on another loop cannot be used from this one."""
    if not isinstance(where, str | Face):
        raise InvalidRequest(
            f"quoracy.sync cannot connect to {where!r}. Give a URL, or the `store` of another "
            "connection of quoracy.sync."
        )
