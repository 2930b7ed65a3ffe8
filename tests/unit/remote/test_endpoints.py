"""Which server is tried when: in turn, one attempt at a time, with pauses that grow and end."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from quoracy.clock import ManualClock
from quoracy.errors import StoreClosed
from quoracy.remote.dial import Channel
from quoracy.remote.endpoints import PAUSE_FIRST_S, PAUSE_MAX_S, Endpoints
from quoracy.remote.errors import NotReached
from quoracy.remote.urls import Address
from tests.support.asking import turns

_ONE, _TWO, _THREE = Address("one"), Address("two"), Address("three")


class _Line:
    """What `Endpoints` looks at in a connection."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.usable, self.served, self.gone = True, True, False
        self.retired = self.closed = False

    def retire(self) -> None:
        self.retired, self.usable = True, False

    def lose(self, *, served: bool = True) -> None:
        self.usable, self.gone, self.served = False, True, served

    async def close(self) -> None:
        self.closed = True


class _Network:
    """Servers that are up or down."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.down: set[Address] = set()
        self.tried: list[tuple[float, Address]] = []
        self.slow: asyncio.Event | None = None

    async def dial(self, address: Address) -> Channel:
        self.tried.append((self.clock.now(), address))
        if self.slow is not None:
            await self.slow.wait()
        if address in self.down:
            raise NotReached(f"{address}: Connection refused")
        return cast(Channel, _Line(address))

    def endpoints(self, *addresses: Address, seed: int = 0) -> Endpoints:
        return Endpoints(addresses, dial=self.dial, rng=random.Random(seed), clock=self.clock)


def _line(channel: Channel) -> _Line:
    return cast(_Line, channel)


@pytest.fixture
def network(clock: ManualClock) -> _Network:
    return _Network(clock)


async def _within_time(
    clock: ManualClock, ask: Callable[[], Awaitable[Channel]], step_s: float = 0.01
) -> Channel:
    asking = asyncio.ensure_future(ask())
    while not asking.done():
        await clock.advance(step_s)
    return await asking


async def test_nothing_is_connected_before_it_is_needed(network: _Network) -> None:
    endpoints = network.endpoints(_ONE)
    await turns()
    assert network.tried == []
    assert endpoints.current is None


async def test_many_callers_share_one_attempt_and_one_connection(network: _Network) -> None:
    endpoints = network.endpoints(_ONE, _TWO)
    channels = await asyncio.gather(*(endpoints.channel() for _ in range(10)))
    assert len(set(map(id, channels))) == 1
    assert [address for _, address in network.tried] == [_ONE]


async def test_the_next_server_is_tried_when_one_is_down(network: _Network) -> None:
    network.down = {_ONE}
    endpoints = network.endpoints(_ONE, _TWO)
    assert _line(await endpoints.channel()).address == _TWO


async def test_the_error_names_every_server_and_why(network: _Network) -> None:
    network.down = {_ONE, _TWO}
    with pytest.raises(NotReached, match=r"one:2379: Connection refused; two:2379: Connection ref"):
        await network.endpoints(_ONE, _TWO).channel()


async def test_a_lost_connection_is_replaced_at_once_at_the_next_server(network: _Network) -> None:
    endpoints = network.endpoints(_ONE, _TWO)
    _line(await endpoints.channel()).lose()
    assert endpoints.current is None
    assert _line(await endpoints.channel()).address == _TWO
    assert {now for now, _ in network.tried} == {0.0}


async def test_pauses_double_up_to_a_bound_and_start_small_again(
    network: _Network, clock: ManualClock
) -> None:
    network.down = {_ONE}
    endpoints = network.endpoints(_ONE)
    for _ in range(14):
        with pytest.raises(NotReached):
            await _within_time(clock, endpoints.channel)
    times = [now for now, _ in network.tried]
    pauses = [after - before for before, after in itertools.pairwise(times)]
    for i, pause_s in enumerate(pauses):
        full_s = min(PAUSE_FIRST_S * 2**i, PAUSE_MAX_S)
        assert full_s / 2 <= pause_s <= full_s + 0.02
    network.down = set()
    _line(await _within_time(clock, endpoints.channel)).lose(served=True)
    network.tried.clear()
    before = clock.now()
    await _within_time(clock, endpoints.channel)
    assert network.tried[0][0] - before < PAUSE_FIRST_S


async def test_pauses_have_chance_in_them(clock: ManualClock) -> None:
    seen = set()
    for seed in range(5):
        network = _Network(ManualClock())
        network.down = {_ONE}
        endpoints = network.endpoints(_ONE, seed=seed)
        for _ in range(2):
            with pytest.raises(NotReached):
                await _within_time(network.clock, endpoints.channel, 0.0001)
        seen.add(network.tried[1][0])
    assert len(seen) == 5


async def test_a_server_that_hangs_up_without_an_answer_is_not_hammered(
    network: _Network, clock: ManualClock
) -> None:
    endpoints = network.endpoints(_ONE)
    for _ in range(8):
        _line(await _within_time(clock, endpoints.channel)).lose(served=False)
    assert network.tried[-1][0] > PAUSE_FIRST_S * 2**5


async def test_who_gives_up_waiting_does_not_disturb_the_others(network: _Network) -> None:
    network.slow = asyncio.Event()
    endpoints = network.endpoints(_ONE)
    impatient = asyncio.ensure_future(endpoints.channel())
    patient = asyncio.ensure_future(endpoints.channel())
    await turns()
    impatient.cancel()
    await turns()
    assert impatient.cancelled()
    network.slow.set()
    assert (await patient).usable
    assert len(network.tried) == 1


async def test_waiting_has_a_bound(network: _Network) -> None:
    network.slow = asyncio.Event()
    endpoints = network.endpoints(_ONE)
    with pytest.raises(NotReached, match="one:2379"):
        await endpoints.channel(within_s=0.01)
    await endpoints.close()


async def test_another_server_is_preferred_without_ending_what_runs(network: _Network) -> None:
    endpoints = network.endpoints(_ONE, _TWO)
    first = await endpoints.channel()
    endpoints.prefer_another(first)
    assert _line(first).retired
    assert not _line(first).closed
    assert _line(await endpoints.channel()).address == _TWO
    await endpoints.close()
    assert _line(first).closed


async def test_doubted_server_is_kept_until_another_is_reached(network: _Network) -> None:
    endpoints = network.endpoints(_ONE, _TWO, _THREE)
    first = await endpoints.channel()
    network.down = {_TWO}
    network.slow = asyncio.Event()
    endpoints.try_others()
    endpoints.try_others()  # once is enough
    await turns()
    assert endpoints.current is first
    network.slow.set()
    await turns()
    assert _line(await endpoints.channel()).address == _THREE
    assert _line(first).retired
    assert [address for _, address in network.tried] == [_ONE, _TWO, _THREE]
    await endpoints.close()


async def test_doubted_server_is_kept_if_no_other_can_be_reached(network: _Network) -> None:
    endpoints = network.endpoints(_ONE, _TWO)
    first = await endpoints.channel()
    network.down = {_TWO}
    endpoints.try_others()
    await turns()
    assert endpoints.current is first
    await endpoints.close()


async def test_server_of_choice_is_gone_on_at_once_it_is_reached(network: _Network) -> None:
    endpoints = network.endpoints(_ONE, _TWO, _THREE)
    await endpoints.channel()
    endpoints.prefer(_THREE)
    await turns()
    assert _line(await endpoints.channel()).address == _THREE
    endpoints.prefer(Address("somebody else's"))
    endpoints.prefer(_THREE)
    await turns()
    assert [address for _, address in network.tried] == [_ONE, _THREE]
    await endpoints.close()


async def test_connection_that_is_found_too_late_is_closed(network: _Network) -> None:
    endpoints = network.endpoints(_ONE, _TWO)
    first = await endpoints.channel()
    network.slow = asyncio.Event()
    endpoints.try_others()
    await turns()
    _line(first).lose()
    waiting = asyncio.create_task(endpoints.channel())
    await turns()
    network.slow.set()
    current = await waiting
    await turns()
    assert endpoints.current is current
    await endpoints.close()


async def test_the_only_server_is_kept(network: _Network) -> None:
    endpoints = network.endpoints(_ONE)
    channel = await endpoints.channel()
    endpoints.prefer_another(channel)
    assert endpoints.current is channel


async def test_closing_ends_an_attempt_and_refuses_new_ones(network: _Network) -> None:
    network.slow = asyncio.Event()
    endpoints = network.endpoints(_ONE)
    waiting = asyncio.ensure_future(endpoints.channel())
    await turns()
    await endpoints.close()
    with pytest.raises(StoreClosed):
        await waiting
    with pytest.raises(StoreClosed):
        await endpoints.channel()
