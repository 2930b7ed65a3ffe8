"""The servers of a store: which one is used, and when to try the next.

A connection is made when it is first needed.  When it is lost, or no server answers, the next attempt
is made at the next server; after a round of all of them failed, only after a pause that doubles from
round to round, with some chance in it so that many clients do not come back at the same moment.

Invariants
    * One attempt at a time, however many callers wait; each attempt has a time limit.
    * A caller that gives up waiting does not disturb the attempt others wait for.
    * A server that takes connections and answers nothing counts as one that fails.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence

from quoracy.clock import Clock
from quoracy.errors import StoreClosed
from quoracy.remote.dial import Channel
from quoracy.remote.errors import NotReached
from quoracy.remote.urls import Address

__all__ = ["PAUSE_FIRST_S", "PAUSE_MAX_S", "Dial", "Endpoints"]

Dial = Callable[[Address], Awaitable[Channel]]

logger = logging.getLogger(__name__)

PAUSE_FIRST_S = 0.05
PAUSE_MAX_S = 5.0
_DOUBLINGS_MAX = 16


class Endpoints:
    """The servers of one store."""

    def __init__(
        self, addresses: Sequence[Address], *, dial: Dial, rng: random.Random, clock: Clock
    ) -> None:
        assert addresses
        self.addresses = tuple(addresses)
        self.ever_connected = False
        self._dial, self._rng, self._clock = dial, rng, clock
        self._turn = 0
        self.latest: Channel | None = None  # the connection, usable or not
        self._retired: list[Channel] = []
        self._round: asyncio.Task[Channel] | None = None
        self._changing: asyncio.Task[None] | None = None
        self._last_failure: str | None = None
        self._rounds_failed = 0
        self._not_before = clock.now()
        self._closed = False

    @property
    def current(self) -> Channel | None:
        """The connection, if there is a usable one."""
        channel = self.latest
        return channel if channel is not None and channel.usable else None

    async def channel(self, *, within_s: float | None = None) -> Channel:
        """The connection, made if there is none.

        Raises `NotReached` when a round of attempts at all servers failed, or when the time is over.
        """
        channel = self.current
        if channel is not None:
            return channel
        if self._closed:
            raise StoreClosed
        if self._round is None:
            self._note_loss()
            self._round = asyncio.create_task(self._connect(), name="quoracy-connect")
            self._round.add_done_callback(self._round_over)
        attempt = self._round
        done, _ = await asyncio.wait([attempt], timeout=within_s)
        if not done:
            raise NotReached(self._last_failure or f"no server answered in time: {self}")
        if attempt.cancelled():
            raise StoreClosed
        return attempt.result()

    def prefer_another(self, channel: Channel) -> None:
        """This server answers, but cannot serve now: go on at the next, if there is one."""
        if channel is self.latest and len(self.addresses) > 1:
            self._retire(channel)
            self._turn += 1

    def prefer(self, address: Address) -> None:
        """Go on at this server, if it is one of ours and can be reached; until then as before."""
        if address in self.addresses:
            self._change_to((address,))

    def try_others(self) -> None:
        """Go on at another server, if one can be reached; until then as before.

        For callers that doubt the current server, but cannot be sure that another is better.
        """
        channel = self.current
        if channel is not None:
            here = self.addresses.index(channel.address)
            self._change_to((*self.addresses[here + 1 :], *self.addresses[:here]))

    async def close(self) -> None:
        self._closed = True
        for task in (self._round, self._changing):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        channels = [*self._retired, *([self.latest] if self.latest is not None else [])]
        self._retired, self.latest = [], None
        for channel in channels:
            await channel.close()

    def __str__(self) -> str:
        return ", ".join(str(address) for address in self.addresses)

    def _change_to(self, addresses: Sequence[Address]) -> None:
        channel = self.current
        if (
            channel is None
            or channel.address in addresses
            or self._changing is not None
            or self._closed
        ):
            return
        self._changing = asyncio.create_task(self._change(channel, addresses), name="quoracy-change")
        self._changing.add_done_callback(self._change_over)

    async def _change(self, old: Channel, addresses: Sequence[Address]) -> None:
        for address in addresses:
            try:
                new = await self._dial(address)
            except NotReached as error:
                logger.debug("%s is not changed to: %s", address, error)
                continue
            if self.latest is old:
                self._retire(old)
                self.latest, self._turn = new, self.addresses.index(address)
            else:  # it was lost meanwhile, and another found
                await new.close()
            return

    def _change_over(self, task: asyncio.Task[None]) -> None:
        self._changing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("changing to another server failed", exc_info=error)

    def _note_loss(self) -> None:
        """What became of the last connection decides how soon the next is tried."""
        lost, self.latest = self.latest, None
        if lost is None:
            return
        self._retire(lost)
        self._turn += 1
        if lost.served:
            self._rounds_failed = 0
        else:
            self._pause_longer()

    def _retire(self, channel: Channel) -> None:
        # Calls that run on it go on; it is closed when they are over, at the latest with the store.
        self._retired = [old for old in self._retired if not old.gone]
        if not channel.gone:
            channel.retire()
            self._retired.append(channel)
        if channel is self.latest:
            self.latest = None

    async def _connect(self) -> Channel:
        pause_s = self._not_before - self._clock.now()
        if pause_s > 0:
            await self._clock.sleep(pause_s)
        causes = []
        for _ in self.addresses:
            address = self.addresses[self._turn % len(self.addresses)]
            try:
                return await self._dial(address)
            except NotReached as error:
                causes.append(str(error))
                self._turn += 1
        self._pause_longer()
        said = f"no server could be reached: {'; '.join(causes)}. Is one running there?"
        self._last_failure = said
        raise NotReached(said)

    def _pause_longer(self) -> None:
        base_s = PAUSE_FIRST_S * 2 ** min(self._rounds_failed, _DOUBLINGS_MAX)
        self._rounds_failed += 1
        self._not_before = self._clock.now() + min(base_s, PAUSE_MAX_S) * self._rng.uniform(0.5, 1.0)

    def _round_over(self, attempt: asyncio.Task[Channel]) -> None:
        self._round = None
        if attempt.cancelled():
            return
        if attempt.exception() is None:  # this also marks an error as seen: callers may have left
            self.latest = attempt.result()
            self.ever_connected = True
            self._last_failure = None
