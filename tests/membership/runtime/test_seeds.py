"""Seeds that answer, that fail, and that others tell of first."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Sequence

import pytest

from quoracy.clock import SystemClock
from quoracy.errors import Unavailable
from quoracy.membership.machine import Address
from quoracy.membership.runtime.seeds import SeedJoin

_SEED = "127.0.0.1:7946"
_SOON_S = 10.0


class _Others:
    """Who is asked, and who is known to be a member."""

    def __init__(self) -> None:
        self.members: set[Address] = set()
        self.asked: asyncio.Queue[Sequence[Address]] = asyncio.Queue()
        self.joining = SeedJoin(
            [_SEED],
            ask=self.asked.put_nowait,
            is_member=lambda address: address in self.members,
            is_us=lambda address: False,
            family=socket.AF_INET,
            clock=SystemClock(),
            rng=random.Random(1),
        )


async def test_a_seed_that_others_told_of_before_it_answered_still_takes_us_in() -> None:
    others = _Others()
    round_ = asyncio.create_task(others.joining.first_round(_SOON_S))
    (seed,) = await asyncio.wait_for(others.asked.get(), _SOON_S)
    others.members.add(seed)
    others.joining.failed("127.0.0.1:1", "what is heard of others wakes it")
    await asyncio.sleep(0)
    assert not round_.done()
    others.joining.answered(seed)
    await asyncio.wait_for(round_, _SOON_S)
    assert others.joining.is_done


async def test_being_told_of_a_seed_that_failed_is_enough() -> None:
    others = _Others()
    round_ = asyncio.create_task(others.joining.first_round(_SOON_S))
    (seed,) = await asyncio.wait_for(others.asked.get(), _SOON_S)
    others.members.add(seed)
    others.joining.failed(seed, "it hung up")
    await asyncio.wait_for(round_, _SOON_S)


async def test_a_seed_that_failed_is_named_with_its_reason() -> None:
    others = _Others()
    round_ = asyncio.create_task(others.joining.first_round(_SOON_S))
    (seed,) = await asyncio.wait_for(others.asked.get(), _SOON_S)
    others.joining.failed(seed, "it hung up")
    with pytest.raises(Unavailable, match=f"{_SEED}: it hung up"):
        await asyncio.wait_for(round_, _SOON_S)
