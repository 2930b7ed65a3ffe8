"""A held lock: the handle that knows for how long it is held, extends it, and says when it is lost.

Invariants
    * `is_held`, `remaining_s` and `check()` ask the clock, so they are right even after the event loop
      was blocked or the process stopped; the `lost` event follows as soon as the loop runs.
    * Once lost or released it is never held again, whatever a late answer says.
    * A loss does not delete the keys: the body may still be running, and nobody else has the lock as
      long as they live.  `release` deletes them.
    * The handle has all the state: it may be passed to other tasks of the same event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Never

from quoracy.clock import Timer
from quoracy.errors import LockLost, Unavailable, Unsupported
from quoracy.redlock.context import Context
from quoracy.redlock.quorum import Answer, Validity, explain

__all__ = ["NO_TOKEN", "Held"]

NO_TOKEN = (
    "a Redlock has no fencing token: its servers know nothing of each other, so no number exists that "
    "grows with every holder. A resource cannot tell a holder that was paused past its time from the "
    "next one. Where that matters use the lock of a quoracy.connect() connection, whose holders have "
    "a token; docs/guides/redlock.md says when it does."
)

# How often to try again if too few servers confirmed an extension: often enough for several tries
# before the time is up, and not so often that it burdens servers in trouble.
_RENEWALS_PER_TTL = 3
_RETRIES_PER_TTL = 12


class Held:
    """One acquisition of one lock.  Made by `Lock.acquire()` and by its blocks.

    name: as it was asked for.
    key: the Redis key that stands for it on every server.
    value: what the key contains: random, different for every acquisition.
    lost: an event, set when the lock is no longer held though nobody released it.
    error: the loss, once it is lost.
    """

    def __init__(
        self,
        name: str,
        key: str,
        value: str,
        *,
        context: Context,
        validity: Validity,
        renews: bool,
    ) -> None:
        self.name, self.key, self.value = name, key, value
        self.lost = asyncio.Event()
        self.error: LockLost | None = None
        self._context, self._validity = context, validity
        self._losing: list[Callable[[LockLost], None]] = []
        self._last: list[Answer] | None = None  # to the newest extension, for messages
        self._releasing: asyncio.Task[None] | None = None
        self._timer: Timer = self._watch_deadline()
        self._renewal = context.start(self._renew()) if renews else None
        context.held.add(self)

    @property
    def token(self) -> Never:
        """There is none: asking raises `Unsupported`, which says why."""
        raise Unsupported(NO_TOKEN)

    @property
    def is_held(self) -> bool:
        """Whether the lock is held now, by this machine's clock."""
        return self.remaining_s > 0 and self._context.servers.is_owner

    @property
    def remaining_s(self) -> float:
        """For how long it is held if nothing extends it; 0 if it is not held."""
        return 0.0 if self._is_over else self._validity.remaining(self._context.clock.now())

    def check(self) -> None:
        """Raise `LockLost` unless the lock is held: for just before something that counts on it."""
        self._context.servers.check_owner()
        if self.note_expiry():
            raise self.loss()

    def loss(self) -> LockLost:
        """The error that says why it is not held."""
        if self.error is None and self._releasing is not None:
            return LockLost(f"the lock {self.name!r} was released, so it is not held any more.")
        return self.error or self._loss()

    async def extend(self) -> None:
        """Hold it for a whole time to live from now.

        Raises `LockLost` if it is lost, also if that turns out only now, and `Unavailable` if too few
        servers confirmed: then it is still held for `remaining_s`, and extending may be tried again.
        """
        self.check()
        confirmed = await self._context.finish(self._ask_to_extend())
        self.check()
        if not confirmed:
            raise Unavailable(
                f"the lock {self.name!r} was not extended: {self._said()}. "
                f"It is held for another {self.remaining_s:.3g} s; try again until then."
            )

    async def release(self) -> None:
        """Give it up on all servers.  A second time does nothing.

        If the servers turn out to have lost it earlier, `lost` is set and `error` says so.  A caller
        that is cancelled does not stop it, and the end of the Redlock waits for it.
        """
        self._context.servers.check_owner()
        if self._releasing is None:
            self.note_expiry()
            self._releasing = self._context.start(self._release())
            self._stand_down()
        await asyncio.shield(self._releasing)

    async def leave(self) -> None:
        """`release`, at the end of a block."""
        await self.release()

    def on_loss(self, listener: Callable[[LockLost], None]) -> None:
        """Call `listener` when it is lost; at once if it is.

        In coroutines that is in the same turn of the loop; with `quoracy.redlock.sync`, in a thread for
        listeners.
        """
        if self.error is not None:
            listener(self.error)
        else:
            self._losing.append(listener)

    def note_expiry(self) -> bool:
        """Look at the clock: if its time is up, it is lost, and its listeners are called.

        True: it is over, by this or before.
        """
        if not self._is_over and self._validity.remaining(self._context.clock.now()) == 0:
            self._lose()
            self._stand_down()
        return self._is_over

    @property
    def _is_over(self) -> bool:
        return self.error is not None or self._releasing is not None

    def _lose(self) -> None:
        self.error = loss = self._loss()
        self.lost.set()
        for listener in self._losing:
            listener(loss)
        self._losing.clear()

    def _loss(self) -> LockLost:
        return LockLost(
            f"the lock {self.name!r} is lost: {self._why_lost()}. Somebody else may hold it; stop, and "
            "acquire it again before you go on."
        )

    def _stand_down(self) -> None:
        self._timer.cancel()
        if self._renewal is not None:
            self._renewal.cancel()
        self._context.held.discard(self)

    async def _release(self) -> None:
        answers = await self._context.servers.release(self.key, self.value)
        # After the deadline a missing key has merely expired, and it was given up before that.
        if self.error is None and self._validity.remaining(self._context.clock.now()) > 0:
            self._validity.released(answers)
            if self._validity.remaining(self._context.clock.now()) == 0:
                self._lose()

    async def _ask_to_extend(self) -> bool:
        """Whether a majority confirmed, in time."""
        # After a pause, for instance, the servers may still have the key though it is lost.
        if self.note_expiry():
            return False
        asked_at = self._context.clock.now()
        answers = await self._context.servers.extend(
            self.key,
            self.value,
            ttl_ms=self._validity.terms.ttl_ms,
            within_s=self._validity.remaining(asked_at),
        )
        # What was lost in the meantime stays lost, whatever these answers say.
        if self.note_expiry():
            return False
        self._last = answers
        confirmed = self._validity.asked(answers, at=asked_at)
        self.note_expiry()
        return confirmed

    async def _renew(self) -> None:
        ttl_s = self._validity.terms.ttl_s
        pause_s = ttl_s / _RENEWALS_PER_TTL
        while True:
            await self._context.clock.sleep(pause_s)
            confirmed = await self._ask_to_extend()
            pause_s = ttl_s / (_RENEWALS_PER_TTL if confirmed else _RETRIES_PER_TTL)

    def _watch_deadline(self) -> Timer:
        remaining_s = self._validity.remaining(self._context.clock.now())
        return self._context.clock.call_later(remaining_s, self._deadline_came)

    def _deadline_came(self) -> None:
        if not self.note_expiry():  # it was extended since
            self._timer = self._watch_deadline()

    def _why_lost(self) -> str:
        terms, gone_count = self._validity.terms, self._validity.gone_count
        if terms.servers_count - gone_count < terms.quorum:
            return f"{gone_count} of {terms.servers_count} servers do not have its key any more"
        if self._context.clock.now() >= self._validity.ends_at:
            return "it was held for as long as hold_max allows"
        return f"its time was up and it was not extended ({self._said()})"

    def _said(self) -> str:
        return (
            "no extension was asked for"
            if self._last is None
            else explain(self._context.servers.names, self._last)
        )

    def __repr__(self) -> str:
        state = "lost" if self.error else "released" if self._releasing else "held"
        return f"<Redlock {self.name!r} {state}>"
