"""The Watch service: many watches on one stream, nothing lost, nothing early, nobody starved."""

from __future__ import annotations

import asyncio

import pytest

from quoracy.clock import ManualClock
from quoracy.engines.opening import open_embedded
from quoracy.faces.etcd.services.all import etcd_methods
from quoracy.store.api import Store
from quoracy.store.model import Delete, KeyRange, Put, Txn
from quoracy.wire.etcd.kv import EventType
from quoracy.wire.etcd.rpc import (
    DeleteRangeRequest,
    FilterType,
    PutRequest,
    WatchCancelRequest,
    WatchCreateRequest,
    WatchProgressRequest,
    WatchRequest,
    WatchResponse,
)
from quoracy.wire.grpc import StatusCode

from .conftest import IDENTITY, Face, StreamCall

WATCH = "/etcdserverpb.Watch/Watch"


def create(key: bytes = b"a", **options: object) -> WatchRequest:
    return WatchRequest(create_request=WatchCreateRequest(key=key, **options))  # type: ignore[arg-type]


def cancel(id: int) -> WatchRequest:
    return WatchRequest(cancel_request=WatchCancelRequest(watch_id=id))


PROGRESS = WatchRequest(progress_request=WatchProgressRequest())


async def created(stream: StreamCall, *requests: WatchRequest) -> list[WatchResponse]:
    answers = []
    for request in requests:
        stream.say(request)
        answer = await stream.hear()
        assert answer.created
        answers.append(answer)
    return answers


def revision_of(response: WatchResponse) -> int:
    assert response.header is not None
    return response.header.revision


def keys_of(response: WatchResponse) -> list[bytes]:
    return [event.kv.key for event in response.events if event.kv is not None]


async def test_created_then_events(face: Face, store: Store) -> None:
    await store.put(b"a", b"0")
    async with face.stream(WATCH) as stream:
        (answer,) = await created(stream, create())
        assert (answer.watch_id, revision_of(answer)) == (0, 2)
        assert not answer.canceled
        await store.put(b"a", b"1")
        await store.put(b"b", b"1")
        await store.delete(b"a")
        put, delete = await stream.hear(), await stream.hear()
        assert (put.watch_id, put.header.revision) == (0, 3)
        (event,) = put.events
        assert (event.type, event.kv.value, event.kv.version) == (EventType.PUT, b"1", 2)
        assert event.prev_kv is None
        (event,) = delete.events
        assert (event.type, event.kv.key, event.kv.mod_revision) == (EventType.DELETE, b"a", 5)
        assert (event.kv.version, event.kv.create_revision, event.kv.value) == (0, 0, b"")


async def test_ids_are_chosen_in_order_and_skip_those_given(face: Face) -> None:
    async with face.stream(WATCH) as stream:
        answers = await created(
            stream, create(), create(watch_id=2), create(), create(), create(watch_id=-5)
        )
        assert [answer.watch_id for answer in answers] == [0, 2, 1, 3, -5]


async def test_id_that_is_taken_is_refused(face: Face) -> None:
    async with face.stream(WATCH) as stream:
        _, refused = await created(stream, create(watch_id=7), create(watch_id=7))
        assert (refused.watch_id, refused.canceled) == (-1, True)
        assert refused.cancel_reason == "mvcc: duplicate watch ID provided on the WatchStream"


@pytest.mark.parametrize(("key", "end"), [(b"b", b"a"), (b"b", b"b")])
async def test_empty_range_is_refused(face: Face, store: Store, key: bytes, end: bytes) -> None:
    async with face.stream(WATCH) as stream:
        refused, kept = await created(stream, create(key, range_end=end), create())
        assert (refused.watch_id, refused.canceled) == (-1, True)
        assert refused.cancel_reason == "mvcc: watcher range is empty"
        assert kept.watch_id == 0
        await store.put(b"a", b"1")
        assert keys_of(await stream.hear()) == [b"a"]


async def test_key_over_the_limit_is_refused(face: Face) -> None:
    async with face.stream(WATCH) as stream:
        (refused,) = await created(stream, create(b"k" * 100_000))
        assert (refused.watch_id, refused.canceled) == (-1, True)
        assert refused.cancel_reason == "etcdserver: request is too large"


async def test_empty_key_with_open_end_is_everything(face: Face, store: Store) -> None:
    async with face.stream(WATCH) as stream:
        await created(stream, create(b"", range_end=b"\0"))
        await store.txn(Txn(then=(Put(b"b"), Put(b"a"))))
        assert keys_of(await stream.hear()) == [b"b", b"a"]


async def test_cancel_is_the_last_that_is_heard(face: Face, store: Store) -> None:
    async with face.stream(WATCH) as stream:
        await created(stream, create(), create())
        stream.say(cancel(0))
        answer = await stream.hear()
        assert (answer.watch_id, answer.canceled, answer.cancel_reason) == (0, True, "")
        await store.put(b"a", b"1")
        assert (await stream.hear()).watch_id == 1
        assert await stream.hears_nothing()
        assert (await store.status()).watchers_count == 1


async def test_cancel_comes_after_what_waits_for_a_client_that_does_not_read(
    timed_face: Face, timed_store: Store, clock: ManualClock
) -> None:
    async with timed_face.stream(WATCH) as stream:
        await created(stream, create(progress_notify=True), create(b"b"))
        stream.reads.clear()
        await timed_store.put(b"b", b"1")  # its response is taken, and waits
        assert await stream.hears_nothing()
        await timed_store.put(b"a", b"1")
        await clock.advance(11)  # and then the other has something to say, too
        stream.say(cancel(0))
        assert await stream.hears_nothing()
        stream.reads.set()
        heard = [await stream.hear(), await stream.hear()]
        assert [(each.watch_id, each.canceled) for each in heard] == [(1, False), (0, True)]
        assert await stream.hears_nothing()


async def test_cancel_of_an_unknown_watch_is_not_answered(face: Face) -> None:
    async with face.stream(WATCH) as stream:
        stream.say(cancel(99))
        stream.say(WatchRequest())
        await created(stream, create())


async def test_id_that_compaction_ended_is_taken_until_it_is_cancelled(
    face: Face, store: Store
) -> None:
    for number in range(5):
        await store.put(b"a", b"%d" % number)
    await store.compact(5)
    async with face.stream(WATCH) as stream:
        await created(stream, create(watch_id=7, start_revision=2))
        assert (await stream.hear()).compact_revision == 5
        (refused,) = await created(stream, create(watch_id=7))
        assert refused.canceled
        stream.say(cancel(7))
        assert (await stream.hear()).canceled
        (answer,) = await created(stream, create(watch_id=7))
        assert not answer.canceled


async def test_cancelled_id_can_be_used_again(face: Face, store: Store) -> None:
    async with face.stream(WATCH) as stream:
        await created(stream, create(watch_id=5))
        stream.say(cancel(5))
        await stream.hear()
        await created(stream, create(watch_id=5))
        await store.put(b"a", b"1")
        assert (await stream.hear()).watch_id == 5


async def test_history_then_what_happens_now(face: Face, store: Store) -> None:
    for number in range(5):
        await store.put(b"a", b"%d" % number)
    async with face.stream(WATCH) as stream:
        (answer,) = await created(stream, create(start_revision=4))
        assert revision_of(answer) == 6
        await store.put(b"a", b"5")
        seen = [(await stream.hear()).events[0].kv.value for _ in range(4)]
        assert seen == [b"2", b"3", b"4", b"5"]


async def test_future_start_hears_nothing_earlier(face: Face, store: Store) -> None:
    async with face.stream(WATCH) as stream:
        (answer,) = await created(stream, create(start_revision=5, progress_notify=True))
        assert revision_of(answer) == 1
        await store.put(b"a", b"2")
        stream.say(PROGRESS)
        await store.put(b"a", b"3")
        assert await stream.hears_nothing()
        await store.put(b"b", b"4")
        await store.put(b"a", b"5")
        assert (await stream.hear()).events[0].kv.mod_revision == 5
        answer = await stream.hear()
        assert (answer.watch_id, revision_of(answer)) == (-1, 5)


async def test_negative_start_is_refused(face: Face, store: Store) -> None:
    await store.put(b"a", b"0")
    async with face.stream(WATCH) as stream:
        stream.say(create(start_revision=-1))
        answer = await stream.hear()
        assert (answer.watch_id, answer.created, answer.canceled) == (-1, True, True)
        assert answer.cancel_reason == "etcdserver: mvcc: required revision has been compacted"


async def test_compacted_start_is_created_then_canceled(face: Face, store: Store) -> None:
    """Seen on etcd 3.5.1: the cancellation has no revision and no reason."""
    for number in range(5):
        await store.put(b"a", b"%d" % number)
    await store.compact(5)
    async with face.stream(WATCH) as stream:
        await created(stream, create(start_revision=2))
        answer = await stream.hear()
        assert (answer.watch_id, answer.canceled, answer.compact_revision) == (0, True, 5)
        await created(stream, create())
        assert (answer.header.revision, answer.cancel_reason) == (0, "")
        await store.put(b"a", b"9")
        assert (await stream.hear()).watch_id == 1
        stream.say(cancel(0))
        answer = await stream.hear()
        assert (answer.watch_id, answer.canceled, answer.compact_revision) == (0, True, 0)


async def test_prev_kv_and_filters(face: Face, store: Store) -> None:
    async with face.stream(WATCH) as stream:
        await created(
            stream,
            create(prev_kv=True, filters=[FilterType.NODELETE]),
            create(filters=[FilterType.NOPUT]),
        )
        await store.put(b"a", b"1")
        await store.put(b"a", b"2")
        await store.delete(b"a")
        heard = [await stream.hear() for _ in range(3)]
        puts = [answer.events[0] for answer in heard if answer.watch_id == 0]
        assert [event.prev_kv and event.prev_kv.value for event in puts] == [None, b"1"]
        (delete,) = [answer.events[0] for answer in heard if answer.watch_id == 1]
        assert (delete.type, delete.prev_kv) == (EventType.DELETE, None)
        assert await stream.hears_nothing()


async def test_events_of_a_revision_come_in_one_response(face: Face, store: Store) -> None:
    async with face.stream(WATCH) as stream:
        await created(stream, create(b"", range_end=b"\0"))
        await store.txn(Txn(then=tuple(Put(b"k%d" % number) for number in range(100))))
        assert len((await stream.hear()).events) == 100


# -- progress --------------------------------------------------------------------------------


async def test_progress_request_has_one_answer_for_all(face: Face, store: Store) -> None:
    async with face.stream(WATCH) as stream:
        await created(stream, create(), create(b"b"))
        await store.put(b"c", b"1")
        stream.say(PROGRESS)
        answer = await stream.hear()
        assert (answer.watch_id, answer.header.revision, answer.events) == (-1, 2, ())
        assert not answer.created
        assert await stream.hears_nothing()


async def test_progress_request_on_a_stream_without_watches(face: Face, store: Store) -> None:
    await store.put(b"a", b"1")
    async with face.stream(WATCH) as stream:
        stream.say(PROGRESS)
        answer = await stream.hear()
        assert (answer.watch_id, answer.header.revision) == (-1, 2)


async def test_progress_is_never_ahead_of_events(face: Face, store: Store) -> None:
    for number in range(3000):
        await store.put(b"a", b"%d" % number)
    async with face.stream(WATCH) as stream:
        stream.say(create(start_revision=2))
        stream.say(create(b"quiet"))
        stream.say(PROGRESS)
        delivered = 1
        while (answer := await stream.hear()).watch_id != -1:
            for event in answer.events:
                assert event.kv.mod_revision == delivered + 1
                delivered += 1
        assert answer.header.revision <= delivered


async def test_watch_made_while_progress_is_awaited_counts_too(face: Face, store: Store) -> None:
    for number in range(50):
        await store.put(b"a", b"%d" % number)
    async with face.stream(WATCH) as stream:
        await created(stream, create(start_revision=100))
        stream.say(PROGRESS)
        stream.say(create(start_revision=2))
        stream.say(cancel(0))
        answers = [await stream.hear() for _ in range(53)]
        assert [answer.watch_id for answer in answers].index(-1) == 52
        assert revision_of(answers[52]) == 51


async def test_progress_that_is_answered_while_a_watch_is_made_waits_for_it(
    face: Face, store: Store
) -> None:
    for number in range(50):
        await store.put(b"a", b"%d" % number)
    async with face.stream(WATCH) as stream:
        await created(stream, create(b"other", start_revision=100))
        stream.say(PROGRESS)
        assert await stream.hears_nothing()
        stream.reads.clear()
        stream.say(create(start_revision=2))
        assert await stream.hears_nothing()
        for _ in range(60):
            await store.put(b"other", b"")
        stream.reads.set()
        answers = [await stream.hear() for _ in range(64)]
        assert answers[0].created
        ids = [answer.watch_id for answer in answers]
        assert (ids.count(0), ids.count(1), ids[-1]) == (12, 51, -1)


async def test_progress_says_what_the_slowest_watch_has_delivered(face: Face, store: Store) -> None:
    async with face.stream(WATCH) as stream:
        await created(stream, create(b"quiet"), create(start_revision=5))
        stream.say(PROGRESS)
        assert await stream.hears_nothing()
        for _ in range(4):
            await store.put(b"a", b"")
        assert keys_of(await stream.hear()) == [b"a"]
        answer = await stream.hear()
        assert (answer.watch_id, revision_of(answer)) == (-1, 1)


async def test_progress_waits_for_a_future_start_and_not_for_an_event(face: Face, store: Store) -> None:
    async with face.stream(WATCH) as stream:
        await created(stream, create(b"quiet", start_revision=3))
        stream.say(PROGRESS)
        assert await stream.hears_nothing()
        for _ in range(2):
            await store.put(b"other", b"")
        answer = await stream.hear()
        assert (answer.watch_id, revision_of(answer)) == (-1, 3)


async def test_cancelling_the_watch_that_holds_up_progress_lets_it_go(face: Face) -> None:
    async with face.stream(WATCH) as stream:
        await created(stream, create(), create(start_revision=100))
        stream.say(PROGRESS)
        assert await stream.hears_nothing()
        stream.say(cancel(1))
        assert (await stream.hear()).canceled
        assert (await stream.hear()).watch_id == -1


async def test_progress_notify_comes_after_silence(
    timed_face: Face, timed_store: Store, clock: ManualClock
) -> None:
    async with timed_face.stream(WATCH) as stream:
        await created(stream, create(progress_notify=True), create())
        await timed_store.put(b"b", b"1")
        await clock.advance(11)
        answer = await stream.hear()
        assert (answer.watch_id, answer.header.revision, answer.events) == (0, 2, ())
        assert await stream.hears_nothing()


# -- bounds ----------------------------------------------------------------------------------


async def test_watches_of_a_stream_are_bounded(small_face: Face) -> None:
    async with small_face.stream(WATCH) as stream:
        answers = await created(stream, *[create() for _ in range(4)])
        assert [answer.canceled for answer in answers] == [False, False, False, True]
        assert "at most 3 watches" in answers[3].cancel_reason
        stream.say(cancel(1))
        await stream.hear()
        (answer,) = await created(stream, create())
        assert not answer.canceled


async def test_thousand_watches_on_one_stream(face: Face, store: Store) -> None:
    async with face.stream(WATCH) as stream:
        answers = await created(stream, *[create() for _ in range(1000)])
        assert [answer.watch_id for answer in answers] == list(range(1000))
        await store.put(b"a", b"1")
        heard = {(await stream.hear()).watch_id for _ in range(1000)}
        assert heard == set(range(1000))
        stream.say(PROGRESS)
        assert (await stream.hear()).watch_id == -1
    assert (await store.status()).watchers_count == 0


async def test_responses_of_one_put_are_sent_together(face: Face, store: Store) -> None:
    async with face.stream(WATCH) as stream:
        await created(stream, *[create() for _ in range(100)])
        before = stream.sends_count
        await store.put(b"a", b"v" * 100)
        assert {(await stream.hear()).watch_id for _ in range(100)} == set(range(100))
        assert stream.sends_count == before + 1
        await store.put(b"a", b"v" * 10_000)  # what is sent at once is bounded
        assert {(await stream.hear()).watch_id for _ in range(100)} == set(range(100))
        assert stream.sends_count > before + 20


async def test_busy_watch_does_not_starve_the_others(face: Face, store: Store) -> None:
    for number in range(5000):
        await store.put(b"a", b"%d" % number)
    async with face.stream(WATCH) as stream:
        await created(stream, create(b"b"))
        stream.say(create(start_revision=2))
        while not (await stream.hear()).events:
            pass
        await store.put(b"b", b"1")
        before = 0
        while (await stream.hear()).watch_id != 0:
            before += 1
        assert before < 2500, "the other watch was heard only after most of the backlog"


async def test_client_that_does_not_read_makes_nothing_pile_up(face: Face, store: Store) -> None:
    async with face.stream(WATCH) as stream:
        await created(stream, create())
        stream.reads.clear()
        for number in range(3000):
            await store.put(b"a", b"%d" % number)
        assert stream.sent_count == 1
        stream.reads.set()
        seen = [(await stream.hear()).events[0].kv.value for _ in range(3000)]
        assert seen == [b"%d" % number for number in range(3000)]


async def test_fragments_are_small_enough_and_marked(small_face: Face) -> None:
    service_max = 4096 + 512 * 1024
    async with small_face.stream(WATCH) as stream:
        await created(stream, create(b"", range_end=b"\0", fragment=True), create(b"", range_end=b"\0"))
        await put_many_and_delete(small_face, 700, b"x" * 900)
        whole: list[bytes] = []
        parts: list[bytes] = []
        marks = []
        while not whole or len(parts) < len(whole):
            answer = await stream.hear()
            if not any(event.type == EventType.DELETE for event in answer.events):
                continue
            if answer.watch_id == 0:
                assert len(answer.encode()) < service_max
                parts += keys_of(answer)
                marks.append(answer.fragment)
            else:
                assert not answer.fragment
                whole += keys_of(answer)
        assert parts == whole
        assert len(whole) == 700
        assert marks == [True] * (len(marks) - 1) + [False]
        assert len(marks) > 1


async def put_many_and_delete(face: Face, count: int, name: bytes) -> None:
    for number in range(count):
        await face.call("/etcdserverpb.KV/Put", PutRequest(key=b"%03d" % number + name))
    await face.call("/etcdserverpb.KV/DeleteRange", DeleteRangeRequest(key=b"\0", range_end=b"\0"))


# -- the end ---------------------------------------------------------------------------------


async def test_stream_goes_on_when_the_client_has_said_all(face: Face, store: Store) -> None:
    async with face.stream(WATCH) as stream:
        await created(stream, create())
        stream.say_no_more()
        await store.put(b"a", b"1")
        assert keys_of(await stream.hear()) == [b"a"]


async def test_closed_store_ends_the_stream() -> None:
    async with open_embedded("memory:") as store:
        stream = Face(etcd_methods(store, IDENTITY)).stream(WATCH)
        await created(stream, create(), create())
    assert await stream.ended() == (StatusCode.UNAVAILABLE, "etcdserver: server stopped")


async def test_watch_on_a_closed_store_ends_the_stream() -> None:
    async with open_embedded("memory:") as store:
        face = Face(etcd_methods(store, IDENTITY))
    stream = face.stream(WATCH)
    stream.say(create())
    assert await stream.ended() == (StatusCode.UNAVAILABLE, "etcdserver: server stopped")


async def test_cancelled_call_leaves_no_watcher(face: Face, store: Store) -> None:
    stream = face.stream(WATCH)
    await created(stream, create(), create(start_revision=50))
    stream.reads.clear()
    await store.put(b"a", b"1")
    stream.say(create())
    await asyncio.sleep(0)
    await stream.cancel()
    assert (await store.status()).watchers_count == 0
    await store.txn(Txn(then=(Delete(KeyRange.everything()),)))
