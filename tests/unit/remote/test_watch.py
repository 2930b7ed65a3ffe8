"""One watch without a network: whatever pieces arrive, whole revisions leave, once and in order."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.errors import Compacted, InvalidRequest
from quoracy.remote.translate import events_of
from quoracy.remote.watch import RemoteWatch
from quoracy.remote.watch_hub import WatchHub, reports_progress_reliably
from quoracy.store.model import KeyRange, WatchBatch
from quoracy.wire.etcd import kv as wire_kv
from quoracy.wire.etcd import rpc
from tests.support.asking import take


class _Hub:
    """What a watch asks of its hub."""

    closed = False

    def __init__(self, *, events_max: int = 1000) -> None:
        self.buffer_events_max, self.buffer_bytes_max = events_max, 2**40
        self.progress_asked = 0
        self.resting: list[int] = []
        self.went_on: list[int] = []

    async def newest_revision(self, keys: object) -> int:
        return 5

    async def enter(self, watch: RemoteWatch, entered: asyncio.Future[None]) -> None:
        watch.on_created()

    def leave(self, watch: RemoteWatch) -> None:
        pass

    def ask_progress(self) -> None:
        self.progress_asked += 1

    def rest(self, watch: RemoteWatch) -> None:
        watch.resting = True
        self.resting.append(watch.received)

    def go_on(self, watch: RemoteWatch) -> None:
        watch.resting = False
        self.went_on.append(watch.request().start_revision)


async def _watch(hub: _Hub, after: int | None = 1, keys: KeyRange | bytes = b"k") -> RemoteWatch:
    return await RemoteWatch(cast(WatchHub, hub), keys, after=after).__aenter__()


def _response(*revisions: int, fragment: bool = False) -> rpc.WatchResponse:
    return rpc.WatchResponse(
        watch_id=1,
        fragment=fragment,
        events=[
            wire_kv.Event(kv=wire_kv.KeyValue(key=b"k%d" % i, mod_revision=revision, version=1))
            for i, revision in enumerate(revisions)
        ],
    )


def _tell(watch: RemoteWatch, response: rpc.WatchResponse) -> None:
    watch.on_events(events_of(response.events), fragment=response.fragment)


def _counts(batches: list[WatchBatch]) -> list[tuple[int, int]]:
    return [(batch.revision, len(batch.events)) for batch in batches]


async def test_a_message_with_several_revisions_is_several_batches() -> None:
    watch = await _watch(_Hub())
    _tell(watch, _response(2, 2, 3, 5, 5, 5))
    assert _counts(await take(watch, 3)) == [(2, 2), (3, 1), (5, 3)]
    assert (watch.revision, watch.received) == (5, 5)


async def test_a_revision_in_fragments_is_one_batch_when_the_last_has_come() -> None:
    watch = await _watch(_Hub())
    _tell(watch, _response(2, 3, 3, fragment=True))
    _tell(watch, _response(3, 3, fragment=True))
    assert watch.received == 2
    _tell(watch, _response(3, 4))
    assert _counts(await take(watch, 3)) == [(2, 1), (3, 5), (4, 1)]


async def test_fragments_of_a_lost_stream_are_forgotten() -> None:
    watch = await _watch(_Hub())
    _tell(watch, _response(2, 3, 3, fragment=True))
    assert watch.request().start_revision == 3
    _tell(watch, _response(3, 3, 3))
    assert _counts(await take(watch, 2)) == [(2, 1), (3, 3)]


async def test_what_was_received_already_is_not_told_again() -> None:
    watch = await _watch(_Hub())
    _tell(watch, _response(2, 3))
    _tell(watch, _response(2, 3, 4))
    assert _counts(await take(watch, 3)) == [(2, 1), (3, 1), (4, 1)]


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=12),
    st.lists(st.integers(1, 5), min_size=1, max_size=40),
    st.integers(1, 6),
)
def test_however_it_is_cut_and_however_little_room_there_is_all_of_it_is_told(
    sizes: list[int], cuts: list[int], events_max: int
) -> None:
    """A server that sends history from wherever it is asked to, in fragments of any size."""

    async def run() -> list[tuple[int, int]]:
        hub = _Hub(events_max=events_max)
        watch = await _watch(hub)
        last = len(sizes) + 1
        heard: list[tuple[int, int]] = []
        while not heard or heard[-1][0] < last:
            start = watch.request().start_revision
            events = [
                revision for revision in range(start, last + 1) for _ in range(sizes[revision - 2])
            ]
            pieces = list(cuts)
            while events and not watch.resting:
                size = pieces.pop(0) if pieces else 3
                piece, events = events[:size], events[size:]
                _tell(watch, _response(*piece, fragment=bool(events)))
            while watch._buffer:
                heard += _counts([await anext(watch)])
        return heard

    assert asyncio.run(run()) == [(i + 2, size) for i, size in enumerate(sizes)]


async def test_a_full_buffer_makes_it_rest_and_a_drained_one_go_on() -> None:
    hub = _Hub(events_max=4)
    watch = await _watch(hub)
    _tell(watch, _response(2, 3, 4, 5, 6, 7))
    assert hub.resting == [5]
    await take(watch, 1)
    assert hub.went_on == []
    await take(watch, 1)
    assert hub.went_on == [6]


# -- progress ---------------------------------------------------------------------------------


async def test_from_now_is_after_the_newest_revision() -> None:
    watch = await _watch(_Hub(), after=None)
    assert watch.request().start_revision == 6


async def test_progress_comes_after_what_waits_to_be_read() -> None:
    hub = _Hub()
    watch = await _watch(hub)
    _tell(watch, _response(2, 3))
    watch.request_progress()
    assert hub.progress_asked == 1
    watch.on_progress(9)
    assert _counts(await take(watch, 3)) == [(2, 1), (3, 1), (9, 0)]


async def test_progress_nobody_asked_for_moves_the_place_to_resume_and_tells_nothing() -> None:
    watch = await _watch(_Hub())
    watch.on_progress(9)
    assert (watch.revision, watch.request().start_revision) == (9, 10)
    _tell(watch, _response(12))
    watch.on_progress(20)
    assert watch.revision == 9
    assert _counts(await take(watch, 1)) == [(12, 1)]


async def test_a_watch_of_the_future_hears_of_no_progress_before_it() -> None:
    watch = await _watch(_Hub(), after=7)
    watch.request_progress()
    watch.on_progress(6)
    assert watch.wants_progress
    watch.on_progress(8)
    assert _counts(await take(watch, 1)) == [(8, 0)]


async def test_a_proof_holds_once_what_is_owed_was_received() -> None:
    watch = await _watch(_Hub())
    watch.request_progress()
    watch.on_proof(9, owed=3)
    assert watch.wants_progress
    _tell(watch, _response(2))
    _tell(watch, _response(3))
    assert _counts(await take(watch, 3)) == [(2, 1), (3, 1), (9, 0)]


@pytest.mark.parametrize(
    ("version", "truth"),
    [
        ("3.3.27", False),
        ("3.4.24", False),
        ("3.4.25", True),
        ("3.5.7", False),
        ("3.5.8", True),
        ("3.5.21", True),
        ("3.6.0-rc.1", True),
        ("4.0.0", True),
        ("unknown", False),
    ],
)
def test_whose_word_on_progress_is_taken(version: str, truth: bool) -> None:
    assert reports_progress_reliably(version) is truth


# -- the end ----------------------------------------------------------------------------------


async def test_an_error_comes_after_what_was_received_and_stays() -> None:
    watch = await _watch(_Hub())
    _tell(watch, _response(2))
    watch.fail(Compacted(wanted=3, oldest=9))
    assert _counts(await take(watch, 1)) == [(2, 1)]
    for _ in range(2):
        with pytest.raises(Compacted):
            await anext(watch)


async def test_a_watch_is_entered_once() -> None:
    watch = await _watch(_Hub())
    with pytest.raises(InvalidRequest):
        await watch.__aenter__()


# -- polled -----------------------------------------------------------------------------------


async def test_a_watch_that_is_polled_is_ready_in_the_turn_in_which_something_comes() -> None:
    hub = _Hub(events_max=2)
    watch = await _watch(hub)
    _tell(watch, _response(2))  # before anybody polls
    polled: list[tuple[int, int]] = []

    def poll() -> None:
        while (batch := watch.poll()) is not None:
            polled.extend(_counts([batch]))

    watch.on_ready(poll)
    poll()
    assert polled == [(2, 1)]
    _tell(watch, _response(2, 3, 3, 3, 4))
    assert polled == [(2, 1), (3, 3), (4, 1)]
    _tell(watch, _response(6, 6, fragment=True))
    _tell(watch, _response(6))
    watch.on_progress(9)
    watch.request_progress()
    watch.on_progress(10)
    assert polled[3:] == [(6, 3), (10, 0)]
    assert (watch.revision, watch.request().start_revision) == (10, 11)
    assert not hub.resting, "what is taken at once never fills the buffer"


async def test_polling_tells_how_the_watch_ended() -> None:
    watch = await _watch(_Hub())
    calls: list[None] = []
    watch.on_ready(lambda: calls.append(None))
    watch.fail(Compacted(wanted=11, oldest=20))
    assert calls
    for _ in range(2):
        with pytest.raises(Compacted):
            watch.poll()


async def test_a_watch_that_was_not_entered_cannot_be_polled() -> None:
    with pytest.raises(InvalidRequest, match="not open"):
        RemoteWatch(cast(WatchHub, _Hub()), b"k").poll()
