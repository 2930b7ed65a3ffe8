"""A store that somebody meddles with: a real one, but for what a test puts between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, cast

from quoracy.errors import QuoracyError, Rejected
from quoracy.store.api import Store, Watch
from quoracy.store.model import Keys, RangeResult, WatchBatch

__all__ = ["Meddling"]


class Meddling:
    """Hands everything on to `store`, which a test may exchange.

    before_range: awaited before every range, with its options.
    deaf: watches that are entered from now on hear nothing, as behind a network that swallows it all.
    tells_progress: False: a watch that is asked for its progress ends, as on an old etcd for a user who
        may not read everything.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.before_range: Callable[[dict[str, Any]], Awaitable[None]] | None = None
        self.deaf = False
        self.tells_progress = True

    @property
    def as_store(self) -> Store:
        return cast("Store", self)

    async def range(self, keys: Keys, **options: Any) -> RangeResult:
        if self.before_range is not None:
            await self.before_range(options)
        return await self.store.range(keys, **options)

    def watch(self, keys: Keys, **options: Any) -> Watch:
        stream = self.store.watch(keys, **options)
        if options.get("progress_s") is not None and not self.tells_progress:
            return cast("Watch", _Deaf(Rejected("progress cannot be told to you")))
        return cast("Watch", _Deaf()) if self.deaf else stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class _Deaf:
    """A watch that hears nothing, or is refused."""

    def __init__(self, error: QuoracyError | None = None) -> None:
        self._error = error

    def request_progress(self) -> None:
        """Nobody answers."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    async def __anext__(self) -> WatchBatch:
        if self._error is not None:
            raise self._error
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nobody sets that future")
