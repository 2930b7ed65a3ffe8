"""Any watch as one that can be polled: a task waits for its batches, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quoracy.store.api import Watch
from quoracy.store.model import WatchBatch

__all__ = ["Pumped"]


class Pumped:
    """A `Polled` watch: takes a batch of the given one when the one before was taken from here."""

    __slots__ = ("_batch", "_error", "_stream", "_taken", "_task")

    def __init__(self, stream: Watch) -> None:
        self._stream = stream
        self._batch: WatchBatch | None = None
        self._error: BaseException | None = None
        self._taken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def on_ready(self, call: Callable[[], None]) -> None:
        self._task = asyncio.ensure_future(self._pump(call))

    def poll(self) -> WatchBatch | None:
        batch, self._batch = self._batch, None
        if batch is not None:
            self._taken.set()
        elif self._error is not None:
            raise self._error
        return batch

    async def stop(self) -> None:
        """Take nothing more, so that the watch can be left."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _pump(self, ready: Callable[[], None]) -> None:
        try:
            async for batch in self._stream:
                self._taken.clear()
                self._batch = batch
                ready()
                await self._taken.wait()
        except Exception as error:  # noqa: BLE001 (raised by `poll`)
            self._error = error
            ready()
