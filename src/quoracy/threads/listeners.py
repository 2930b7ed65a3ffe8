"""Listeners: functions that are called in one thread, in order, and never on the loop."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import ParamSpec

from quoracy.errors import StoreClosed

__all__ = ["PENDING_MAX", "Listeners"]

P = ParamSpec("P")

_log = logging.getLogger(__name__)

PENDING_MAX = 10_000
_STOP_S = 1.0


class Listeners:
    """Calls listeners one after the other.  The thread is started with the first call.

    A listener may take its time and use the connection: only other listeners of the same connection
    wait for it.  Those that fall more than `PENDING_MAX` calls behind miss the oldest; that is logged.
    """

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over
        self._pending: deque[Callable[[], object]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._missed_count = 0

    def off_loop(self, function: Callable[P, object]) -> Callable[P, None]:
        """A function that has `function` called in the thread, soon, with the same arguments."""

        def notify(*args: P.args, **kwargs: P.kwargs) -> None:
            self._add(lambda: function(*args, **kwargs))

        return notify

    def stop(self) -> None:
        """Make the calls that are due already, then end; called by a listener, this does not wait."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_STOP_S)

    def _add(self, call: Callable[[], object]) -> None:
        with self._changed:
            if self._stopping:
                return
            if len(self._pending) >= PENDING_MAX:
                self._pending.popleft()
                self._missed_count += 1
                if self._missed_count == 1:
                    _log.error("listeners are %d calls behind; they miss the oldest", PENDING_MAX)
            else:
                self._missed_count = 0
            self._pending.append(call)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="quoracy-sync-listeners", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._pending:
                    if self._stopping:
                        return
                    self._changed.wait()
                call = self._pending.popleft()
            try:
                call()
            except Exception as error:  # noqa: BLE001 (the other listeners go on)
                # A listener that uses a connection which is being closed is no error.
                expected = isinstance(error, StoreClosed) and self._is_over()
                level = logging.DEBUG if expected else logging.ERROR
                _log.log(level, "a listener failed", exc_info=error)
