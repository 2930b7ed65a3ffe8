"""Keys as they are, and as they become: read once, then followed from that revision on.

    await wait_for(ground, key, lambda kvs: not kvs or None, timeout=5, what="the barrier x")

Invariants
    * What is followed begins at the revision of what was read: nothing falls between the two.
    * Every revision is shown, in order.  Only if history was compacted while the store could not be
      asked, steps are missing; the newest state never is.
    * A store that cannot be asked is asked again, until whoever waits gives up.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import TypeAlias, TypeVar

from quoracy.client.context import Ground, Patience
from quoracy.errors import Compacted, Indeterminate, StoreClosed, TimedOut, Unavailable
from quoracy.store.model import Keys, KeyValue, RangeResult, WatchBatch

__all__ = ["ASK_AGAIN_S", "KeyValues", "states", "wait_for"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

# How long to leave a store alone that could not be asked.
ASK_AGAIN_S = 0.5

KeyValues: TypeAlias = Mapping[bytes, KeyValue]


async def states(
    ground: Ground, keys: Keys, *, known: RangeResult | None = None
) -> AsyncGenerator[KeyValues, None]:
    """The keys that are there, now and after every change; the mapping is always the same object.

    known: what a read of exactly these keys has just found; otherwise they are read.
    """
    found = known
    kvs: dict[bytes, KeyValue] = {}
    after: int | None = None
    while True:
        try:
            if after is None:
                found = found or await ground.store.range(keys)
                kvs.clear()
                kvs.update((kv.key, kv) for kv in found.kvs)
                after, found = found.revision, None
                yield kvs
            async with ground.store.watch(keys, after=after) as batches:
                async for batch in batches:
                    after = batch.revision
                    if batch.events:
                        _apply(kvs, batch)
                        yield kvs
        except Compacted:
            after = None  # read again: that shows where things stand
        except StoreClosed:
            raise
        except (Unavailable, Indeterminate) as error:
            _log.info("following %r goes on: %s", keys, error)
            await ground.clock.sleep(ASK_AGAIN_S)


async def wait_for(
    ground: Ground,
    keys: Keys,
    judge: Callable[[KeyValues], _T | None],
    *,
    timeout: float | None,
    what: str,
) -> _T:
    """Wait until `judge` finds what is waited for in the keys that are there.  Raises `TimedOut`."""
    ground.check()
    patience = Patience(ground.clock, timeout)
    if timeout == 0:
        found = await ground.store.range(keys)
        answer = judge({kv.key: kv for kv in found.kvs})
        if answer is None:
            raise TimedOut(what, timeout_s=0)
        return answer
    with ground.waiting(what, patience):
        async with aclosing(states(ground, keys)) as following:
            async for kvs in following:
                answer = judge(kvs)
                if answer is not None:
                    return answer
    raise AssertionError("states never end")


def _apply(kvs: dict[bytes, KeyValue], batch: WatchBatch) -> None:
    for event in batch.events:
        if event.kv.version:
            kvs[event.kv.key] = event.kv
        else:
            kvs.pop(event.kv.key, None)
