"""Asking one of several servers: which failures are tried again, and what is said when all is lost.

* A read is asked again, elsewhere or here, until its time is over.
* A write that provably never left (no connection, a refused stream) is sent again likewise.
* A write that may have left is never sent again.  If its answer is lost it is `Indeterminate`.
* A token the server no longer takes is renewed; the request was not looked at and is sent again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TypeAlias, TypeVar

from quoracy.errors import QuoracyError, StoreClosed, Unavailable
from quoracy.remote.authentication import SigningIn
from quoracy.remote.call_errors import AnswerUnreadable, CallLost, NotReached
from quoracy.remote.dial import Channel
from quoracy.remote.endpoints import Endpoints
from quoracy.remote.error_details import describe
from quoracy.remote.error_mapping import Reason, error_of, indeterminate, may_try_again, reason_of
from quoracy.store.model import Op
from quoracy.wire.grpc import GrpcError

__all__ = ["Asking", "Attempts", "Kind", "What"]

logger = logging.getLogger(__name__)

# Which request it was; put into words only when it failed.
What: TypeAlias = Op | str

_T = TypeVar("_T")

_SIGN_INS_MAX = 2
_AGAIN_FIRST_S = 0.02
_AGAIN_MAX_S = 0.5


class Kind(Enum):
    """What may be done about a request whose answer was lost."""

    READ = "read"  # ask again
    WRITE = "write"  # never
    RENEWAL = "renewal"  # ask again: twice is as good as once; but at the end it may have happened


class Asking:
    """Unary requests to the servers of one store."""

    def __init__(
        self, endpoints: Endpoints, signing_in: SigningIn, *, timeout_s: float, rng: random.Random
    ) -> None:
        self.endpoints, self.signing_in, self.timeout_s = endpoints, signing_in, timeout_s
        self._loop = asyncio.get_running_loop()
        self._rng = rng
        self.closed = False

    async def ask(
        self, path: str, payload: bytes, kind: Kind, what: What, *, timeout_s: float | None = None
    ) -> bytes:
        """The answer to one unary request; see `ask_by`."""
        timeout_s = self.timeout_s if timeout_s is None else timeout_s

        def once(channel: Channel, token: str | None, deadline: float) -> Awaitable[bytes]:
            return channel.unary(path, payload, timeout_s=timeout_s, deadline=deadline, token=token)

        return await self.ask_by(once, kind, what, timeout_s=timeout_s)

    async def ask_by(
        self,
        once: Callable[[Channel, str | None, float], Awaitable[_T]],
        kind: Kind,
        what: What,
        *,
        timeout_s: float | None = None,
    ) -> _T:
        """What `once` gives, called with a connection, a token and a deadline as often as allowed.

        Raises `GrpcError` for what the server refused, since the caller can say more about it, and the
        error itself for everything else.
        """
        deadline = self._loop.time() + (self.timeout_s if timeout_s is None else timeout_s)
        attempt = Attempts(kind, what)
        while True:
            channel = self.channel_now or await self.ready_channel(deadline, attempt)
            token = self.signing_in.token
            try:
                return await once(channel, token, deadline)
            except GrpcError as error:
                if not self._may_go_on(channel, token, error, attempt):
                    raise
                attempt.last = error
            except CallLost as error:
                attempt.note_loss(error)
            await self._pause(deadline, attempt)

    @property
    def channel_now(self) -> Channel | None:
        """The connection, if there is one and everything to call on it."""
        return self.endpoints.current if self.signing_in.ready and not self.closed else None

    async def any_channel(self, what: What) -> Channel:
        """A connection for a call of the caller's own, with a token where one is needed."""
        deadline = self._loop.time() + self.timeout_s
        return await self.ready_channel(deadline, Attempts(Kind.READ, what))

    async def ready_channel(self, deadline: float, attempt: Attempts) -> Channel:
        """A connection, and a token if one is needed.  Raises what the caller is told."""
        while True:
            if self.closed:
                raise StoreClosed
            channel = self.endpoints.current
            try:
                if channel is None:
                    left_s = max(deadline - self._loop.time(), 0.0)
                    within_s = None if left_s == math.inf else left_s
                    channel = await self.endpoints.channel(within_s=within_s)
                if not self.signing_in.ready:
                    await self.signing_in.sign_in(channel)
                return channel
            except NotReached as error:
                attempt.last = error
                # Before anything ever worked, waiting would only hide a wrong address.
                if not self.endpoints.ever_connected or self._loop.time() >= deadline:
                    raise attempt.failure() from error
            except CallLost as error:  # while signing in: nothing of the request has left
                attempt.last = error
                if self._loop.time() >= deadline:
                    raise attempt.failure() from error

    async def close(self) -> None:
        self.closed = True
        await self.signing_in.close()
        await self.endpoints.close()

    def _may_go_on(
        self, channel: Channel, token: str | None, error: GrpcError, attempt: Attempts
    ) -> bool:
        reason = reason_of(error)
        if reason is Reason.TOKEN_STALE and attempt.sign_ins < _SIGN_INS_MAX:
            attempt.sign_ins += 1
            return self.signing_in.refused(token)
        if reason is Reason.NOT_NOW or (attempt.kind is not Kind.WRITE and may_try_again(error)):
            self.endpoints.prefer_another(channel)
            return True
        return False

    async def _pause(self, deadline: float, attempt: Attempts) -> None:
        """Before the next attempt: none after a lost connection, which has pauses of its own."""
        attempt.count += 1
        now = self._loop.time()
        if now >= deadline:
            raise attempt.failure()
        if isinstance(attempt.last, GrpcError) and reason_of(attempt.last) is not Reason.TOKEN_STALE:
            pause_s = min(_AGAIN_FIRST_S * 2 ** min(attempt.count, 10), _AGAIN_MAX_S)
            await asyncio.sleep(min(pause_s * self._rng.uniform(0.5, 1.0), deadline - now))


class Attempts:
    """What happened to one request so far."""

    __slots__ = ("count", "kind", "last", "left", "sign_ins", "what")

    def __init__(self, kind: Kind, what: What) -> None:
        self.kind, self.what = kind, what
        self.count = self.sign_ins = 0
        self.left = False
        self.last: QuoracyError | None = None

    def note_loss(self, error: CallLost) -> None:
        """Go on after a loss, or raise if this kind of request must not be sent again."""
        self.last = error
        self.left |= error.left
        if (self.kind is Kind.WRITE and error.left) or isinstance(error, AnswerUnreadable):
            raise self.failure() from error

    def failure(self) -> QuoracyError:
        last = self.last
        if self.left and self.kind is not Kind.READ:
            return indeterminate(describe(self.what), str(last))
        if isinstance(last, GrpcError):
            return error_of(last, describe(self.what), write=self.kind is not Kind.READ)
        if last is None:
            return Unavailable(f"{describe(self.what)}: there was no time to ask. Give it more.")
        end = "" if str(last).endswith((".", "?")) else "."
        return Unavailable(f"{describe(self.what)}: {last}{end}")
