"""Config: what it promises, on every kind of store."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import Annotated

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quoracy
from quoracy.client.recipes.config import Config, ConfigChange
from quoracy.store.model import KeyRange, Op, Put, Txn
from tests.support.asking import contents, newest, turns, until
from tests.support.cancelling import cancelled_everywhere
from tests.support.places import Place
from tests.support.profiles import examples


class Limits(msgspec.Struct, frozen=True):
    soft: int
    hard: int


class Settings(msgspec.Struct, frozen=True):
    workers: Annotated[int, msgspec.Meta(ge=1)] = 4
    greeting: str = "hello"
    secret: bytes = b""
    limits: Limits = Limits(1, 2)
    tags: tuple[str, ...] = ()
    note: str | None = None


class Pair(msgspec.Struct, frozen=True):
    """Valid only as a whole."""

    once: int = 1
    twice: int = 2

    def __post_init__(self) -> None:
        if self.twice != 2 * self.once:
            raise ValueError(f"{self.twice} is not twice {self.once}")


async def stored(place: Place, name: str = "app") -> dict[str, bytes]:
    root = place.key(name) + b"/"
    found = await contents(place.store, KeyRange.prefix(root))
    return {key[len(root) :].decode(): value for key, value in found.items()}


async def test_defaults_are_of_the_type_and_what_is_set_is_of_one_revision(
    place: Place, q: quoracy.Connection
) -> None:
    async with Config(q, "app", Settings) as config:
        assert config.value == Settings()
        before = config.revision
        changes = config.changes()
        limits = Limits(5, 9)
        revision = await config.set(workers=8, greeting="hi there", secret=b"\xff", limits=limits)
        await config.wait_revision(revision, timeout=20)
        assert config.value == Settings(8, "hi there", b"\xff", limits)
        assert before < revision <= config.revision
        assert config.error is None
        change = await anext(changes)
        assert (change.value, change.previous) == (config.value, Settings())
        assert change.changed == {"workers", "greeting", "secret", "limits"}
        assert change.revision == revision
        assert await stored(place) == {
            "workers": b"8",
            "greeting": b"hi there",
            "secret": b"\xff",
            "limits": b'{"soft":5,"hard":9}',
        }
        assert await config.set(workers=8) >= revision  # nothing to write
        await config.wait_revision(await config.reset("greeting"), timeout=20)
        assert config.value.greeting == "hello"
    with pytest.raises(quoracy.InvalidRequest, match="was left"):
        _ = config.value


async def test_last_good_value_is_kept_and_everyone_is_told(
    place: Place, q: quoracy.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    async with Config(q, "app", Settings) as config:
        changes = config.changes()
        await config.wait_revision(await config.set(workers=8), timeout=20)
        good_at = (await anext(changes)).revision
        for wrong in (b"many", b"0", b"8.5", b'9,"greeting":"x"', b""):
            with caplog.at_level(logging.WARNING):
                done = await place.store.put(place.key("app/workers"), wrong)
                await config.wait_revision(done.revision, timeout=20)
            change = await anext(changes)
            assert (change.value, change.revision) == (Settings(8), done.revision)
            assert change.error is config.error is not None
            assert (config.value, config.revision) == (Settings(8), good_at)
            assert "app" in str(config.error)
            assert "last good value" in caplog.text
        done = await place.store.put(place.key("app/workers"), b"9")
        await config.wait_revision(done.revision, timeout=20)
        assert (config.value, config.error) == (Settings(9), None)
        assert (await anext(changes)).error is None


async def test_what_would_not_be_valid_is_not_written(place: Place, q: quoracy.Connection) -> None:
    config = Config(q, "app", Settings)
    for fields, why in (
        ({"workers": 0}, "Expected `int` >= 1"),
        ({"workers": "8"}, "Expected `int`"),
        ({"workers": 5, "greeting": 7}, "stored as text"),
        ({"workers": 5, "colour": "red"}, "no field 'colour'. It has: workers, greeting"),
        ({"workers": object()}, "not JSON"),
    ):
        with pytest.raises(quoracy.InvalidRequest, match=why):
            await config.set(**fields)
    pair = Config(q, "pair", Pair)
    with pytest.raises(quoracy.InvalidRequest, match="2 is not twice 3"):
        await pair.set(once=3)
    await pair.set(once=3, twice=6)
    with pytest.raises(quoracy.InvalidRequest, match="not twice"):
        await pair.reset("once")
    assert await stored(place, "pair") == {"once": b"3", "twice": b"6"}
    assert await stored(place) == {}


async def test_what_is_broken_can_be_repaired(place: Place, q: quoracy.Connection) -> None:
    await place.store.put(place.key("app/workers"), b"broken")
    config = Config(q, "app", Settings)
    with pytest.raises(quoracy.ValueUnreadable, match="workers"):
        async with config:
            pass
    with pytest.raises(quoracy.InvalidRequest, match="Nothing was written"):
        await config.set(greeting="hi")
    with pytest.raises(quoracy.ValueUnreadable):
        await config.update(lambda now: now)
    await config.set(workers=3, greeting="hi")
    async with config:
        assert config.value == Settings(3, "hi")


async def test_no_update_is_lost_among_many(place: Place) -> None:
    def more(now: Pair) -> Pair:
        return Pair(now.once + 1, now.twice + 2)

    async with place.connect() as one, place.connect() as other:
        seen: list[Pair] = []
        async with Config(one, "pair", Pair) as config:

            async def look() -> None:
                async for change in config.changes():
                    assert change.error is None
                    seen.append(change.value)

            looking = asyncio.create_task(look())
            await turns()
            configs = [config, Config(other, "pair", Pair)] * 3
            revisions = await asyncio.gather(
                *(each.update(more, timeout=60) for each in configs for _ in range(3))
            )
            assert len(set(revisions)) == 18
            await config.wait_revision(max(revisions), timeout=20)
            assert config.value == Pair(19, 38)
            await until(lambda: seen[-1:] == [Pair(19, 38)])
            assert seen == sorted(seen, key=lambda pair: pair.once)
        await looking


async def test_fields_that_fit_only_one_at_a_time_are_not_both_written(place: Place) -> None:
    class Span(msgspec.Struct, frozen=True):
        low: int = 0
        high: int = 10

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError(f"from {self.low} to {self.high}")

    async with place.connect() as one, place.connect() as other:
        for number in range(5):
            low, high = Config(one, f"{number}", Span), Config(other, f"{number}", Span)
            outcomes = await asyncio.gather(low.set(low=8), high.set(high=5), return_exceptions=True)
            refused = [type(outcome) for outcome in outcomes if not isinstance(outcome, int)]
            assert refused == [quoracy.InvalidRequest]
            assert len(await stored(place, f"{number}")) == 1


async def test_a_type_may_be_a_dataclass_with_required_fields(
    place: Place, q: quoracy.Connection
) -> None:
    @dataclasses.dataclass(frozen=True)
    class Place:
        city: str
        zip_code: int | None = None

    config = Config(q, "place", Place)
    with pytest.raises(quoracy.ValueUnreadable, match="missing required field `city`"):
        async with config:
            pass
    await config.set(city="Bern")
    async with config:
        assert config.value == Place("Bern")
        await config.update(lambda now: dataclasses.replace(now, zip_code=3000))
    assert await stored(place, "place") == {"city": b"Bern", "zip_code": b"3000"}


async def test_as_many_fields_as_a_transaction_takes(place: Place, q: quoracy.Connection) -> None:
    many = msgspec.defstruct("Many", [(f"f{at}", int, 0) for at in range(128)], frozen=True)
    config = Config(q, "many", many)
    await config.set(**{f"f{at}": at for at in range(128)})
    assert await stored(place, "many") == {f"f{at}": str(at).encode() for at in range(1, 128)} | {
        "f0": b"0"
    }
    more = msgspec.defstruct("More", [(f"f{at}", int, 0) for at in range(129)])
    with pytest.raises(quoracy.InvalidRequest, match="129 fields; a config takes 128"):
        Config(q, "more", more)


async def test_types_without_fields_are_refused(timed: Place) -> None:
    class Row(msgspec.Struct, array_like=True):
        a: int = 0

    async with timed.connect() as q:
        with pytest.raises(quoracy.InvalidRequest, match="has no fields"):
            Config(q, "app", int)
        with pytest.raises(quoracy.InvalidRequest, match="as an array"):
            Config(q, "app", Row)


async def test_keys_that_are_no_fields_count_only_where_the_type_forbids_them(timed: Place) -> None:
    class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
        max_count: int = 0

    async with timed.connect() as q, Config(q, "app", Settings) as config:
        changes = config.changes()
        await timed.store.put(timed.key("app/from-the-future"), b"x")
        await config.wait_revision(await config.set(workers=5), timeout=1)
        assert (await anext(changes)).value == config.value == Settings(5)
        strict = Config(q, "strict", Strict)
        await strict.set(max_count=3)
        assert await stored(timed, "strict") == {"maxCount": b"3"}
        async with strict:
            done = await timed.store.put(timed.key("strict/maxcount"), b"4")
            await strict.wait_revision(done.revision, timeout=1)
            assert strict.value == Strict(3)
            assert "strict/maxcount" in str(strict.error)


# -- callbacks -------------------------------------------------------------------------------------


async def test_callback_that_raises_or_is_slow_harms_nobody(
    timed: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async with timed.connect() as q:
        good: list[int] = []
        slow: list[int] = []
        raising: list[int] = []
        let_go = asyncio.Event()

        def fails(change: ConfigChange[Settings]) -> None:
            raising.append(change.value.workers)
            raise LookupError("a mistake")

        async def waits(change: ConfigChange[Settings]) -> None:
            slow.append(change.value.workers)
            await let_go.wait()

        async with Config(q, "app", Settings) as config:
            config.on_change(fails)
            config.on_change(waits)
            remove = config.on_change(lambda change: good.append(change.value.workers))
            for workers in (5, 6, 7):
                await config.wait_revision(await config.set(workers=workers), timeout=1)
                await turns()
            assert (good, raising, slow) == ([5, 6, 7], [5, 6, 7], [5])
            assert caplog.text.count("LookupError: a mistake") == 3
            let_go.set()
            await turns()
            assert slow == [5, 7]
            remove()
            await config.wait_revision(await config.set(workers=8), timeout=1)
            await turns()
            assert (good, slow) == ([5, 6, 7], [5, 7, 8])
            let_go.clear()
            await config.wait_revision(await config.set(workers=9), timeout=1)
            await turns()
        assert slow == [5, 7, 8, 9]
        assert not q._tasks


async def test_callback_may_use_the_connection(place: Place, q: quoracy.Connection) -> None:
    done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with Config(q, "app", Settings) as config:

        async def follow(change: ConfigChange[Settings]) -> None:
            if change.value.note is None:
                revision = await config.set(note=f"{change.value.workers} workers")
                await config.wait_revision(revision, timeout=20)
                async with q.lock("x"), Config(q, "app", Settings) as another:
                    if not done.done():
                        done.set_result(another.value.note or "")

        config.on_change(follow)
        await config.set(workers=7)
        assert await asyncio.wait_for(done, 20) == "7 workers"


async def test_cancelled_anywhere_nothing_is_left(timed: Place) -> None:
    async with timed.connect() as q:

        async def use() -> None:
            async with Config(q, "app", Settings) as config:
                config.on_change(lambda _: None)
                workers = config.value.workers + 1
                await config.wait_revision(await config.set(workers=workers, note="x"))
                await config.update(lambda now: msgspec.structs.replace(now, note=None))

        async for attempt in cancelled_everywhere(use):
            assert not attempt.swallowed
            await turns()
            assert not q._tasks
            assert (await timed.store.status()).watchers_count == 0


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), st.integers(-1, 3)),
            st.tuples(st.just("raw"), st.sampled_from([b"1", b"2", b"x", b"4"])),
            st.tuples(st.just("both"), st.integers(0, 3)),
            st.tuples(st.just("delete"), st.just(0)),
        ),
        max_size=20,
    )
)
def test_value_is_always_the_newest_that_was_valid(schedule: list[tuple[str, int | bytes]]) -> None:
    """Against a model that looks at all keys after every write."""

    async def run() -> None:
        good = Pair()
        async with quoracy.connect("memory:") as q, Config(q, "pair", Pair) as config:
            for kind, number in schedule:
                if kind == "set":
                    try:
                        await config.set(once=number)
                    except quoracy.InvalidRequest:
                        assert config.value == good
                elif kind == "delete":
                    await q.store.delete(b"pair/twice")
                else:
                    ops: list[Op] = []
                    if isinstance(number, bytes):
                        ops = [Put(b"pair/once", number)]
                    else:
                        ops = [
                            Put(b"pair/once", b"%d" % number),
                            Put(b"pair/twice", b"%d" % (2 * number)),
                        ]
                    await q.store.txn(Txn(then=tuple(ops)))
                await config.wait_revision(await newest(q.store), timeout=5)
                found = await contents(q.store, KeyRange.prefix(b"pair/"))
                once, twice = found.get(b"pair/once", b"1"), found.get(b"pair/twice", b"2")
                is_valid = once.isdigit() and int(twice) == 2 * int(once)
                if is_valid:
                    good = Pair(int(once), int(twice))
                assert config.value == good
                assert (config.error is None) == is_valid

    asyncio.run(run())
