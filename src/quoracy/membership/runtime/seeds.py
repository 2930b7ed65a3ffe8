"""Joining by seeds: every seed is asked, and those that do not answer are asked again.

A seed is any member that is likely to be running; one is enough, and none is needed once we have
joined.  A name may have several addresses, all of which are asked.  A seed that is ourselves is left
out, so that every member can be given the same list.

Invariants
    * `first_round` ends: when a seed answered, when all have failed, or at its timeout.
    * Names are looked up anew in every round: a seed may come back elsewhere.
    * The delay between rounds of `go_on` doubles up to `RETRY_S_MAX` and is random, so that a seed that
      comes back is not asked by all members at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
from collections.abc import Callable, Sequence

import msgspec

from quoracy.clock import Clock
from quoracy.errors import Unavailable
from quoracy.membership.machine import Address
from quoracy.membership.runtime.addresses import resolve

__all__ = ["RETRY_S_MAX", "RETRY_S_MIN", "SeedJoin"]

RETRY_S_MIN = 1.0
RETRY_S_MAX = 30.0
_ANSWER_S_MAX = 5.0

_log = logging.getLogger(__name__)


class _Seed(msgspec.Struct):
    """A seed as it was written, and the result of asking it."""

    text: str
    addresses: tuple[Address, ...] = ()
    failures: dict[Address, str] = {}
    problem: str | None = None  # why there are no addresses
    is_answered: bool = False
    is_us: bool = False

    @property
    def is_settled(self) -> bool:
        return self.is_answered or self.is_us

    @property
    def has_failed(self) -> bool:
        return self.problem is not None or all(each in self.failures for each in self.addresses)

    @property
    def why(self) -> str:
        reasons = dict.fromkeys(self.failures.get(each, "no answer") for each in self.addresses)
        return f"{self.text}: {self.problem or ', '.join(reasons)}"


class SeedJoin:
    """Asks seeds to let us join.

    ask: sends the question to some addresses.  is_member: whether a present member has an address.
    is_us: whether an address is our own.  family: of our socket, which reaches no other.
    """

    def __init__(
        self,
        seeds: Sequence[str],
        *,
        ask: Callable[[Sequence[Address]], None],
        is_member: Callable[[Address], bool],
        is_us: Callable[[Address], bool],
        family: socket.AddressFamily,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._seeds = [_Seed(text) for text in dict.fromkeys(seeds)]
        self._ask, self._is_member, self._is_us = ask, is_member, is_us
        self._family = family
        self._clock, self._rng = clock, rng
        self._asked: list[_Seed] = []
        self._is_in = False
        self._changed = asyncio.Event()

    @property
    def is_done(self) -> bool:
        """Every seed answered, is known to be a member, or is ourselves."""
        return not self._unsettled()

    # -- what is heard meanwhile ---------------------------------------------------------------------

    def answered(self, address: Address) -> None:
        """A member at this address answered; it may have been asked at another of its addresses."""
        self._is_in = True
        for seed in self._seeds:
            if address in seed.addresses or (len(self._asked) == 1 and seed is self._asked[0]):
                seed.is_answered = True
        self._changed.set()

    def failed(self, address: Address, reason: str) -> None:
        for seed in self._seeds:
            if address in seed.addresses:
                seed.failures[address] = reason
        self._changed.set()

    # -- rounds --------------------------------------------------------------------------------------

    async def first_round(self, timeout_s: float) -> None:
        """Returns when a seed answered, or all are known to be members, or there are none.

        Raises `Unavailable`, which says for each seed why not.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._ask_them(self._unsettled())
                # A seed that became known by gossip meanwhile is settled, but its answer is still
                # needed: it may not know us.
                while not self._is_in and not all(
                    seed.has_failed or seed.is_us for seed in self._seeds
                ):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass  # some have not answered; the error below names them
        if not (self._is_in or self.is_done):
            raise Unavailable(
                f"no seed took us in ({self.why_not}). "
                "Is a member running there, with the same key and the same label?"
            )

    @property
    def is_hopeless(self) -> bool:
        """No seed has an address, so the list is wrong, and waiting does not help."""
        return all(seed.problem is not None for seed in self._seeds)

    @property
    def why_not(self) -> str:
        """The reason for each seed that did not answer."""
        return "; ".join(seed.why for seed in self._unsettled())

    async def go_on(self) -> None:
        """Ask those again that did not answer, one after the other, until all have.

        One at a time, because a member that is asked at one address may answer from another.
        """
        delay_s = RETRY_S_MIN
        while unsettled := self._unsettled():
            for seed in unsettled:
                await self._clock.sleep(delay_s * self._rng.uniform(0.5, 1.5))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_ANSWER_S_MAX):
                        await self._ask_them([seed])
                        while not (seed.is_settled or seed.has_failed):
                            self._changed.clear()
                            await self._changed.wait()
            delay_s = min(2 * delay_s, RETRY_S_MAX)

    async def _ask_them(self, seeds: list[_Seed]) -> None:
        self._asked = seeds
        await asyncio.gather(*(self._find(seed) for seed in seeds))
        addresses = dict.fromkeys(each for seed in seeds for each in seed.addresses)
        if addresses:
            self._ask(list(addresses))

    async def _find(self, seed: _Seed) -> None:
        seed.failures = {}
        try:
            found = await resolve(seed.text, family=self._family)
        except Unavailable as error:
            seed.addresses, seed.problem = (), str(error).rstrip(".")
            _log.info("seed %s: %s", seed.text, error)
            return
        seed.addresses = tuple(each for each in found if not self._is_us(each))
        seed.problem = None
        seed.is_us = not seed.addresses

    def _unsettled(self) -> list[_Seed]:
        for seed in self._seeds:
            if not seed.is_settled and any(self._is_member(each) for each in seed.addresses):
                seed.is_answered = True
        return [seed for seed in self._seeds if not seed.is_settled]
