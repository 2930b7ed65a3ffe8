"""The question to the cluster: one for all who wait, asked after they came; and what silence means."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from quoracy.clock import SystemClock
from quoracy.engines.etcd import linearizable_reads as serving_module
from quoracy.engines.etcd.linearizable_reads import Serving
from quoracy.errors import StoreClosed, Unavailable
from tests.support.asking import turns, until


class _Cluster:
    """What the question is put to: answers when the test says so."""

    def __init__(self) -> None:
        self.revision = 1
        self.applied = 1
        self.asked = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.is_lost = False
        self.elsewhere = 0
        self.went_back: list[int] = []

    async def ask(self) -> int:
        self.asked += 1
        revision = self.revision  # as of when it was asked: an answer may be old when it comes
        await self.answers.wait()
        if self.is_lost:
            raise Unavailable("nobody answers")
        return revision

    async def reach(self, revision: int) -> None:
        self.applied = max(self.applied, revision)

    def look_elsewhere(self) -> None:
        self.elsewhere += 1


@pytest.fixture
def cluster() -> _Cluster:
    return _Cluster()


@pytest.fixture
async def serving(cluster: _Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serving]:
    monkeypatch.setattr(serving_module, "IDLE_S", 0.02)
    monkeypatch.setattr(serving_module, "DOUBT_S", 0.1)
    monkeypatch.setattr(serving_module, "_AGAIN_S", 0.01)
    serving = Serving(
        ask=cluster.ask,
        reach=cluster.reach,
        elsewhere=cluster.look_elsewhere,
        went_back=cluster.went_back.append,
        applied=lambda: cluster.applied,
        clock=SystemClock(),
    )
    serving.start()
    yield serving
    await serving.stop()


async def test_one_question_serves_all_who_came_before_it(serving: Serving, cluster: _Cluster) -> None:
    cluster.answers.clear()
    await until(lambda: cluster.asked > 0)
    before = cluster.asked
    waiting = [asyncio.create_task(serving.newest_revision()) for _ in range(100)]
    await turns(3)
    cluster.revision = 7
    cluster.answers.set()
    assert await asyncio.gather(*waiting) == [7] * 100
    assert cluster.asked - before <= 2


async def test_question_on_its_way_does_not_serve_who_came_later(
    serving: Serving, cluster: _Cluster
) -> None:
    """What was written between the question and the reader must be in the reader's answer."""
    cluster.answers.clear()
    await until(lambda: cluster.asked > 0)
    cluster.revision = 9
    reader = asyncio.create_task(serving.newest_revision())
    await turns(3)
    cluster.answers.set()
    assert await reader == 9


async def test_silence_ends_serving_and_an_answer_begins_it(
    serving: Serving, cluster: _Cluster
) -> None:
    heard: list[bool] = []
    serving.subscribe(heard.append)
    cluster.is_lost = True
    with pytest.raises(Unavailable, match="no leader"):
        while True:
            await serving.newest_revision()
    assert not serving.is_serving
    assert serving.stale_s > 0
    assert cluster.elsewhere > 0
    with pytest.raises(Unavailable, match="nobody answers"):
        serving.check()
    cluster.is_lost, cluster.revision = False, 20
    await until(lambda: serving.is_serving)
    assert (heard, cluster.applied, serving.stale_s) == ([False, True], 20, 0.0)


async def test_who_waits_when_serving_ends_is_told(serving: Serving, cluster: _Cluster) -> None:
    cluster.answers.clear()
    await until(lambda: cluster.asked > 0)
    reader = asyncio.create_task(serving.newest_revision())
    await turns(3)
    cluster.is_lost = True
    cluster.answers.set()
    with pytest.raises(Unavailable):
        await reader


async def test_reader_that_gives_up_takes_the_answer_from_nobody(
    serving: Serving, cluster: _Cluster
) -> None:
    cluster.answers.clear()
    await until(lambda: cluster.asked > 0)
    impatient = asyncio.create_task(serving.newest_revision())
    patient = asyncio.create_task(serving.newest_revision())
    await turns(3)
    impatient.cancel()
    cluster.answers.set()
    assert await patient == 1


async def test_cluster_that_went_back_is_noticed(serving: Serving, cluster: _Cluster) -> None:
    cluster.applied = cluster.revision = 50
    await serving.newest_revision()
    cluster.revision = 3
    await until(lambda: bool(cluster.went_back))
    assert cluster.went_back[0] == 3


async def test_replica_that_moves_while_the_answer_is_on_its_way_is_no_loss(
    serving: Serving, cluster: _Cluster
) -> None:
    """The watch may be faster than the answer: that the answer is older then means nothing."""
    cluster.answers.clear()
    asked = cluster.asked
    await until(lambda: cluster.asked > asked)
    cluster.applied = cluster.revision = 8
    cluster.answers.set()
    assert await serving.newest_revision() == 8
    assert cluster.went_back == []


async def test_replica_that_does_not_move_is_noticed(
    serving: Serving, cluster: _Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_module, "ASK_S", 0.05)
    cluster.revision = 30
    await until(lambda: cluster.elsewhere > 0)
    assert "should have been at 30" in serving.reason


async def test_node_that_stood_still_is_in_doubt_before_it_has_asked(
    serving: Serving, cluster: _Cluster
) -> None:
    cluster.answers.clear()
    await until(lambda: serving.stale_s > 0)
    assert (serving.is_serving, serving.is_in_doubt) == (True, True)  # it has not asked in vain yet
    cluster.answers.set()
    await until(lambda: not serving.is_in_doubt)


async def test_end_is_told_to_who_waits(serving: Serving, cluster: _Cluster) -> None:
    cluster.answers.clear()
    await until(lambda: cluster.asked > 0)
    reader = asyncio.create_task(serving.newest_revision())
    await turns(3)
    await serving.stop()
    with pytest.raises(StoreClosed):
        await reader
