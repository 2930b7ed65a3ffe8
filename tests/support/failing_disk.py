"""A store whose commits fail from some moment on."""

from __future__ import annotations

import asyncio
import sqlite3

from quorate.engines.embedded.batch import Batch
from quorate.engines.embedded.engine import EmbeddedStore
from quorate.engines.embedded.jobs import Done, Job
from quorate.errors import StorageFailed

__all__ = ["break_disk"]


def break_disk(store: EmbeddedStore) -> None:
    """Nothing that is written from now on gets to the disk."""
    writer, loop = store._commits.writer, asyncio.get_running_loop()
    submit = writer.submit

    def fail(job: Job, done: Done) -> None:
        if isinstance(job, Batch):
            error = StorageFailed(str(store.path), sqlite3.OperationalError("disk I/O error"))
            loop.call_soon(done, error, None)
        else:
            submit(job, done)

    writer.submit = fail  # type: ignore[misc]
