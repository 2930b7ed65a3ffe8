"""A machine that notes what happens to it and does what it is told."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from quoracy.errors import ProtocolError
from quoracy.membership.machine import Address, Effect, Tell

__all__ = ["REFUSED", "Recorder"]

REFUSED = b"nonsense"


class Recorder:
    """Tells everything; refuses `REFUSED`; `answer` may add effects to what arrives on a stream."""

    def __init__(self) -> None:
        self.next_due = math.inf
        self.heard: asyncio.Queue[tuple[object, ...]] = asyncio.Queue()
        self.log: list[tuple[object, ...]] = []
        self.ticks: list[float] = []
        self.on_tick: Callable[[float], list[Effect]] = lambda now: []
        self.answer: Callable[[bytes, Address], list[Effect]] = lambda data, sender: []

    def told(self, event: object) -> None:
        assert isinstance(event, tuple)
        self.log.append(event)
        self.heard.put_nowait(event)

    async def next(self) -> tuple[object, ...]:
        async with asyncio.timeout(20):
            return await self.heard.get()

    def start(self, now: float) -> list[Effect]:
        return []

    def tick(self, now: float) -> list[Effect]:
        self.ticks.append(now)
        self.next_due = math.inf
        return self.on_tick(now)

    def receive(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        if data == REFUSED:
            raise ProtocolError("nonsense")
        return [Tell(("packet", data, sender))]

    def receive_stream(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        if data == REFUSED:
            raise ProtocolError("nonsense")
        return [Tell(("stream", data, sender)), *self.answer(data, sender)]

    def unreachable(self, to: Address, now: float) -> list[Effect]:
        return [Tell(("unreachable", to))]
