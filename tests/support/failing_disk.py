"""A store whose commits fail from some moment on."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any, cast

from quoracy.engines.embedded.committing.group import Batch
from quoracy.engines.embedded.disk.writer import Done, Writer
from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.errors import StorageFailed

__all__ = ["break_disk"]


def break_disk(store: EmbeddedStore) -> None:
    """Nothing that is written from now on gets to the disk."""
    store._commits.writer = cast("Writer", _BrokenWriter(store._commits.writer, str(store.path)))


class _BrokenWriter:
    def __init__(self, writer: Writer, path: str) -> None:
        self._writer, self._path = writer, path

    def commit(self, batch: Batch, done: Done, /) -> None:
        del batch
        error = StorageFailed(self._path, sqlite3.OperationalError("disk I/O error"))
        asyncio.get_running_loop().call_soon(done, error, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)
