"""Two stores that live through the same requests: a real etcd and our embedded engine.

Neither is ever reset, so revisions stay equal and are compared like everything else.  `Lockstep.ask`
puts one request to both and raises `Disagreement` when the answers differ; from then on the two are
out of step, and a new pair is needed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar, assert_never

import msgspec

from quoracy.engines.embedded.retention import Retention
from quoracy.engines.opening import open_embedded
from quoracy.errors import Compacted, QuoracyError
from quoracy.store.api import Store
from quoracy.store.api import Watch as StoreWatch
from quoracy.store.model import (
    Delete,
    KeyRange,
    LeaseId,
    Put,
    Range,
    RangeResult,
    Txn,
    WatchBatch,
)
from quoracy.store.rules import as_range
from tests.differential import gateway
from tests.differential.agreement import agree, order_is_exact, watches_agree
from tests.differential.asking import (
    Compact,
    Done,
    Grant,
    Granted,
    KeepAlive,
    LeaseKeys,
    Leases,
    LeasesHeld,
    Outcome,
    Refused,
    Request,
    Revoke,
    TimeToLive,
    Watch,
    Watched,
)
from tests.differential.brief import brief
from tests.differential.etcd_server import ANSWER_S_MAX, EtcdConnection, WatchConnection, running_etcd

__all__ = ["Disagreement", "Lockstep", "Pair", "running_pair"]

T = TypeVar("T")

# etcd compacts when it is told to, and only then.
_KEEP_ALL = Retention(revisions_max=None, age_max_s=None)


class Disagreement(AssertionError):
    """The two stores answered differently; the text has the request, both answers and the way there."""


class Lockstep:
    """Both stores, asked the same."""

    def __init__(self, store: Store, port: int) -> None:
        self.store = store
        self.port = port
        self._etcd = EtcdConnection(port)
        self._sequence: list[Request | Watch] = []
        self._told = ""
        self.in_step = True
        self.revision = 1
        self.compact_revision = 0
        self.asked: Counter[str] = Counter()
        self.refused: Counter[type[QuoracyError]] = Counter()

    async def begin(self, told: str) -> None:
        """Start a sequence with no keys and no leases; `told` is how to replay it."""
        held = await self.ask(Leases())
        assert isinstance(held, LeasesHeld)
        for lease in held.ids:
            await self.ask(Revoke(lease))
        await self.ask(Delete(KeyRange.everything()))
        self._sequence.clear()
        self._told = told

    async def ask(self, request: Request) -> Outcome:
        """Put the request to both; gives what both answered."""
        self._sequence.append(request)
        with self._telling(request):
            ours, theirs = await self.ask_apart(request)
        self.asked[type(request).__name__] += 1
        if not agree(request, ours, theirs):
            self._disagree(request, ours, theirs)
        self._learn(request, ours)
        if isinstance(request, Range) and isinstance(ours, RangeResult):
            await self._check_cut(request, ours)
        return ours

    async def ask_apart(self, request: Request) -> tuple[Outcome, Outcome]:
        """Put the request to both and compare nothing."""
        path, body = gateway.post(request)
        answer = await asyncio.to_thread(self._etcd.ask, path, body)
        async with asyncio.timeout(ANSWER_S_MAX):
            return await _ask_ours(self.store, request), gateway.outcome(request, answer)

    async def watch(
        self,
        watches: Sequence[Watch],
        *,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
        until: int | None = None,
    ) -> list[Watched]:
        """Follow every watch on both stores; gives what both delivered.  See `watch_apart`."""
        self._sequence += watches
        compact_revision = self.compact_revision
        with self._telling(*watches):
            shares = await self.watch_apart(watches, meanwhile=meanwhile, until=until)
        for watch, (ours, theirs) in zip(watches, shares, strict=True):
            self.asked["Watch"] += 1
            if not watches_agree(ours, theirs, compact_revision=compact_revision):
                self._disagree(watch, ours, theirs)
            if ours.compacted_to is not None:
                self.refused[Compacted] += 1
        return [ours for ours, _ in shares]

    async def watch_apart(
        self,
        watches: Sequence[Watch],
        *,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
        until: int | None = None,
    ) -> list[tuple[Watched, Watched]]:
        """Follow every watch on both stores from its start past the present and compare nothing.

        Once the watches run, `meanwhile` happens, and then each gets a put and a delete of a key it
        covers.  Events come in order, so a store that delivered those delivered everything before
        them; and they show that history passes into the present without a gap.  With `until` nothing
        is written: the watch must deliver something at that revision by itself.
        """
        async with AsyncExitStack() as stack:
            theirs = [
                stack.enter_context(closing(await asyncio.to_thread(_EtcdWatch, self.port, watch)))
                for watch in watches
            ]
            ours = [
                await stack.enter_async_context(
                    self.store.watch(
                        watch.keys,
                        after=watch.after,
                        puts=watch.puts,
                        deletes=watch.deletes,
                        prev_kv=watch.prev_kv,
                    )
                )
                for watch in watches
            ]
            if meanwhile is not None:
                await meanwhile()
            ends = [await self._end(watch) if until is None else until for watch in watches]
            return [
                (await _follow(our_watch, end), await asyncio.to_thread(their_watch.follow, end))
                for our_watch, their_watch, end in zip(ours, theirs, ends, strict=True)
            ]

    def close(self) -> None:
        self._etcd.close()

    async def _end(self, watch: Watch) -> int:
        """Write until the watch has surely something to deliver; gives the revision of that."""
        key = as_range(watch.keys).start or b"\0"
        assert as_range(watch.keys).contains(key), "a watch without keys never delivers"
        assert watch.puts or watch.deletes, "a watch without events never delivers"
        while True:
            await self.ask(Put(key, b"end"))
            put_revision = self.revision
            await self.ask(Delete(key))
            end = self.revision if watch.deletes else put_revision
            if end > watch.after:
                return end

    def _learn(self, request: Request, outcome: Outcome) -> None:
        match outcome:
            case Refused():
                self.refused[outcome.kind] += 1
            case Granted() | LeaseKeys() | LeasesHeld():
                pass
            case _:
                self.revision = outcome.revision or self.revision
        if isinstance(request, Compact) and isinstance(outcome, Done):
            self.compact_revision = request.at

    async def _check_cut(self, op: Range, cut: RangeResult) -> None:
        """Our order is exact even where etcd's is not: a limit cuts the whole answer, nothing else."""
        if order_is_exact(op) or (op.limit is None and not op.keys_only) or op.count_only:
            return
        whole = await self.ask(msgspec.structs.replace(op, limit=None, keys_only=False))
        assert isinstance(whole, RangeResult)
        expected = whole.kvs[: op.limit]
        if op.keys_only:
            expected = tuple(msgspec.structs.replace(kv, value=b"") for kv in expected)
        if cut.kvs != expected:
            self._disagree(op, cut, whole)

    @contextmanager
    def _telling(self, *requests: Request | Watch) -> Iterator[None]:
        """An error in here, be it a timeout or a bug, tells how we came to it."""
        try:
            yield
        except Exception as error:
            if self.in_step:
                self.in_step = False
                error.add_note(self._way_to(*requests))
            raise

    def _disagree(self, request: Request | Watch, ours: object, theirs: object) -> NoReturn:
        self.in_step = False
        answers = f"ours    {brief(ours)}\netcd    {brief(theirs)}"
        raise Disagreement(f"{answers}\n{self._way_to(request)}")

    def _way_to(self, *requests: Request | Watch) -> str:
        steps = enumerate(self._sequence, 1)
        return "\n".join(
            (
                *(f"request {brief(request)}" for request in requests),
                f"in {self._told}",
                f"at revision {self.revision}, compacted to {self.compact_revision}, after",
                *(f"  {number:3} {brief(step)}" for number, step in steps),
            )
        )


class Pair:
    """A Lockstep and the event loop it lives on."""

    def __init__(self, runner: asyncio.Runner, url: str, port: int) -> None:
        self._runner = runner
        self._url = url
        self._holder = runner.run(_hold_open(url))
        self.lockstep = Lockstep(self._holder.store, port)

    def run(self, steps: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(steps)

    def reopen(self) -> None:
        """Close our store and open it again, while etcd runs on."""
        self.run(self._holder.close())
        self._holder = self.run(_hold_open(self._url))
        self.lockstep.store = self._holder.store

    def close(self) -> None:
        self.lockstep.close()
        self.run(self._holder.close())


@contextmanager
def running_pair(binary: str, directory: Path, *, url: str = "memory:") -> Iterator[Pair]:
    """A new etcd and a new embedded store, both empty."""
    with (
        running_etcd(binary, directory) as port,
        asyncio.Runner() as runner,
        closing(Pair(runner, url, port)) as pair,
    ):
        yield pair


class _Holder:
    """Keeps a store open in one task, however many others come and go on its loop."""

    def __init__(self, store: Store, task: asyncio.Task[None], done: asyncio.Event) -> None:
        self.store = store
        self._task = task
        self._done = done

    async def close(self) -> None:
        self._done.set()
        await self._task


async def _hold_open(url: str) -> _Holder:
    opened: asyncio.Future[Store] = asyncio.get_running_loop().create_future()
    done = asyncio.Event()

    async def hold() -> None:
        async with open_embedded(url, retention=_KEEP_ALL) as store:
            opened.set_result(store)
            await done.wait()

    task = asyncio.create_task(hold())
    await asyncio.wait((opened, task), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    return _Holder(opened.result(), task, done)


# -- our side --------------------------------------------------------------------------------


async def _ask_ours(store: Store, request: Request) -> Outcome:
    try:
        match request:
            case Range():
                return await store.range(
                    request.keys,
                    at=request.at,
                    limit=request.limit,
                    sort_by=request.sort_by,
                    descending=request.descending,
                    keys_only=request.keys_only,
                    count_only=request.count_only,
                    mod_revision_min=request.mod_revision_min,
                    mod_revision_max=request.mod_revision_max,
                    create_revision_min=request.create_revision_min,
                    create_revision_max=request.create_revision_max,
                    serializable=request.serializable,
                )
            case Put():
                return await store.put(
                    request.key,
                    request.value,
                    lease=request.lease,
                    prev_kv=request.prev_kv,
                    ignore_value=request.ignore_value,
                    ignore_lease=request.ignore_lease,
                )
            case Delete():
                return await store.delete(request.keys, prev_kv=request.prev_kv)
            case Txn():
                return await store.txn(request)
            case Compact(at):
                await store.compact(at)
                return Done(None)
            case Grant(lease, ttl_s):
                grant = await store.grant(ttl_s, id=LeaseId(lease))
                return Granted(grant.id, grant.ttl_s)
            case KeepAlive(lease):
                grant = await store.keep_alive(lease)
                return Granted(grant.id, grant.ttl_s)
            case Revoke(lease):
                return Done(await store.revoke(lease))
            case TimeToLive(lease, keys):
                status = await store.time_to_live(lease, keys=keys)
                return LeaseKeys(status.id, status.ttl_s, status.remaining_s, status.keys)
            case Leases():
                return LeasesHeld(await store.leases())
            case _:
                assert_never(request)
    except QuoracyError as error:
        return Refused(type(error), str(error))


async def _follow(stream: StoreWatch, end: int) -> Watched:
    """What the stream delivers up to revision `end`, where it has something to deliver."""
    batches: list[WatchBatch] = []
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            while not batches or batches[-1].revision < end:
                batches.append(await anext(stream))
    except Compacted as error:
        return Watched((), compacted_to=error.oldest)
    return Watched(tuple((batch.revision, batch.events) for batch in batches))


# -- etcd's watches --------------------------------------------------------------------------


class _EtcdWatch:
    """One watch at etcd, running from the moment this is made."""

    def __init__(self, port: int, watch: Watch) -> None:
        self._connection = WatchConnection(port, gateway.watch_create(watch))
        created = self._connection.next_message()["result"]
        assert created.get("created"), created
        assert not created.get("canceled"), created

    def follow(self, end: int) -> Watched:
        """What it delivers up to revision `end`, where it has something to deliver."""
        events: list[gateway.Json] = []
        while not events or int(events[-1]["kv"]["mod_revision"]) < end:
            message = self._connection.next_message()["result"]
            if message.get("canceled"):
                return Watched((), compacted_to=int(message["compact_revision"]))
            events += message["events"]
        batches = gateway.events_by_revision(events)
        return Watched(tuple(batch for batch in batches if batch[0] <= end))

    def close(self) -> None:
        self._connection.close()
