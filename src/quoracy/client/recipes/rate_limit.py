"""RateLimit: a token bucket for many processes: a number per second, with bursts up to a limit.

    async with quoracy.connect("memory:") as q:
        limit = q.rate_limit("api", rate=100, burst=20)
        await limit.take(timeout=5)                # waits for a token
        if await limit.try_take(3): ...            # three tokens, or none, at once

What it promises
    * At most `rate * t + burst` tokens are granted in any t seconds, by all processes together whose
      wall clocks agree.  Clocks that differ by at most e seconds: `rate * (t + e) + burst`.
    * A clock that jumps lets at most one more burst through, and blocks no client: a taker whose clock
      is behind waits by the time it observed on its monotonic clock.
    * A waiter has reserved its tokens and sleeps: that takes one round trip to the store, and the order
      is that of the reservations.  Tasks that share an object come in the order of their calls.
    * No reservation lies more than `AHEAD_S_MAX` in the future; with more demand than that, takers ask
      again from time to time, in no fixed order.

What it does not promise
    * That all tokens are used.  A reservation whose process dies is lost, and one that is cancelled too
      unless it was the last; where clocks differ a little time is lost.
    * When a grant arrives: it counts from the moment of the call; an answer may be late.
"""

from __future__ import annotations

import asyncio
import math
import random

from quoracy.client.codec import codec_of
from quoracy.client.compare_and_swap import CompareAndSwap, range_at
from quoracy.client.context import Context, Deadline
from quoracy.client.in_flight import Outcome
from quoracy.client.token_bucket import Bucket, Grant, Level, ObservedState
from quoracy.errors import InvalidRequest, TimedOut
from quoracy.store.model import Compare, Put, Range, RangeResult, Txn

__all__ = ["AHEAD_S_MAX", "RateLimit"]

AHEAD_S_MAX = 10.0
_RETRY_S_MIN = 0.05

_level = codec_of(Level)


class RateLimit:
    """A limit by name; one object may be shared.  Keep it: it remembers the state it has seen.

    rate: tokens per second; all clients give the same.
    burst: the most tokens that may be taken at once, after a pause.
    """

    def __init__(self, context: Context, name: str, *, rate: float, burst: float = 1) -> None:
        if not 0 < rate < math.inf or not 1 <= burst < math.inf:
            raise InvalidRequest(
                f"the rate limit {name} has rate {rate} and burst {burst}. "
                "Give a rate above 0 in tokens a second, and a burst of 1 token or more."
            )
        self.name, self.rate, self.burst = name, rate, burst
        self._context, self._key = context, context.key(name)
        self._bucket = Bucket(rate, burst, ahead_s=AHEAD_S_MAX)
        self._known = _KnownState()
        self._mutex = asyncio.Lock()
        self._rng = random.Random()

    async def take(self, n: float = 1, *, timeout: float | None = None) -> None:
        """Wait for tokens, and take them.

        Raises `TimedOut` as soon as it is known that they do not come in time; nothing is taken then.
        Raises `Indeterminate` if the answer was lost: they may have been taken in vain.
        """
        self._check(n)
        context, what = self._context, f"{n:g} of the rate limit {self.name}"
        deadline = context.deadline(timeout)
        if timeout == 0:
            if not await self.try_take(n):
                raise TimedOut(what, timeout_s=0)
            return
        with context.wait_scope(what, deadline):
            async with self._mutex:
                until, taken = await self._reserve(n, deadline, what)
        try:
            await self._sleep_until(until)
        except BaseException:
            taken.give_back()
            raise

    async def try_take(self, n: float = 1) -> bool:
        """Take tokens if they are free now; False: they are not, and nothing was taken."""
        self._check(n)
        swap = CompareAndSwap(self._context, f"{n:g} of the rate limit {self.name}", None)
        is_fresh = False
        while True:
            now, grant = self._grant(n)
            if grant.wait_s <= 0:
                if await self._write(n, grant, now) is not None:
                    return True
                await swap.backoff()
            elif is_fresh:
                return False
            else:
                await self._look()
            is_fresh = True

    async def free(self) -> float:
        """The number of tokens that are free now; a negative number is reserved by waiters."""
        self._context.check()
        await self._look()
        clock = self._context.clock
        return self._bucket.free(self._known.state, now=clock.now(), wall=clock.wall())

    async def _reserve(self, n: float, deadline: Deadline, what: str) -> tuple[float, _Reservation]:
        """Take tokens, also of the near future; returns when they can be used, and the reservation."""
        clock, swap = self._context.clock, CompareAndSwap(self._context, what, None)
        is_fresh = has_waited = False
        while True:
            now, grant = self._grant(n)
            left_s = deadline.left
            is_late = left_s is not None and grant.wait_s > left_s
            if not is_late and grant.wait_s <= AHEAD_S_MAX:
                taken = await self._write(n, grant, now)
                if taken is not None:
                    return now + grant.wait_s, taken
                is_fresh = True
                await swap.backoff()
            elif not is_fresh:
                is_fresh = await self._look_again() if has_waited else await self._look()
            elif is_late:
                raise TimedOut(what, timeout_s=deadline.timeout)
            else:
                # Too far in the future to reserve: ask again later.
                pause_s = grant.wait_s - AHEAD_S_MAX * self._rng.uniform(0.5, 1.0)
                await clock.sleep(max(_RETRY_S_MIN, pause_s))
                is_fresh, has_waited = False, True

    async def _sleep_until(self, moment: float) -> None:
        clock = self._context.clock
        while (left_s := moment - clock.now()) > 0:
            await clock.sleep(left_s)

    def _grant(self, n: float) -> tuple[float, Grant]:
        """The grant of tokens in the known state, and the time at which it was computed."""
        now, wall = self._context.clock.now(), self._context.clock.wall()
        return now, self._bucket.take(n, self._known.state, now=now, wall=wall)

    async def _write(self, n: float, grant: Grant, now: float) -> _Reservation | None:
        """Write the grant that was computed at `now`; None: the state had changed, and is known now."""
        key, known, clock = self._key, self._known, self._context.clock
        data = _level.encode(grant.state)
        compare = Compare.mod_revision(key, "=", known.revision)
        outcome = self._context.writes.begin(Txn((compare,), (Put(key, data),), (Range(key),)))
        try:
            result = await outcome.settled()
        except asyncio.CancelledError:
            outcome.add_done_callback(lambda done: self._abandoned(done, n, grant))
            raise
        if not result.succeeded:
            found = self._read(range_at(result, 0))
            known.found(found, result.revision, asked=now, answered=clock.now())
            return None
        known.wrote(grant.state, result.revision, asked=now, answered=clock.now())
        return _Reservation(self._context, key, n, grant.state, result.revision)

    def _abandoned(self, outcome: Outcome, n: float, grant: Grant) -> None:
        if outcome.exception() is None and outcome.result().succeeded:
            _Reservation(
                self._context, self._key, n, grant.state, outcome.result().revision
            ).give_back()

    async def _look(self) -> bool:
        self._context.check()
        asked = self._context.clock.now()
        read = await self._context.store.range(self._key)
        answered = self._context.clock.now()
        self._known.found(self._read(read), read.revision, asked=asked, answered=answered)
        return True

    async def _look_again(self) -> bool:
        """The same for a waiter: a store that does not answer is asked again."""
        return await self._context.retry(self._look, f"the rate limit {self.name}")

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


class _KnownState:
    """The newest state this connection knows, and since when it knows it.

    revision: that of the key; 0: it was missing.
    """

    def __init__(self) -> None:
        self.revision = 0
        self.state: ObservedState | None = None
        self._as_of = 0  # the store's revision in the newest answer
        self._current_at = -math.inf  # the last time at which it is known to have been the newest

    def found(
        self, now: tuple[int, Level | None], as_of: int, *, asked: float, answered: float
    ) -> None:
        """The store held this at some moment between the request and the answer."""
        if as_of < self._as_of:
            return  # another task has a newer answer already
        self._as_of = as_of
        revision, state = now
        if revision != self.revision or self.state is None:
            before = self._current_at
            self.revision = revision
            self.state = None if state is None else ObservedState(state, answered, before)
        self._current_at = max(self._current_at, asked)

    def wrote(self, state: Level, revision: int, *, asked: float, answered: float) -> None:
        """The store accepted this at some moment between the request and the answer."""
        if revision < self._as_of:
            return
        self._as_of = self.revision = revision
        self.state = ObservedState(state, answered, asked)
        self._current_at = max(self._current_at, asked)


class _Reservation:
    """Tokens that were taken, which are given back if they are not used."""

    def __init__(self, context: Context, key: bytes, n: float, state: Level, revision: int) -> None:
        self._context, self._key, self._n, self._state = context, key, n, state
        self._revision = revision

    def give_back(self) -> None:
        """In the background, and only if there is no later reservation, which depends on this one."""
        left = Level(self._state.at, max(0.0, self._state.level - self._n))
        same = Compare.mod_revision(self._key, "=", self._revision)
        self._context.writes.begin(Txn((same,), (Put(self._key, _level.encode(left)),)))
