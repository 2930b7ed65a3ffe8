"""RateLimit: a token bucket for many processes: so many in a second, with bursts up to a number.

    async with quoracy.connect("memory:") as q:
        limit = q.rate_limit("api", rate=100, burst=20)
        await limit.take(timeout=5)                # waits its turn
        if await limit.try_take(3): ...            # now or not at all

What it promises
    * No more than `rate * t + burst` tokens are granted for any t seconds, by all processes together
      whose wall clocks agree.  Clocks that differ by at most e seconds: `rate * (t + e) + burst`.
    * A clock that jumps lets one more burst through at most, and locks nobody out: the wait of a taker
      whose clock is behind is what it witnesses on its monotonic clock.
    * Whoever waits has reserved its tokens and sleeps: one round trip to the store, and the order is
      that of the reservations.  Tasks that share an object come in the order in which they called.
    * No reservation lies more than `AHEAD_S_MAX` in the future; with more demand than that, takers ask
      again from time to time, in no fixed order.

What it does not promise
    * That all tokens are used.  A reservation whose process dies is lost, one that is cancelled too
      unless it was the last; so is a little time where clocks differ.
    * When a grant arrives: it counts from the moment it is asked for; an answer may be late.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random

from quoracy.client.codec import codec_of
from quoracy.client.compare_and_swap import Race
from quoracy.client.context import Ground, Patience
from quoracy.client.in_flight import Outcome
from quoracy.client.key_follower import ASK_AGAIN_S
from quoracy.client.token_bucket import Bucket, Grant, Level, Witness
from quoracy.errors import Indeterminate, InvalidRequest, StoreClosed, TimedOut, Unavailable
from quoracy.store.model import Compare, Put, Range, RangeResult, Txn

__all__ = ["AHEAD_S_MAX", "RateLimit"]

_log = logging.getLogger(__name__)

AHEAD_S_MAX = 10.0
_ASK_AGAIN_S_MIN = 0.05

_level = codec_of(Level)


class RateLimit:
    """A limit by name; one object may be shared.  Keep it: it knows what it has seen.

    rate: how many tokens a second; everyone gives the same.
    burst: how many may be taken at once after a while of quiet.
    """

    def __init__(self, ground: Ground, name: str, *, rate: float, burst: float = 1) -> None:
        if not 0 < rate < math.inf or not 1 <= burst < math.inf:
            raise InvalidRequest(
                f"the rate limit {name} has rate {rate} and burst {burst}. "
                "Give a rate above 0 in tokens a second, and a burst of 1 token or more."
            )
        self.name, self.rate, self.burst = name, rate, burst
        self._ground, self._key = ground, ground.key(name)
        self._bucket = Bucket(rate, burst, ahead_s=AHEAD_S_MAX)
        self._sight = _Sight()
        self._turn = asyncio.Lock()
        self._rng = random.Random()

    async def take(self, n: float = 1, *, timeout: float | None = None) -> None:
        """Wait for tokens, and take them.

        Raises `TimedOut` as soon as it is known that they cannot be had in time; nothing is taken then.
        Raises `Indeterminate` if the answer was lost: they may have been taken for nothing.
        """
        self._check(n)
        ground, what = self._ground, f"{n:g} of the rate limit {self.name}"
        patience = Patience(ground.clock, timeout)
        if timeout == 0:
            if not await self.try_take(n):
                raise TimedOut(what, timeout_s=0)
            return
        with ground.waiting(what, patience):
            async with self._turn:
                until, taken = await self._reserve(n, patience, what)
        try:
            await self._sleep_until(until)
        except BaseException:
            taken.give_back()
            raise

    async def try_take(self, n: float = 1) -> bool:
        """Take tokens if they can be had at once; False: they cannot, and nothing was taken."""
        self._check(n)
        race = Race(self._ground, f"{n:g} of the rate limit {self.name}", None)
        is_fresh = False
        while True:
            now, grant = self._grant(n)
            if grant.wait_s <= 0:
                if await self._write(n, grant, now) is not None:
                    return True
                await race.lost()
            elif is_fresh:
                return False
            else:
                await self._look()
            is_fresh = True

    async def free(self) -> float:
        """How many tokens can be had at once; below 0, so many are reserved by those who wait."""
        self._ground.check()
        await self._look()
        clock = self._ground.clock
        return self._bucket.free(self._sight.witness, now=clock.now(), wall=clock.wall())

    async def _reserve(self, n: float, patience: Patience, what: str) -> tuple[float, _Taken]:
        """Take tokens, if need be of the near future; when they can be used."""
        clock, race = self._ground.clock, Race(self._ground, what, None)
        is_fresh = has_waited = False
        while True:
            now, grant = self._grant(n)
            left_s = patience.left
            is_late = left_s is not None and grant.wait_s > left_s
            if not is_late and grant.wait_s <= AHEAD_S_MAX:
                taken = await self._write(n, grant, now)
                if taken is not None:
                    return now + grant.wait_s, taken
                is_fresh = True
                await race.lost()
            elif not is_fresh:
                is_fresh = await self._look_again() if has_waited else await self._look()
            elif is_late:
                raise TimedOut(what, timeout_s=patience.timeout)
            else:
                # Too far away to reserve: ask again when it is not.
                pause_s = grant.wait_s - AHEAD_S_MAX * self._rng.uniform(0.5, 1.0)
                await clock.sleep(max(_ASK_AGAIN_S_MIN, pause_s))
                is_fresh, has_waited = False, True

    async def _sleep_until(self, moment: float) -> None:
        clock = self._ground.clock
        while (left_s := moment - clock.now()) > 0:
            await clock.sleep(left_s)

    def _grant(self, n: float) -> tuple[float, Grant]:
        """What taking tokens comes to, as far as is known; and when that was."""
        now, wall = self._ground.clock.now(), self._ground.clock.wall()
        return now, self._bucket.take(n, self._sight.witness, now=now, wall=wall)

    async def _write(self, n: float, grant: Grant, now: float) -> _Taken | None:
        """Carry out what was found at `now`; None: the state was another by then, and is known now."""
        key, sight, clock = self._key, self._sight, self._ground.clock
        data = _level.encode(grant.state)
        compare = Compare.mod_revision(key, "=", sight.revision)
        outcome = self._ground.writes.begin(Txn((compare,), (Put(key, data),), (Range(key),)))
        try:
            result = await outcome.settled()
        except asyncio.CancelledError:
            outcome.add_done_callback(lambda done: self._abandoned(done, n, grant))
            raise
        if not result.succeeded:
            read = result.results[0]
            assert isinstance(read, RangeResult)
            sight.found(self._read(read), result.revision, asked=now, answered=clock.now())
            return None
        sight.wrote(grant.state, result.revision, asked=now, answered=clock.now())
        return _Taken(self._ground, key, n, grant.state, result.revision)

    def _abandoned(self, outcome: Outcome, n: float, grant: Grant) -> None:
        if outcome.exception() is None and outcome.result().succeeded:
            _Taken(self._ground, self._key, n, grant.state, outcome.result().revision).give_back()

    async def _look(self) -> bool:
        self._ground.check()
        asked = self._ground.clock.now()
        read = await self._ground.store.range(self._key)
        answered = self._ground.clock.now()
        self._sight.found(self._read(read), read.revision, asked=asked, answered=answered)
        return True

    async def _look_again(self) -> bool:
        """The same for somebody who waits: a store that cannot be asked is asked again."""
        try:
            return await self._look()
        except StoreClosed:
            raise
        except (Unavailable, Indeterminate) as error:
            _log.info("waiting for the rate limit %s goes on: %s", self.name, error)
            await self._ground.clock.sleep(ASK_AGAIN_S)
            return False

    def _read(self, read: RangeResult) -> tuple[int, Level | None]:
        if not read.kvs:
            return 0, None
        return read.kvs[0].mod_revision, _level.decode(self._key, read.kvs[0].value)

    def _check(self, n: float) -> None:
        if not 0 < n <= self.burst:
            raise InvalidRequest(
                f"{n} tokens of the rate limit {self.name}: it gives more than 0 and up to its burst, "
                f"{self.burst:g}, at once."
            )

    def __repr__(self) -> str:
        return f"<RateLimit {self.name} {self.rate:g}/s>"


class _Sight:
    """The newest state this connection knows, and since when it knows it.

    revision: of the key; 0: it was missing.
    """

    def __init__(self) -> None:
        self.revision = 0
        self.witness: Witness | None = None
        self._as_of = 0  # the store's revision that the newest answer spoke of
        self._current_at = -math.inf  # the last moment at which it is known to have been the newest

    def found(
        self, now: tuple[int, Level | None], as_of: int, *, asked: float, answered: float
    ) -> None:
        """This is what the store had at some moment between the question and the answer."""
        if as_of < self._as_of:
            return  # another task has newer news already
        self._as_of = as_of
        revision, state = now
        if revision != self.revision or self.witness is None:
            before = self._current_at
            self.revision = revision
            self.witness = None if state is None else Witness(state, answered, before)
        self._current_at = max(self._current_at, asked)

    def wrote(self, state: Level, revision: int, *, asked: float, answered: float) -> None:
        """The store took this, at some moment between the question and the answer."""
        if revision < self._as_of:
            return
        self._as_of = self.revision = revision
        self.witness = Witness(state, answered, asked)
        self._current_at = max(self._current_at, asked)


class _Taken:
    """Tokens that were taken: what to give back if they are not used."""

    def __init__(self, ground: Ground, key: bytes, n: float, state: Level, revision: int) -> None:
        self._ground, self._key, self._n, self._state = ground, key, n, state
        self._revision = revision

    def give_back(self) -> None:
        """In the background, and only if nobody reserved after us: their turn counts on ours."""
        left = Level(self._state.at, max(0.0, self._state.level - self._n))
        same = Compare.mod_revision(self._key, "=", self._revision)
        self._ground.writes.begin(Txn((same,), (Put(self._key, _level.encode(left)),)))
