"""Networks that are parted, really: hosts are namespaces, and packets between them are dropped."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.cells.network import Network, why_no_network
from tests.faults.scale import rounds
from tests.membership.processes.agents import QUICK, Agents

LEFT, RIGHT = ("l1", "l2", "l3"), ("r1", "r2", "r3")
HOSTS = (*LEFT, *RIGHT)
SETTINGS = (*QUICK, "reconnect_interval_s=1")
_SOON_S = 60.0


@pytest.fixture
def network() -> Iterator[Network]:
    missing = why_no_network()
    if missing is not None:
        pytest.skip(missing)
    with Network(HOSTS) as network:
        yield network


@contextlib.asynccontextmanager
async def one_agent_on_each(network: Network, directory: Path) -> AsyncIterator[Agents]:
    async with Agents(directory, settings=SETTINGS) as agents:
        for host in HOSTS:
            seed = () if host == HOSTS[0] else ("--join", network.addresses[HOSTS[0]])
            bind = f"{network.addresses[host]}:7946"
            await agents.begin(host, *seed, bind=bind, under=network.command(host, []))
        await agents.until_all_see(set(HOSTS), within_s=_SOON_S)
        yield agents


def cut(network: Network, one: tuple[str, ...], other: tuple[str, ...]) -> dict[str, list[str]]:
    """Nothing gets through, in either direction."""
    return {
        host: [f"input ip saddr {network.addresses[each]}" for each in others]
        for hosts, others in ((one, other), (other, one))
        for host in hosts
    }


@pytest.mark.faults
async def test_a_network_that_was_parted_for_long_heals_and_nobody_stays_dead(
    network: Network, tmp_path: Path
) -> None:
    async with one_agent_on_each(network, tmp_path) as agents:
        for _ in range(rounds(1, 5)):
            network.set_rules(cut(network, LEFT, RIGHT))
            await agents.until(
                # Each side gives the other up, all of it, and none of its own.
                lambda: all(
                    agent.present == set(LEFT if agent.name in LEFT else RIGHT) for agent in agents
                ),
                within_s=_SOON_S,
            )
            network.set_rules({})
            await agents.until_all_see(set(HOSTS), within_s=_SOON_S)
        # What the one side said of the other may still be on its way: it is contradicted.
        await asyncio.sleep(2.0)
        await agents.until_all_see(set(HOSTS), within_s=_SOON_S)
        for agent in agents:
            assert agent.of_kind("left", "forgotten", "conflict") == []


@pytest.mark.faults
async def test_two_that_cannot_reach_each_other_do_not_call_each_other_dead(
    network: Network, tmp_path: Path
) -> None:
    """Others can ask on their behalf, which is what indirect probes are for."""
    async with one_agent_on_each(network, tmp_path) as agents:
        network.set_rules(cut(network, LEFT[:1], RIGHT[:1]))
        # Nothing should happen, so there is nothing to wait for but time: laps of 1.25 s, and the
        # shortest suspicion of 1 s; at length, three times the longest suspicion of 6 s.
        await asyncio.sleep(rounds(4, 18))
        for agent in agents:
            assert agent.of_kind("died") == []
            assert agent.present == set(HOSTS)
