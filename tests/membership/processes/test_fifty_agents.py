"""Fifty real agents on this machine: five are killed at once, and everyone else finds out, in time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from quoracy.cli.membership.agent import read_settings
from tests.faults.scale import LONG
from tests.membership.processes.agents import QUICK, Agents

COUNT = 50
KILLED = 5


def noticed_within_s(members_count: int) -> float:
    """How long it can take until all know of a death.

    Every member probes every other once in a lap, and the orders of two laps are independent, so that
    two probes of one member are at most two laps apart.  The suspicion that follows lasts at most
    `suspicion_max_mult` times the shortest (with confirmations it is much shorter), and then the news
    has `transmits_max` rounds of gossip to reach everyone, which is far more than it needs.
    Members that doubt themselves probe more rarely; on a machine that is not overloaded they do not.
    """
    settings = read_settings(QUICK, wide=False)
    laps_s = 2 * (members_count - 1) * settings.probe_interval_s
    suspicion_s = settings.suspicion_min_s(members_count) * settings.suspicion_max_mult
    news_s = settings.transmits_max(members_count) * settings.gossip_interval_s
    return laps_s + suspicion_s + news_s


@pytest.mark.faults
async def test_every_survivor_of_fifty_marks_exactly_the_killed_dead_within_the_bound(
    tmp_path: Path,
) -> None:
    rng = random.Random(7)
    async with Agents(tmp_path) as agents:
        seed = await agents.start("agent-00")
        names = [f"agent-{number:02}" for number in range(1, COUNT)]
        if LONG:  # one after the other, each with a Python of its own
            for name in names:
                await agents.begin(name, "--join", seed.address)
        else:
            await agents.fork(names, "--join", seed.address)
        everyone = {seed.name, *names}
        await agents.until_all_see(everyone, within_s=60.0)

        victims = rng.sample(names, KILLED)
        for name in victims:
            agents.by_name[name].kill()
        survivors = everyone - set(victims)
        await agents.until_all_see(survivors, within_s=noticed_within_s(COUNT))

        for agent in agents.alive:
            assert sorted(agent.of_kind("died")) == sorted(victims)
            assert agent.of_kind("left", "conflict", "missed") == []
