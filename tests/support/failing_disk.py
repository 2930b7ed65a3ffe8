"""A store whose commits fail from some moment on."""

from __future__ import annotations

import asyncio
import sqlite3

from quoracy.engines.embedded.committing.group import Batch
from quoracy.engines.embedded.disk.journal_jobs import Done
from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.errors import StorageFailed
from quoracy.store.completion import Reply

__all__ = ["break_disk"]


def break_disk(store: EmbeddedStore) -> None:
    """Nothing that is written from now on gets to the disk."""
    writer, loop = store._commits.writer, asyncio.get_running_loop()

    def fail(batch: Batch, done: Done, replies: list[Reply], /) -> None:
        error = StorageFailed(str(store.path), sqlite3.OperationalError("disk I/O error"))
        loop.call_soon(done, error, None)

    writer.commit = fail  # type: ignore[method-assign]
