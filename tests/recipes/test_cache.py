"""Cache: what it promises, on every kind of store."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quoracy
from quoracy.client import mirror_updater
from quoracy.client.recipes.cache import Cache, CacheBatch
from quoracy.clock import ManualClock
from quoracy.store.api import Watch
from quoracy.store.model import Compare, Delete, Op, Put, Txn
from tests.support.asking import contents, newest, turns, until
from tests.support.cancelling import cancelled_everywhere
from tests.support.meddling import Meddling
from tests.support.places import Place, open_place
from tests.support.profiles import examples
from tests.support.tcp_proxy import tcp_proxy


class Service(msgspec.Struct, frozen=True):
    port: int


class Odd(msgspec.Struct, frozen=True):
    number: int

    def __post_init__(self) -> None:
        if self.number % 2 == 0:
            raise LookupError(self.number)


def told(batch: CacheBatch[str]) -> list[tuple[str, str | None, str | None]]:
    """Name, value, value before."""
    return [
        (
            change.name,
            change.current.value if change.current else None,
            change.previous.value if change.previous else None,
        )
        for change in batch.changes
    ]


async def fill(place: Place, count: int, value: bytes = b"v") -> None:
    for start in range(0, count, 100):
        puts = (Put(place.key(f"s/{at:04}"), value) for at in range(start, min(start + 100, count)))
        await place.store.txn(Txn(then=tuple(puts)))


async def test_everything_under_the_name_is_here_and_nothing_else(
    place: Place, q: quoracy.Connection
) -> None:
    await fill(place, 250)
    await place.store.put(place.key("s"), b"not under it")
    await place.store.put(place.key("s2/x"), b"nor this")
    async with Cache(q, "s/", str) as cache:
        assert cache.items() == [(f"{at:04}", "v") for at in range(250)]
        assert list(cache) == [name for name, _ in cache.items()]
        assert (len(cache), cache["0007"], "0249" in cache, "0250" in cache) == (250, "v", True, False)
        assert (cache.get("0250"), cache.get("0250", 7), cache.get("0249")) == (None, 7, "v")
        assert cache.revision >= max(entry.kv.mod_revision for entry in cache.entries())
        with pytest.raises(KeyError, match="0250"):
            cache["0250"]
    with pytest.raises(quoracy.InvalidRequest, match="was left"):
        cache["0007"]


async def test_own_write_is_here_after_waiting_for_its_revision(
    place: Place, q: quoracy.Connection
) -> None:
    async with Cache(q, "s", str) as cache:
        for number in range(5):
            done = await place.store.put(place.key("s/a"), str(number).encode())
            await cache.wait_revision(done.revision, timeout=20)
            assert cache["a"] == str(number)
        elsewhere = await place.store.put(place.key("t"), b"")
        await cache.wait_revision(elsewhere.revision, timeout=20)
        assert cache.revision >= elsewhere.revision
        with pytest.raises(quoracy.TimedOut, match=r"revision \d+ in the cache of s/"):
            await cache.wait_revision(elsewhere.revision + 1000, timeout=0.02)


async def test_one_batch_is_one_revision_with_what_was_before(
    place: Place, q: quoracy.Connection
) -> None:
    store, (a, b) = place.store, (place.key("s/a"), place.key("s/b"))
    await store.put(a, b"1")
    async with Cache(q, "s/", str) as cache:
        changes = cache.changes()
        both = await store.txn(Txn(then=(Put(a, b"2"), Put(b, b"1"))))
        await store.put(place.key("other"), b"")
        gone = await store.delete(quoracy.KeyRange.prefix(place.key("s/")))
        async with aclosing(changes):
            first, second = await anext(changes), await anext(changes)
        assert (first.revision, told(first)) == (both.revision, [("a", "2", "1"), ("b", "1", None)])
        assert (second.revision, told(second)) == (gone.revision, [("a", None, "2"), ("b", None, "1")])
        assert not first.is_summary
        assert not cache.items()


async def test_pages_are_of_one_revision_while_others_write(place: Place) -> None:
    first, last = place.key("s/0000"), place.key("s/0249")
    await fill(place, 250)
    async with place.connect() as q, place.connect() as other:

        async def write() -> None:
            for number in range(10_000):
                value = str(number).encode()
                await other.store.txn(Txn(then=(Put(first, value), Put(last, value))))

        writing = asyncio.create_task(write())
        for _ in range(5):
            async with Cache(q, "s/", str) as cache:
                seen = cache["0000"], cache["0249"]
                assert seen[0] == seen[1]
                async with aclosing(cache.changes()) as changes:
                    assert told(await anext(changes))[0][2] == seen[0]
        writing.cancel()
        await asyncio.wait([writing])


async def test_unreadable_value_is_kept_and_reported(place: Place, q: quoracy.Connection) -> None:
    store = place.store
    await store.put(place.key("s/good"), b'{"port": 80}')
    await store.put(place.key("s/bad"), b"what?")
    async with Cache(q, "s/", Service) as cache:
        assert cache.items() == [("good", Service(80))]
        assert list(cache.unreadable) == ["bad"]
        entry = cache.entry("bad")
        assert entry is not None
        assert entry.kv.value == b"what?"
        with pytest.raises(quoracy.ValueUnreadable, match=r"s/bad.* is no Service"):
            cache["bad"]
        with pytest.raises(quoracy.ValueUnreadable):
            cache.get("bad", Service(0))
        await store.put(place.key("s/good"), b"[" * 100_000)
        done = await store.put(place.key("s/bad"), b'{"port": 81}')
        await cache.wait_revision(done.revision, timeout=20)
        assert cache.items() == [("bad", Service(81))]
        assert list(cache.unreadable) == ["good"]


async def test_keys_that_are_no_text_have_names_that_lead_back(timed: Place) -> None:
    await timed.store.put(timed.key("s/") + b"\xff\x00", b"x")
    async with timed.connect() as q, Cache(q, "s/", bytes) as cache:
        (name,) = cache
        assert cache[name] == b"x"


async def test_whatever_a_type_of_the_program_raises_is_a_value_that_cannot_be_read(
    timed: Place,
) -> None:
    await timed.store.put(timed.key("s/a"), b'{"number": 2}')
    async with timed.connect() as q, Cache(q, "s/", Odd) as cache:
        assert "LookupError" in str(cache.unreadable["a"])


# -- bounds ----------------------------------------------------------------------------------------


async def test_more_than_it_may_hold_is_refused(place: Place, q: quoracy.Connection) -> None:
    await fill(place, 30, b"0123456789")
    with pytest.raises(quoracy.TooLarge, match=r"number of keys in the cache of s/ is 30.*entries_max"):
        async with Cache(q, "s/", bytes, entries_max=29):
            pass
    with pytest.raises(quoracy.TooLarge, match="bytes_max"):
        async with Cache(q, "s/", bytes, bytes_max=300):
            pass
    small = Cache(q, "s/", bytes, bytes_max=1500)
    async with small:
        fits = await place.store.put(place.key("s/0000"), b"x" * 400)
        await small.wait_revision(fits.revision, timeout=20)
        assert len(small["0000"]) == 400
        for _ in range(3):  # what is replaced does not count any more
            fits = await place.store.put(place.key("s/0000"), b"y" * 400)
        await small.wait_revision(fits.revision, timeout=20)
        over = await place.store.put(place.key("s/0001"), b"x" * 400)
        with pytest.raises(quoracy.TooLarge, match=r"size of the cache of s/ in bytes.*bytes_max"):
            await small.wait_revision(over.revision + 1, timeout=20)
    with pytest.raises(quoracy.TooLarge):
        await small.__aenter__()
    await place.store.put(place.key("s/0001"), b"")
    async with small:
        assert len(small) == 30
    async with Cache(q, "s/", bytes, entries_max=30) as cache:
        changes = cache.changes()
        done = await place.store.put(place.key("s/one-more"), b"")
        with pytest.raises(quoracy.TooLarge):
            await cache.wait_revision(done.revision + 1, timeout=20)
        for read in (cache.items, lambda: cache["0000"], lambda: len(cache), cache.changes):
            with pytest.raises(quoracy.TooLarge):
                read()
        with pytest.raises(quoracy.TooLarge):
            await anext(changes)
        assert cache.is_stale


async def test_slow_reader_gets_a_summary_and_nobody_waits_for_it(
    timed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_updater, "SUBSCRIPTION_CHANGES_MAX", 5)
    store = timed.store
    await store.put(timed.key("s/a"), b"old")
    await store.put(timed.key("s/b"), b"old")
    async with timed.connect() as q, Cache(q, "s/", str) as cache:
        slow, quick = cache.changes(), cache.changes()
        for number in range(20):
            await store.put(timed.key("s/a"), str(number).encode())
            assert told(await anext(quick)) == [
                ("a", str(number), str(number - 1) if number else "old")
            ]
        await store.put(timed.key("s/short"), b"")
        await store.delete(timed.key("s/short"))
        gone = await store.delete(timed.key("s/b"))
        await cache.wait_revision(gone.revision, timeout=1)
        batch = await anext(slow)
        assert batch.is_summary
        assert (batch.revision, told(batch)) == (
            gone.revision,
            [("a", "19", "old"), ("b", None, "old")],
        )
        await store.put(timed.key("s/c"), b"new")
        batch = await anext(slow)
        assert (told(batch), batch.is_summary) == ([("c", "new", None)], False)


# -- a server that is away, and time ---------------------------------------------------------------


async def test_what_changed_while_away_and_was_compacted_is_told_as_one_summary(
    tmp_path: Path,
) -> None:
    async with open_place("server", tmp_path) as place:
        assert isinstance(place.target, str)
        store = place.store
        for name in ("stays", "goes", "changes"):
            await store.put(place.key(f"s/{name}"), b"old")
        async with tcp_proxy(int(place.target.rpartition(":")[2])) as proxy:
            url = f"quoracy://127.0.0.1:{proxy.port}"
            async with (
                quoracy.connect(url, namespace=place.namespace, close_timeout=1) as q,
                Cache(q, "s/", str, stale_after=0.5) as cache,
            ):
                changes = cache.changes()
                await proxy.refuse()
                await until(lambda: cache.is_stale)
                assert (cache["goes"], cache.silence_s > 0.5) == ("old", True)
                await store.put(place.key("s/changes"), b"on the way")
                await store.put(place.key("s/changes"), b"new")
                await store.put(place.key("s/comes"), b"new")
                last = await store.delete(place.key("s/goes"))
                done = await store.put(place.key("elsewhere"), b"")
                await store.compact(done.revision)
                await proxy.listen()
                batch = await anext(changes)
                assert batch.is_summary
                assert told(batch) == [
                    ("changes", "new", "old"),
                    ("comes", "new", None),
                    ("goes", None, "old"),
                ]
                assert batch.revision >= last.revision
                await cache.wait_revision(done.revision, timeout=20)
                await until(lambda: not cache.is_stale)
                assert dict(cache.items()) == {"changes": "new", "comes": "new", "stays": "old"}


async def test_compaction_between_two_pages_begins_again(timed: Place) -> None:
    await fill(timed, 250)
    meddling = Meddling(timed.store)
    pages: list[object] = []

    async def compact(options: dict[str, object]) -> None:
        pages.append(options.get("at"))
        if len(pages) == 2:
            done = await timed.store.put(timed.key("s/0000"), b"newer")
            await timed.store.compact(done.revision)

    meddling.before_range = compact
    async with quoracy.connect(meddling.as_store, namespace=timed.namespace, clock=timed.clock) as q:
        async with Cache(q, "s/", str) as cache:
            assert (len(cache), cache["0000"]) == (250, "newer")
    assert [page is None for page in pages[:3]] == [True, False, True]


async def test_silence_tells_how_long_the_server_was_not_heard(
    timed: Place, clock: ManualClock
) -> None:
    async with timed.connect(session_ttl=1000) as q, Cache(q, "s/", str, stale_after=9) as cache:
        await clock.advance(100)
        assert cache.silence_s <= 9
        seen = [cache.is_stale]
        clock.jump(10)
        seen.append(cache.is_stale)
        await clock.advance(4)
        seen.append(cache.is_stale)
        assert seen == [False, True, False]


async def test_watch_that_hears_nothing_is_found_out(timed: Place, clock: ManualClock) -> None:
    meddling = Meddling(timed.store)
    meddling.deaf = True
    await timed.store.put(timed.key("s/kept"), b"soon")
    async with quoracy.connect(
        meddling.as_store, namespace=timed.namespace, clock=clock, session_ttl=1000
    ) as q:
        async with Cache(q, "s/", str, stale_after=9) as cache:
            await turns()
            elsewhere = await timed.store.put(timed.key("t"), b"")
            await clock.advance(9)
            assert cache.revision == elsewhere.revision  # proved by asking
            changed = await timed.store.put(timed.key("s/kept"), b"later")
            await clock.advance(9)
            assert cache.revision < changed.revision  # that was not proved
            meddling.deaf = False
            await clock.advance(9)
            assert cache.items() == [("kept", "later")]


async def test_server_that_does_not_tell_progress_is_asked_instead(
    timed: Place, clock: ManualClock
) -> None:
    meddling = Meddling(timed.store)
    meddling.tells_progress = False
    async with quoracy.connect(
        meddling.as_store, namespace=timed.namespace, clock=clock, session_ttl=1000
    ) as q:
        async with Cache(q, "s/", str, stale_after=9) as cache:
            done = await timed.store.put(timed.key("s/a"), b"1")
            await turns()
            assert (cache["a"], cache.revision) == ("1", done.revision)
            elsewhere = await timed.store.put(timed.key("t"), b"")
            waiting = asyncio.create_task(cache.wait_revision(elsewhere.revision))
            await clock.advance(3.1)
            await asyncio.wait_for(waiting, 5)
            await clock.advance(100)
            assert not cache.is_stale


async def test_watch_that_is_refused_ends_the_cache_with_the_reason(timed: Place) -> None:
    meddling = Meddling(timed.store)
    async with quoracy.connect(meddling.as_store, namespace=timed.namespace, clock=timed.clock) as q:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(meddling, "watch", lambda *_, **__: refused_watch())
            async with Cache(q, "s/", str) as cache:
                with pytest.raises(quoracy.Rejected, match="not permitted"):
                    await cache.wait_revision(10**9, timeout=20)
                with pytest.raises(quoracy.Rejected, match="not permitted"):
                    cache.items()


def refused_watch() -> Watch:
    raise quoracy.Rejected("not permitted")


async def test_closed_connection_is_told_to_whoever_listens(timed: Place) -> None:
    async with timed.connect() as q:
        cache = await Cache(q, "s/", str).__aenter__()
        changes = cache.changes()
        listening = asyncio.create_task(anext(changes))
        waiting = asyncio.create_task(cache.wait_revision(10**9))
        await turns()
    for task in (listening, waiting):
        with pytest.raises(quoracy.StoreClosed):
            await asyncio.wait_for(task, 20)
    with pytest.raises(quoracy.StoreClosed):
        cache.items()
    await cache.__aexit__(None, None, None)


async def test_deletion_that_a_deaf_watch_missed_is_not_overlooked(
    timed: Place, clock: ManualClock
) -> None:
    meddling = Meddling(timed.store)
    meddling.deaf = True
    await timed.store.put(timed.key("s/gone"), b"soon")
    async with quoracy.connect(
        meddling.as_store, namespace=timed.namespace, clock=clock, session_ttl=1000
    ) as q:
        async with Cache(q, "s/", str, stale_after=9) as cache:
            await turns()
            gone = await timed.store.delete(timed.key("s/gone"))
            meddling.deaf = False
            await clock.advance(9)
            assert (len(cache), cache.revision) == (0, gone.revision)


async def test_store_that_went_back_is_read_again(
    timed: Place, clock: ManualClock, tmp_path: Path
) -> None:
    meddling = Meddling(timed.store)
    await fill(timed, 3)
    for _ in range(5):
        await timed.store.put(timed.key("s/0000"), b"later")
    meddling.deaf = True
    async with open_place("memory", tmp_path, clock) as restored:
        await restored.store.put(timed.key("s/0000"), b"v")
        async with quoracy.connect(
            meddling.as_store, namespace=timed.namespace, clock=clock, session_ttl=1000
        ) as q:
            async with Cache(q, "s/", str, stale_after=9) as cache:
                changes = cache.changes()
                await turns()
                meddling.store, meddling.deaf = restored.store, False
                await clock.advance(9)
                batch = await anext(changes)
                assert batch.is_summary
                assert told(batch)[0] == ("0000", "v", "later")
                assert cache.items() == [("0000", "v")]
                meddling.store = timed.store  # where its session is


# -- leaving nothing behind ------------------------------------------------------------------------


async def test_cancelled_anywhere_nothing_is_left(timed: Place) -> None:
    await fill(timed, 250)
    async with timed.connect() as q:

        async def use() -> None:
            async with Cache(q, "s/", str) as cache:
                async with aclosing(cache.changes()) as changes:
                    done = await timed.store.put(timed.key("s/a"), b"")
                    await anext(changes)
                    await cache.wait_revision(done.revision)
                    await timed.store.put(timed.key("t"), b"")
                    await cache.wait_revision(await newest(timed.store))

        async for attempt in cancelled_everywhere(use):
            assert not attempt.swallowed
            await turns()
            assert not q._tasks
            assert (await timed.store.status()).watchers_count == 0


async def test_cache_is_entered_once_at_a_time(timed: Place) -> None:
    async with timed.connect() as q:
        cache = Cache(q, "s/", str)
        with pytest.raises(quoracy.InvalidRequest, match="not open"):
            cache.items()
        for _ in range(2):
            async with cache:
                ended = cache.changes()
                with pytest.raises(quoracy.InvalidRequest, match="entered already"):
                    await cache.__aenter__()
                assert not cache.items()
            with pytest.raises(StopAsyncIteration):
                await anext(ended)
        with pytest.raises(quoracy.InvalidRequest, match="no name"):
            Cache(q, "/", str)


# -- any schedule ----------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c"])
WRITES: st.SearchStrategy[tuple[str, dict[str, str]]] = st.one_of(
    st.tuples(st.just("put"), st.dictionaries(NAMES, st.sampled_from(["0", "1"]), min_size=1)),
    st.tuples(st.just("delete"), st.dictionaries(NAMES, st.just(""), min_size=1)),
    st.tuples(st.just("move"), st.dictionaries(NAMES, st.just("2"), min_size=2)),
    st.tuples(st.just("compact"), st.just({})),
    st.tuples(st.just("read"), st.just({})),
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(WRITES, max_size=30), st.integers(1, 8))
def test_batches_lead_from_each_state_to_the_next(
    schedule: list[tuple[str, dict[str, str]]], feed_max: int
) -> None:
    """Two readers, one of which reads only now and then, against the history of the store itself."""

    async def run() -> None:
        async with quoracy.connect("memory:") as q, Cache(q, "s/", str) as cache:
            states = {cache.revision: dict[str, str]()}
            eager, lazy = cache.changes(), cache.changes()
            views: list[dict[str, str]] = [{}, {}]

            async def read(which: int, upto: int) -> None:
                changes = (eager, lazy)[which]
                view = views[which]
                at = 0
                while at < upto and view != states[upto]:
                    batch = await asyncio.wait_for(anext(changes), 5)
                    assert batch.revision > at
                    at = batch.revision
                    for name, now, before in told(batch):
                        assert view.get(name) == before
                        if now is None:
                            del view[name]
                        else:
                            view[name] = now
                    assert view == states[at]

            for kind, names in schedule:
                ops: tuple[Op, ...] = ()
                if kind == "compact":
                    at = await newest(q.store)
                    if (await q.store.status()).compact_revision < at and at > 1:
                        await q.store.compact(at)
                    continue
                if kind == "read":
                    await read(1, max(states))
                    continue
                keys = {f"s/{name}".encode(): value for name, value in names.items()}
                ops = tuple(
                    Delete(k) if kind == "delete" else Put(k, v.encode()) for k, v in keys.items()
                )
                if kind == "move":
                    first, *rest = keys
                    ops = (Delete(first), *(Put(k, b"2") for k in rest))
                result = await q.store.txn(Txn((Compare.missing(b"never"),), ops))
                stored = await contents(q.store, quoracy.KeyRange.prefix(b"s/"))
                states[result.revision] = {k[2:].decode(): v.decode() for k, v in stored.items()}
                await cache.wait_revision(result.revision, timeout=5)
                assert dict(cache.items()) == states[result.revision]
                await read(0, result.revision)
            await read(1, max(states))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(mirror_updater, "SUBSCRIPTION_CHANGES_MAX", feed_max)
        asyncio.run(run())
