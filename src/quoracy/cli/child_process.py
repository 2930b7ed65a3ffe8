"""The command that runs while a lock is held: started, sent the signals we get, stopped in time.

The command gets a process group of its own, so that its children are stopped with it, and the terminal,
so that Ctrl-C reaches it as it would without us.  Ctrl-Z is ignored: a stopped holder would lose the
lock.  If we are killed, Linux sends it SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quoracy.client.session import stop
from quoracy.clock import Clock

__all__ = ["Ended", "Signals", "run_command"]


_FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Ended:
    """How the command ended; `lost` is why it was stopped, if it was."""

    code: int
    lost: str | None


class Signals:
    """The signals of this process: the first one that ends it is kept, and all are passed on."""

    def __init__(self) -> None:
        self.ending: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()
        self.forward: Callable[[signal.Signals], None] | None = None

    @contextlib.contextmanager
    def caught(self) -> Iterator[Signals]:
        loop = asyncio.get_running_loop()
        for number in _FORWARDED:
            loop.add_signal_handler(number, self._received, number)
        try:
            yield self
        finally:
            for number in _FORWARDED:
                loop.remove_signal_handler(number)
            self.ending.cancel()

    def _received(self, number: signal.Signals) -> None:
        if self.forward is not None:
            self.forward(number)
        elif number in _ENDING and not self.ending.done():
            self.ending.set_result(number)


async def run_command(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    lost: asyncio.Future[str],
    grace_s: float,
    signals: Signals,
    clock: Clock,
) -> Ended:
    """Run a command until it ends; when `lost` is done first, it gets SIGTERM, later SIGKILL."""
    terminal = _terminal()
    with _ignoring(signal.SIGTSTP, signal.SIGTTOU):
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **environment}, preexec_fn=_prepare(terminal)
        )
    signals.forward = lambda number: _signal_group(process.pid, number)
    ended = asyncio.ensure_future(process.wait())
    try:
        either: set[asyncio.Future[Any]] = {ended, lost}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        reason = None
        if not ended.done():
            reason = lost.result()
            await _end(process.pid, ended, grace_s, clock)
        code = await ended
        return Ended(code if code >= 0 else 128 - code, reason)
    finally:
        signals.forward = None
        if not ended.done():  # interrupted
            _signal_group(process.pid, signal.SIGKILL)
            await ended
        if terminal is not None:
            with _ignoring(signal.SIGTTOU):
                os.tcsetpgrp(terminal, os.getpgrp())


async def _end(group: int, ended: asyncio.Future[int], grace_s: float, clock: Clock) -> None:
    _signal_group(group, signal.SIGTERM)
    _signal_group(group, signal.SIGCONT)  # a stopped process gets SIGTERM only once it continues
    bell = asyncio.ensure_future(clock.sleep(grace_s))
    either: set[asyncio.Future[Any]] = {ended, bell}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    await stop(bell)
    _signal_group(group, signal.SIGKILL)  # the command, or children it left running


def _prepare(terminal: int | None) -> Callable[[], None]:
    """What the child process does before it becomes the command."""
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    parent = os.getpid()

    def prepare() -> None:
        os.setpgid(0, 0)
        if terminal is not None:
            os.tcsetpgrp(terminal, os.getpgrp())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
            if os.getppid() != parent:  # the parent ended before prctl was called
                os.kill(os.getpid(), signal.SIGTERM)

    return prepare


def _terminal() -> int | None:
    """The terminal, if we are in its foreground."""
    with contextlib.suppress(OSError):
        if os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp():
            return 0
    return None


def _signal_group(group: int, number: signal.Signals) -> None:
    # The group exists as long as a process is in it.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


@contextlib.contextmanager
def _ignoring(*numbers: signal.Signals) -> Iterator[None]:
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
