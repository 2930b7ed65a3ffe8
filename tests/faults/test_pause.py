"""Processes stopped and continued, clocks that jump: no lease ends early, and none lives for ever."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from pathlib import Path

import pytest

from quoracy.clock import ManualClock
from quoracy.engines.opening import open_embedded
from tests.faults.child import Child
from tests.faults.lease_keeper import Options
from tests.faults.reports import Closed
from tests.faults.scale import rounds

pytestmark = pytest.mark.faults

_TTL_S = 1.0


@pytest.mark.timeout(600)
def test_a_stopped_process_keeps_the_leases_it_kept_alive(tmp_path: Path, rng: random.Random) -> None:
    options = Options(str(tmp_path / "store.db"), ttl_s=_TTL_S, keep_alive_s=0.1)
    with Child("lease_keeper", options) as child:
        for _ in range(rounds(1, 15)):
            assert "1" in child.wait_for_note("there").text.split()
            _stop_for(child, _TTL_S * rng.uniform(2, 3))
            for _ in range(5):
                # What it told before it was stopped may still be among these.
                assert "1" in child.wait_for_note("there").text.split()
        child.tell("abandon")
        child.wait_for_note("ended")
        child.tell("close")
        child.wait_for(Closed)
        child.end()


@pytest.mark.timeout(600)
def test_a_lease_nobody_keeps_outlives_a_stop_and_ends_after_it(
    tmp_path: Path, rng: random.Random
) -> None:
    for number in range(rounds(1, 10)):
        options = Options(str(tmp_path / f"store-{number}.db"), ttl_s=_TTL_S, keep_alive_s=0.05)
        with Child("lease_keeper", options) as child:
            child.wait_for_note("there")
            child.tell("renew")
            child.wait_for_note("renewed")
            told = len(child.reports)
            _stop_for(child, _TTL_S * rng.uniform(2, 3))
            child.signal(signal.SIGCONT)
            while len(child.wait_for_note("there").text.split()) == 2:
                pass
            lived = [r for r in child.reports[told:] if getattr(r, "text", "") == "1 2"]
            # Of the stop itself at most half a second counts, so about as much is left after it: 10
            # reports; fewer on a busy machine, yet not none.
            assert len(lived) >= 2, "the stop was counted as time that passed"


def _stop_for(child: Child, seconds: float) -> None:
    child.signal(signal.SIGSTOP)
    time.sleep(seconds)
    child.signal(signal.SIGCONT)


@pytest.mark.parametrize("jump_s", [1.0, 60.0, 86_400.0])
async def test_a_clock_that_jumps_ends_no_lease_early(jump_s: float, tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_embedded(f"sqlite:{tmp_path / 'store.db'}", clock=clock) as store:
        lease = (await store.grant(10)).id
        await store.put(b"k", b"v", lease=lease)
        await clock.advance(1.0)
        clock.jump(jump_s)
        await clock.advance(8.0)
        assert (await store.time_to_live(lease)).remaining_s > 0
        assert (await store.range(b"k")).count == 1
        await store.keep_alive(lease)
        await clock.advance(9.5)
        assert lease in await store.leases()
        # The jump made history old, so a compaction is on its way to a real disk, in its own time.
        while lease in await store.leases():
            await clock.advance(0.1)
            await asyncio.sleep(0.001)
        await store.put(b"other", b"")
        assert (await store.range(b"k")).count == 0


async def test_a_clock_that_goes_back_ends_no_lease(tmp_path: Path) -> None:
    clock = ManualClock(100_000.0)
    async with open_embedded(f"sqlite:{tmp_path / 'store.db'}", clock=clock) as store:
        lease = (await store.grant(10)).id
        await clock.advance(1.0)
        clock.jump(-86_400.0)
        await clock.advance(100.0)
        assert (await store.time_to_live(lease)).remaining_s > 0
        await store.keep_alive(lease)
        assert (await store.time_to_live(lease)).remaining_s == 10


async def test_a_lease_has_its_full_time_again_after_a_restart(tmp_path: Path) -> None:
    url, clock = f"sqlite:{tmp_path / 'store.db'}", ManualClock()
    async with open_embedded(url, clock=clock) as store:
        lease = (await store.grant(10)).id
        await clock.advance(9.0)
    clock.jump(3600.0)
    async with open_embedded(url, clock=clock) as store:
        await clock.advance(9.0)
        assert lease in await store.leases()
        await clock.advance(1.5)
        assert lease not in await store.leases()
