"""A loop in a thread of its own, and how to have something done there."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

__all__ = ["Happened", "LoopThread"]

T = TypeVar("T")

# Everything that is asked of it is a matter of milliseconds: longer means that it hangs.
_CALL_S = 20.0


class LoopThread:
    """Started when it is made; `stop` it."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Have a coroutine run there, and wait for what it gives.  From any other thread."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("the thread of the server cannot wait for itself.")
        running = asyncio.run_coroutine_threadsafe(work(), self.loop)
        try:
            return running.result(_CALL_S)
        except concurrent.futures.TimeoutError:
            if not running.done():
                running.cancel()
                raise RuntimeError(f"{self._thread.name} did not answer for {_CALL_S:g} s.") from None
            raise

    def stop(self) -> None:
        """End the loop with everything on it, and wait for the thread."""
        self.loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_CALL_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        await self._stopping.wait()


class Happened:
    """Something that is over already, for whoever awaits it."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield
