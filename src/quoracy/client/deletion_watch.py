"""Noticing that a key of ours is gone although its session lives: somebody deleted it."""

from __future__ import annotations

from quoracy.clock import Clock
from quoracy.errors import Compacted, Indeterminate, StoreClosed, Unavailable
from quoracy.store.api import Store

__all__ = ["wait_taken"]

# How often to look whether a key is still there while the store cannot be watched.
_LOOK_AGAIN_S = 1.0


async def wait_taken(store: Store, key: bytes, token: int, clock: Clock) -> str:
    """Wait until the key that was created at revision `token` is gone: why.

    Nothing between that revision and now is missed.
    """
    after: int | None = token
    while True:
        try:
            if after is None:
                found = await store.range(key, keys_only=True)
                if not found.kvs or found.kvs[0].create_revision != token:
                    return _deleted(key)
                after = found.revision
            async with store.watch(key, after=after, puts=False) as batches:
                while not (await anext(batches)).events:
                    pass
            return _deleted(key)
        except Compacted:
            after = None  # read again: that shows where things stand
        except StoreClosed:
            raise
        except (Unavailable, Indeterminate):
            # Whether it is still held is the session's business until the store can be asked again.
            await clock.sleep(_LOOK_AGAIN_S)


def _deleted(key: bytes) -> str:
    return f"its key {key.decode('utf-8', 'backslashreplace')} was deleted"
