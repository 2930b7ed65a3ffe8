"""Value: what it promises, on every kind of store."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quoracy
from quoracy.client.connection import Connection
from quoracy.client.recipes.value import Change, DefaultedValue, Value, Versioned
from tests.support.asking import turns
from tests.support.cancelling import cancelled_everywhere
from tests.support.places import Place
from tests.support.profiles import examples
from tests.support.unreliable_store import Unreliable


class Settings(msgspec.Struct):
    colour: str
    size: int = 1


async def test_what_is_set_is_got_with_its_revision(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        value = Value(one, "v", Settings)
        assert await value.get() is None
        revision = await value.set(Settings("red"))
        assert await Value(other, "v", Settings).get() == Versioned(Settings("red"), revision)
        assert await value.delete()
        assert not await value.delete()
        assert await value.get() is None


async def test_bytes_and_text_are_kept_as_they_are(place: Place, q: Connection) -> None:
    await Value(q, "b", bytes).set(b"\xff\x00")
    await Value(q, "s", str).set("grün")
    assert (await place.store.range(place.key("b"))).kvs[0].value == b"\xff\x00"
    assert (await place.store.range(place.key("s"))).kvs[0].value == "grün".encode()


async def test_another_type_is_told(q: Connection) -> None:
    await Value(q, "v", str).set("red")
    with pytest.raises(quoracy.ValueUnreadable, match="Settings"):
        await Value(q, "v", Settings).get()
    with pytest.raises(quoracy.InvalidRequest, match="cannot be stored"):
        await Value(q, "v", bytes).set("red")  # type: ignore[arg-type]


async def test_compare_and_set_and_delete_heed_the_revision(q: Connection) -> None:
    value = Value(q, "v", int)
    first = await value.compare_and_set(1, revision=0)
    assert first is not None
    assert await value.compare_and_set(2, revision=0) is None
    second = await value.compare_and_set(2, revision=first)
    assert second is not None
    assert not await value.delete(revision=first)
    assert await value.get() == Versioned(2, second)
    assert await value.delete(revision=second)


async def test_no_update_of_many_at_once_is_lost(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:

        def add(seen: list[int] | None) -> list[int]:
            return [*(seen or []), len(seen or [])]

        values = [Value(q, "v", list[int]) for q in (one, other)]
        await asyncio.gather(*(values[at % 2].update(add) for at in range(20)))
        found = await values[0].get()
        assert found is not None
        assert found.value == list(range(20))


async def test_update_that_raises_or_changes_nothing_writes_nothing(q: Connection) -> None:
    value = DefaultedValue(q, "v", int, 3)

    def fail(_: int) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await value.update(fail)
    assert await value.get() == Versioned(3, 0)
    made = await value.update(lambda seen: seen + 1)
    assert made.value == 4
    assert await value.update(lambda seen: seen) == made

    async def wrong(seen: int) -> int:
        return seen

    with pytest.raises(quoracy.InvalidRequest, match="plain function"):
        await value.update(wrong)  # type: ignore[arg-type]
    assert await value.get() == made


async def test_update_gives_up_against_others_at_its_time() -> None:
    async with quoracy.connect("memory:") as q:
        value, calls = Value(q, "v", int), 0

        def lose(_: int | None) -> int:
            # Another writes between what was read and what is written.
            nonlocal calls
            calls += 1
            q.writes.begin(quoracy.Txn((), (quoracy.Put(b"v", b"%d" % -calls),)))
            return 5

        with pytest.raises(quoracy.TimedOut, match="updating"):
            await value.update(lose, timeout=0.05)
        assert calls > 1
        assert (await value.wait_until(lambda seen: seen == -calls, timeout=5)) is not None


async def test_changes_shows_every_change_after_a_revision(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        value = Value(one, "v", int)
        first = await value.set(1)
        revisions = [await value.set(number) for number in range(2, 6)]
        await value.delete()
        seen: list[Change[int]] = []
        async with (
            asyncio.timeout(20),
            aclosing(Value(other, "v", int).changes(after=first)) as changes,
        ):
            async for change in changes:
                seen.append(change)
                if not change.exists:
                    await value.set(9)
                if change.value == 9:
                    break
        assert [change.value for change in seen] == [2, 3, 4, 5, None, 9]
        assert [change.revision for change in seen[:4]] == revisions
        assert [change.exists for change in seen] == [True] * 4 + [False, True]


async def test_changes_from_now_begins_with_what_there_is(place: Place, q: Connection) -> None:
    value = Value(q, "v", int)
    await value.set(1)
    async with asyncio.timeout(20), aclosing(value.changes()) as changes:
        assert (await anext(changes)).value == 1
        await value.set(2)
        await value.set(3)
        assert [(await anext(changes)).value for _ in range(2)] == [2, 3]


async def test_changes_that_were_forgotten_are_told(timed: Place) -> None:
    async with timed.connect() as q:
        value = Value(q, "v", int)
        first = await value.set(1)
        await value.set(2)
        await timed.store.compact(await value.set(3))
        with pytest.raises(quoracy.Compacted):
            async with aclosing(value.changes(after=first)) as changes:
                await anext(changes)


async def test_changes_go_on_if_what_was_forgotten_was_of_others(timed: Place) -> None:
    async with timed.connect() as q:
        value = Value(q, "v", int)
        first = await value.set(1)
        for _ in range(3):
            await timed.store.put(b"other")
        await timed.store.compact((await timed.store.put(b"other")).revision)
        async with aclosing(value.changes(after=first)) as changes:
            following = asyncio.ensure_future(anext(changes))
            await turns()
            await value.set(2)
            async with asyncio.timeout(20):
                assert (await following).value == 2


async def test_wait_until_sees_what_comes_and_what_is_there(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        value = Value(one, "v", int)
        waiting = asyncio.create_task(
            Value(other, "v", int).wait_until(lambda seen: seen is not None and seen > 2)
        )
        for number in (1, 2, 3):
            await value.set(number)
        async with asyncio.timeout(20):
            found = await waiting
        assert found is not None
        assert found.value == 3
        assert await value.wait_until(lambda seen: seen == 3, timeout=0) == found
        with pytest.raises(quoracy.TimedOut):
            await value.wait_until(lambda seen: seen == 4, timeout=0.02)
        with pytest.raises(quoracy.TimedOut):
            await value.wait_until(lambda seen: seen == 4, timeout=0)
        await value.delete()
        assert await value.wait_until(lambda seen: seen is None, timeout=5) is None


async def test_default_stands_in_and_is_not_stored(place: Place, q: Connection) -> None:
    value = DefaultedValue(q, "v", int, 10)
    assert await value.get() == Versioned(10, 0)
    assert await value.wait_until(lambda seen: seen == 10, timeout=5) == Versioned(10, 0)
    assert not (await place.store.range(place.corner)).kvs
    assert (await value.update(lambda seen: seen + 1)).value == 11


async def test_lost_answer_is_told(timed: Place) -> None:
    store = Unreliable(timed.store)
    async with quoracy.connect(store, clock=timed.clock) as q:  # type: ignore[arg-type]
        value = Value(q, "v", int)
        store.loses = True
        for lost in (value.set(1), value.update(lambda seen: (seen or 0) + 1), value.delete()):
            with pytest.raises(quoracy.Indeterminate):
                await lost


async def test_cancelled_anywhere_an_update_is_whole_or_nothing(place: Place) -> None:
    async with place.connect() as q:
        value = Value(q, "v", list[int])
        await value.set([])

        async def update() -> None:
            await value.update(lambda seen: [*(seen or []), 1])

        runs = 0
        async for _ in cancelled_everywhere(update):
            await turns()
            runs += 1
        found = await value.get()
        assert found is not None
        assert 1 <= len(found.value) <= runs


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["set", "update", "delete"]), st.integers(0, 9)), max_size=12)
)
async def test_changes_tell_the_whole_story_of_any_schedule(steps: list[tuple[str, int]]) -> None:
    async with quoracy.connect("memory:") as q:
        value = Value(q, "v", int)

        async def step(kind: str, number: int) -> None:
            if kind == "set":
                await value.set(number)
            elif kind == "update":
                await value.update(lambda seen: (seen or 0) + 10)
            else:
                await value.delete()

        start = await value.set(0)
        await asyncio.gather(*(step(kind, number) for kind, number in steps))
        end = await value.set(-1)
        story: list[Change[int]] = []
        async with aclosing(value.changes(after=start)) as changes:
            async for change in changes:
                story.append(change)
                if change.revision == end:
                    break
        assert [change.revision for change in story] == sorted({c.revision for c in story})
        sets = [number for kind, number in steps if kind == "set"]
        updates = sum(kind == "update" for kind, _ in steps)
        # Every write is there once; an update adds 10 to whatever was right before it.
        before, grown, shown = 0, 0, []
        for change in story[:-1]:
            if change.value is not None:
                if change.value == before + 10:
                    grown += 1
                else:
                    shown.append(change.value)
            before = change.value or 0
        assert (sorted(shown), grown) == (sorted(sets), updates)
