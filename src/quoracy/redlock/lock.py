"""Redlock: one lock on several independent Redis servers, held by the one that has a majority of them.

Each attempt sets one key to a value of its own on all servers at once.  It succeeds if a majority said
yes and some of the time that they granted is left (quorum.py); otherwise it is undone on all servers,
also on those that did not answer, and tried again after a random pause.

Invariants
    * An attempt is never cut short: once begun it runs to its answers, and is undone if it failed or if
      the caller is gone.  A server that answered has no key left of it; one that did not has none after
      the time to live.
    * A `Lock` has no state of an acquisition, which is in the `Held` it returns, so it may be shared.
    * Leaving the `Redlock` releases what is held and waits for all work that it began.

It gives no fencing token: docs/guides/redlock.md says what that means.
"""

from __future__ import annotations

import asyncio
import math
import random
import secrets
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from quoracy.blocks import Enterable, Holding
from quoracy.clock import BootClock, Clock
from quoracy.errors import InvalidRequest, TimedOut, Unavailable
from quoracy.redlock.context import Context
from quoracy.redlock.held import Held
from quoracy.redlock.quorum import DRIFT_FACTOR, Answer, Terms, Validity, Verdict, explain
from quoracy.redlock.servers import Servers

__all__ = ["Lock", "Redlock"]

_TTL_PER_SERVER_TIMEOUT = 3


class Redlock:
    """Locks on one or more independent Redis servers, three or five as a rule.

    In coroutines (with `quoracy.redlock.sync`, without `async` and `await`):

        async with Redlock(servers) as redlock:  # ["redis://10.0.0.1:6379", ...]
            async with redlock.lock("reports/nightly", ttl=10).hold(timeout=5) as held:
                held.check()
                await write_report()

    servers: a URL for each: redis://, rediss:// or unix://, with what the redis package takes in them.
    namespace: what is put before every name, with a slash.
    server_timeout: how many seconds to wait for one server; a third of any time to live at most, and
        better much less: the time that was granted runs meanwhile.
    retry_delay: the pause between two attempts, in seconds: half to one and a half times this, at
        random, so that contenders fall out of step.
    drift_factor: by how much clocks may run apart, as a share of the time to live.
    connections_max: how many connections to each server, and so how many requests at once.
    clock, rng: where time and random pauses come from.
    """

    def __init__(
        self,
        servers: Sequence[str],
        *,
        namespace: str | None = None,
        server_timeout: float = 0.1,
        retry_delay: float = 0.1,
        drift_factor: float = DRIFT_FACTOR,
        connections_max: int = 50,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if server_timeout <= 0 or retry_delay <= 0 or not 0 <= drift_factor < 1 or connections_max < 1:
            raise InvalidRequest(
                f"server_timeout ({server_timeout}), retry_delay ({retry_delay}) and connections_max "
                f"({connections_max}) must be above 0, and drift_factor ({drift_factor}) from 0 to 1."
            )
        self._context = Context(
            servers=Servers(servers, timeout_s=server_timeout, connections_max=connections_max),
            clock=clock or BootClock(),
            rng=rng or random.Random(),
            namespace=namespace,
            server_timeout_s=server_timeout,
            retry_delay_s=retry_delay,
            drift_factor=drift_factor,
        )

    def lock(
        self,
        name: str,
        *,
        ttl: float = 10.0,
        renew: bool = True,
        hold_max: float | None = None,
        cancel_on_loss: bool = True,
    ) -> Lock:
        """A lock with this name; nothing is sent before it is acquired.

        ttl: for how many seconds servers grant it.  It is also how long others wait if the holder dies.
        renew: extend it automatically, every third of the time to live, for as long as it is held.
        hold_max: after how many seconds it is lost however often it is extended; None is never.
        cancel_on_loss: cancel the body of the block when it is lost; in coroutines only.  Otherwise
            only `held.lost` is set; the block still raises the loss at its end.
        """
        return Lock(
            self._context,
            name,
            ttl_s=ttl,
            renews=renew,
            hold_max_s=math.inf if hold_max is None else hold_max,
            cancel_on_loss=cancel_on_loss,
        )

    async def close(self) -> None:
        """Release what is held, finish what was begun, disconnect.  A second time does nothing."""
        await self._context.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class Lock(Enterable[Held]):
    """A name to hold: it is a block itself, or use `hold()`, or `acquire()` and `held.release()`.

    Made by `Redlock.lock`.  It is not reentrant, and it has no queue: waiters try again at random.
    """

    def __init__(
        self,
        context: Context,
        name: str,
        *,
        ttl_s: float,
        renews: bool,
        hold_max_s: float,
        cancel_on_loss: bool,
    ) -> None:
        # So that an extension, which is asked for after a third of it, is answered well before its end.
        if not _TTL_PER_SERVER_TIMEOUT * context.server_timeout_s <= ttl_s + 1e-9 < math.inf:
            raise InvalidRequest(
                f"a time to live of {ttl_s:g} s does not do: a server may take the server_timeout, "
                f"{context.server_timeout_s:g} s, to answer. "
                f"Use {_TTL_PER_SERVER_TIMEOUT} times that at least."
            )
        terms = Terms(len(context.servers.names), int(ttl_s * 1000), context.drift_factor)
        if terms.kept_until(0.0) <= context.server_timeout_s:
            raise InvalidRequest(
                f"a time to live of {ttl_s:g} s leaves nothing after the {terms.drift_s:g} s by which "
                f"clocks may run apart and the {context.server_timeout_s:g} s a server may take. "
                "Use a longer ttl."
            )
        if not name or hold_max_s <= 0:
            raise InvalidRequest(
                f"a lock needs a name ({name!r}) and a hold_max above 0 ({hold_max_s:g} s)."
            )
        super().__init__()
        self.name = name
        self.key: str = context.key(name)
        self._context, self._terms = context, terms
        self._renews, self._hold_max_s, self._cancel_on_loss = renews, hold_max_s, cancel_on_loss

    async def acquire(self, *, timeout: float | None = None) -> Held:
        """Wait for it, `timeout` seconds at most; None is for ever.  `hold` releases it as well.

        Raises `TimedOut` if it is not held in time, also if that is because servers do not answer, and
        `Unavailable` at once if too many of them answer with an error for waiting to help.  An
        attempt is never cut short: the last may end up to twice the `server_timeout` after `timeout`.
        """
        clock, started = self._context.clock, self._context.clock.now()
        while True:
            outcome = await self._attempt()
            if isinstance(outcome, Held):
                return outcome
            self._check_hopeful(outcome)
            pause_s = self._context.pause_s()
            if timeout is not None:
                left_s = started + timeout - clock.now()
                if left_s <= 0:
                    raise TimedOut(f"the lock {self.name!r} ({self._said(outcome)})", timeout_s=timeout)
                pause_s = min(pause_s, left_s)
            await clock.sleep(pause_s)

    async def try_acquire(self) -> Held | None:
        """Try once.  None: another client has it, or tried at the same moment.

        Raises `Unavailable` if a majority of the servers cannot be reached.
        """
        outcome = await self._attempt()
        if isinstance(outcome, Held):
            return outcome
        answered = sum(answer.verdict in (Verdict.YES, Verdict.NO) for answer in outcome)
        granted = sum(answer.verdict is Verdict.YES for answer in outcome)
        if answered < self._terms.quorum or granted >= self._terms.quorum:
            raise Unavailable(
                f"the lock {self.name!r} cannot be had now: {self._said(outcome)}. {self._needs()}"
            )
        return None

    def hold(self, *, timeout: float | None = None) -> Holding[Held]:
        """A block in which the lock is held, for one use: `lock.hold(timeout=5)`."""
        return Holding(lambda: self.acquire(timeout=timeout), cancel_on_loss=self._cancel_on_loss)

    def _holding(self) -> Holding[Held]:
        return self.hold()

    async def _attempt(self) -> Held | list[Answer]:
        """Try once, to the end; undo it if the caller is cancelled meanwhile."""
        self._context.check_open()
        attempt = self._context.start(self._try_once())
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            await self._context.finish(_undo(attempt))
            raise

    async def _try_once(self) -> Held | list[Answer]:
        context, terms, value = self._context, self._terms, secrets.token_hex(20)
        asked_at = context.clock.now()
        validity = Validity(terms, ends_at=asked_at + self._hold_max_s)
        answers = await context.servers.acquire(self.key, value, ttl_ms=terms.ttl_ms)
        validity.asked(answers, at=asked_at)
        if context.closing is None and validity.remaining(context.clock.now()) > 0:
            return Held(
                self.name, self.key, value, context=context, validity=validity, renews=self._renews
            )
        await context.servers.release(self.key, value)
        context.check_open()
        return answers

    def _check_hopeful(self, answers: Sequence[Answer]) -> None:
        failed = sum(answer.verdict is Verdict.FAILED for answer in answers)
        if len(answers) - failed < self._terms.quorum:
            raise Unavailable(
                f"waiting for the lock {self.name!r} is no use: {self._said(answers)}. {self._needs()}"
            )

    def _said(self, answers: Sequence[Answer]) -> str:
        return explain(self._context.servers.names, answers)

    def _needs(self) -> str:
        return f"It takes {self._terms.quorum} that grant it within its time to live."


async def _undo(attempt: asyncio.Task[Held | list[Answer]]) -> None:
    await asyncio.wait([attempt])
    if not attempt.cancelled() and attempt.exception() is None:
        outcome = attempt.result()
        if isinstance(outcome, Held):
            await outcome.release()
