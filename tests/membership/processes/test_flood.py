"""A flood of garbage at one agent changes nobody's view: random bytes, lies in the clear, lies under a
wrong key, lies of long ago, and the truth said twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import pytest

from quoracy.membership.runtime.addresses import parse_address
from quoracy.membership.runtime.endpoint import SWIM_CHANNEL
from quoracy.membership.runtime.envelope import Envelope, Kind
from quoracy.membership.runtime.keyring import KeyRing, generate_key
from quoracy.membership.runtime.queries import REPORT_AGE_S, AgentQuery, AgentReport
from quoracy.membership.swim.messages import Alive, Dead, Suspect, compose, encode
from tests.faults.scale import rounds
from tests.membership.processes.agents import Agents
from tests.membership.runtime.test_join import free_address

NAMES = ("ada", "bob", "cyd", "dan")
PACKETS = rounds(4_000, 100_000)
_SOON_S = 30.0


@contextlib.asynccontextmanager
async def four_agents(directory: Path, key: str) -> AsyncIterator[Agents]:
    """Everyone knows everyone; the first is the one that is flooded."""
    file = directory / "key"
    file.write_text(key)
    # The usual speed: that they are slowed down by the flood must not look like its success.
    async with Agents(directory, settings=()) as agents:
        first = await agents.start(NAMES[0], "--key-file", str(file))
        await agents.fork(NAMES[1:], "--key-file", str(file), "--join", first.address)
        await agents.until_all_see(set(NAMES), within_s=_SOON_S)
        yield agents


def lies() -> Iterator[bytes]:
    """What would end the cluster if it were believed."""
    for name in NAMES:
        yield compose([encode(Dead(name, 1_000, "eve"))])
        yield compose([encode(Suspect(name, 1_000, "eve"))])
        yield compose([encode(Alive(name, "127.0.0.1:9", 1_000, b""))])
    yield compose([encode(Alive("eve", "127.0.0.1:9", 1, b""))])


def wrapped(payload: bytes, keyring: KeyRing | None, *, wall_s: float) -> bytes:
    envelope = Envelope(entropy=os.urandom, keyring=keyring)
    return envelope.wrap(payload, channel=SWIM_CHANNEL, kind=Kind.PACKET, wall_ms=int(wall_s * 1_000))


def random_bytes(rng: random.Random) -> Iterator[bytes]:
    while True:
        yield rng.randbytes(rng.choice((0, 1, 7, 60, 400, 1_400, 1_401, 9_000)))


def flood(address: str, packets: Iterator[bytes]) -> None:
    place = parse_address(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for number, packet in enumerate(itertools.islice(packets, PACKETS)):
            sender.sendto(packet, place)
            if number % 64 == 63:
                time.sleep(0.001)  # the point is to be read, not to be lost in a full buffer


async def view_of(address: str, key: str) -> AgentReport:
    await asyncio.sleep(REPORT_AGE_S)  # else it may be a report of before
    return await AgentQuery(address, keyring=KeyRing(key), timeout_s=_SOON_S).ask()


async def assert_view_is_unchanged(agents: Agents, key: str) -> None:
    for agent in agents:
        report = await view_of(agent.address, key)
        assert [(each.name, each.incarnation) for each in report.members] == [(n, 1) for n in NAMES]
        assert {each.state for each in report.members} == {"alive"}
        assert agent.of_kind("suspected", "died", "left", "updated", "conflict") == []
        assert agent.of_kind("joined", "present").count(agent.name) == 0
        assert len(agent.of_kind("joined", "present")) == len(NAMES) - 1


@pytest.mark.faults
async def test_a_flood_of_garbage_changes_nobodys_view(tmp_path: Path) -> None:
    key, rng = generate_key(), random.Random(5)
    now_s, wrong, right = time.time(), KeyRing(generate_key()), KeyRing(key)
    forged = {
        "unencrypted": [wrapped(lie, None, wall_s=now_s) for lie in lies()],
        "wrong key": [wrapped(lie, wrong, wall_s=now_s) for lie in lies()],
        # Recorded an hour ago, say, when the cluster had the same key.
        "too old": [wrapped(lie, right, wall_s=now_s - 3_600) for lie in lies()],
    }
    async with four_agents(tmp_path, key) as agents:
        target = agents.by_name[NAMES[0]]

        async def dropped_in_flood(packets: Iterator[bytes]) -> Counter[str]:
            before = await view_of(target.address, key)
            await asyncio.to_thread(flood, target.address, packets)
            await assert_view_is_unchanged(agents, key)
            after = await view_of(target.address, key)
            return Counter(after.dropped) - Counter(before.dropped)

        dropped = await dropped_in_flood(random_bytes(rng))
        assert dropped.total() > PACKETS // 2  # it was read, and not just lost on the way
        for kind, lies_of_it in forged.items():
            dropped = await dropped_in_flood(itertools.cycle(lies_of_it))
            assert list(dropped) == [kind]
            assert dropped[kind] > PACKETS // 2


class Wiretap(asyncio.DatagramProtocol):
    """Between two members: passes everything on, and keeps what goes to the second."""

    def __init__(self, first: str, second: str) -> None:
        self._first, self._second = parse_address(first), parse_address(second)
        self.recorded: list[bytes] = []
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        if addr == self._second:
            self._transport.sendto(data, self._first)
        else:
            self.recorded.append(data)
            self._transport.sendto(data, self._second)


@pytest.mark.faults
async def test_what_was_recorded_on_the_way_is_not_believed_a_second_time(tmp_path: Path) -> None:
    key = generate_key()
    (tmp_path / "key").write_text(key)
    secret = ("--key-file", f"{tmp_path}/key")
    async with Agents(tmp_path) as agents:
        ada = await agents.start("ada", *secret)
        behind, tapped = free_address(), free_address()
        loop = asyncio.get_running_loop()
        transport, tap = await loop.create_datagram_endpoint(
            lambda: Wiretap(ada.address, behind), local_addr=parse_address(tapped)
        )
        try:
            join = ("--join", ada.address)
            bob = await agents.start("bob", *secret, *join, "--advertise", tapped, bind=behind)
            await agents.until_all_see({"ada", "bob"}, within_s=_SOON_S)
            async with asyncio.timeout(_SOON_S):
                while len(tap.recorded) < 20:  # noqa: ASYNC110 (pings come by and by)
                    await asyncio.sleep(0.05)
            before = await view_of(behind, key)
            assert before.dropped.get("replayed", 0) == 0
            await asyncio.to_thread(flood, behind, itertools.cycle(tap.recorded[:20]))
            after = await view_of(behind, key)
            assert after.dropped["replayed"] > PACKETS // 2
            assert [(each.name, each.state) for each in after.members] == [
                ("ada", "alive"),
                ("bob", "alive"),
            ]
            assert ada.of_kind("died", "left") == bob.of_kind("died", "left") == []
        finally:
            transport.close()
