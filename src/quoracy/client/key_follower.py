"""Following keys: read once, then watched from the revision of that read on.

    await wait_for(context, key, lambda kvs: not kvs or None, timeout=5, what="the barrier x")

Invariants
    * The watch begins at the revision of the read: no change between the two is missed.
    * Every revision is shown, in order.  Steps are left out only if history was compacted while the
      store did not answer; the newest state is always shown.
    * A store that does not answer is asked again, until the caller gives up.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import TypeAlias, TypeVar

from quoracy.client.context import RETRY_S, Context, Deadline
from quoracy.client.session import Session
from quoracy.errors import Compacted, Indeterminate, StoreClosed, TimedOut, Unavailable
from quoracy.store.model import Keys, KeyValue, RangeResult, WatchBatch

__all__ = ["KeyValues", "states", "wait_for"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

KeyValues: TypeAlias = Mapping[bytes, KeyValue]


async def states(
    context: Context, keys: Keys, *, known: RangeResult | None = None
) -> AsyncGenerator[KeyValues, None]:
    """The keys that exist, now and after every change; the mapping is always the same object.

    known: the result of a read of exactly these keys; without it they are read.
    """
    found = known
    kvs: dict[bytes, KeyValue] = {}
    after: int | None = None
    while True:
        try:
            if after is None:
                found = found or await context.store.range(keys)
                kvs.clear()
                kvs.update((kv.key, kv) for kv in found.kvs)
                after, found = found.revision, None
                yield kvs
            async with context.store.watch(keys, after=after) as batches:
                async for batch in batches:
                    after = batch.revision
                    if batch.events:
                        _apply(kvs, batch)
                        yield kvs
        except Compacted:
            after = None  # read again
        except StoreClosed:
            raise
        except (Unavailable, Indeterminate) as error:
            _log.info("following %r continues: %s", keys, error)
            await context.clock.sleep(RETRY_S)


async def wait_for(
    context: Context,
    keys: Keys,
    judge: Callable[[KeyValues], _T | None],
    *,
    timeout: float | Deadline | None,
    what: str,
    session: Session | None = None,
    known: RangeResult | None = None,
) -> _T:
    """Wait until `judge` returns an answer for the keys that exist, and return it.

    known: as for `states`.  Raises `TimedOut`, and `SessionLost` if a session is given; with a timeout
    of 0 the keys are looked at once.
    """
    context.check()
    deadline = timeout if isinstance(timeout, Deadline) else context.deadline(timeout)
    if deadline.timeout == 0:
        found = known or await context.store.range(keys)
        answer = judge({kv.key: kv for kv in found.kvs})
        if answer is None:
            raise TimedOut(what, timeout_s=0)
        return answer
    with context.wait_scope(what, deadline, session):
        async with aclosing(states(context, keys, known=known)) as following:
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
