"""Requests to one of several servers: which failures are tried again, and what the caller learns.

* A read is asked again, elsewhere or here, until its time is over.
* A write that provably did not leave (no connection, a refused stream) is sent again likewise.
* A write that may have left is never sent again.  If its answer is lost it is `Indeterminate`.
* A token that the server no longer takes is renewed; the request was not looked at and is sent again.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TypeAlias, TypeVar

from quoracy.errors import QuoracyError, StoreClosed, Unavailable
from quoracy.remote.authentication import Authentication
from quoracy.remote.channel import Channel
from quoracy.remote.endpoints import Endpoints
from quoracy.remote.errors import (
    AnswerUnreadable,
    CallLost,
    NotReached,
    Reason,
    describe,
    error_of,
    indeterminate,
    may_try_again,
    reason_of,
)
from quoracy.store.model import Op, WaitFirst
from quoracy.wire.grpc import GrpcError

__all__ = ["Attempts", "Kind", "Requests", "What"]

# Which request it was; put into words only when it failed.
What: TypeAlias = Op | WaitFirst | str

_T = TypeVar("_T")

_SIGN_INS_MAX = 2
_AGAIN_FIRST_S = 0.02
_AGAIN_MAX_S = 0.5


class Kind(Enum):
    """What may be done about a request whose answer was lost."""

    READ = "read"  # ask again
    WRITE = "write"  # never
    RENEWAL = "renewal"  # ask again: twice is as good as once; but at the end it may have happened


class Requests:
    """Unary requests to the servers of one store."""

    def __init__(
        self,
        endpoints: Endpoints,
        authentication: Authentication,
        *,
        timeout_s: float,
        rng: random.Random,
    ) -> None:
        self.endpoints, self.authentication, self.timeout_s = endpoints, authentication, timeout_s
        self._loop = asyncio.get_running_loop()
        self._rng = rng
        self.closed = False

    async def ask(
        self, path: str, payload: bytes, kind: Kind, what: What, *, timeout_s: float | None = None
    ) -> bytes:
        """The answer to one unary request; raises as `attempt` does."""
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        return await self.ask_again(path, payload, self.attempts(kind, what, timeout_s), timeout_s)

    async def ask_again(self, path: str, payload: bytes, attempts: Attempts, timeout_s: float) -> bytes:
        """The answer to a unary request that may have been sent before."""

        def once(channel: Channel, token: str | None, deadline: float) -> Awaitable[bytes]:
            return channel.unary(path, payload, timeout_s=timeout_s, deadline=deadline, token=token)

        return await self.attempt(once, attempts)

    def attempts(self, kind: Kind, what: What, timeout_s: float | None = None) -> Attempts:
        """The attempts at a request that begins now."""
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        return Attempts(kind, what, self._loop.time() + timeout_s)

    async def attempt(
        self,
        once: Callable[[Channel, str | None, float], Awaitable[_T]],
        attempts: Attempts,
    ) -> _T:
        """What `once` gives, called with a connection, a token and a deadline as often as allowed.

        Raises `GrpcError` for what the server refused, since the caller can say more about it, and the
        error itself for everything else.
        """
        if attempts.last is not None:
            await self._pause(attempts)
        while True:
            channel = self.channel_now or await self.ready_channel(attempts)
            token = self.authentication.token
            attempts.is_sent = True
            try:
                return await once(channel, token, attempts.deadline)
            except (GrpcError, CallLost) as error:
                attempts.is_sent = False
                self.note_failure(error, attempts, channel, token)
            await self._pause(attempts)

    def note_failure(
        self, error: BaseException | None, attempts: Attempts, channel: Channel, token: str | None
    ) -> None:
        """Note how an attempt failed.  Raises what the caller gets if it must not be made again."""
        if isinstance(error, GrpcError):
            if not self._may_go_on(channel, token, error, attempts):
                raise error
            attempts.last = error
        elif isinstance(error, CallLost):
            attempts.note_loss(error)
        elif error is not None:
            raise error

    @property
    def channel_now(self) -> Channel | None:
        """The connection, if there is one and a call can be made on it at once."""
        return self.endpoints.current if self.authentication.ready and not self.closed else None

    async def any_channel(self, what: What) -> Channel:
        """A connection for a call of the caller's own, with a token where one is needed."""
        return await self.ready_channel(self.attempts(Kind.READ, what))

    async def ready_channel(self, attempts: Attempts) -> Channel:
        """A connection, and a token if one is needed.  Raises what the caller gets."""
        deadline = attempts.deadline
        while True:
            if self.closed:
                raise StoreClosed
            channel = self.endpoints.current
            try:
                if channel is None:
                    left_s = max(deadline - self._loop.time(), 0.0)
                    within_s = None if left_s == math.inf else left_s
                    channel = await self.endpoints.channel(within_s=within_s)
                if not self.authentication.ready:
                    await self.authentication.sign_in(channel)
                return channel
            except NotReached as error:
                attempts.last = error
                # Before anything ever worked, waiting would only hide a wrong address.
                if not self.endpoints.ever_connected or self._loop.time() >= deadline:
                    raise attempts.failure() from error
            except CallLost as error:  # while signing in: nothing of the request has left
                attempts.last = error
                if self._loop.time() >= deadline:
                    raise attempts.failure() from error

    async def close(self) -> None:
        self.closed = True
        await self.authentication.close()
        await self.endpoints.close()

    def _may_go_on(
        self, channel: Channel, token: str | None, error: GrpcError, attempts: Attempts
    ) -> bool:
        reason = reason_of(error)
        if reason is Reason.TOKEN_STALE and attempts.sign_ins < _SIGN_INS_MAX:
            attempts.sign_ins += 1
            return self.authentication.refused(token)
        if reason is Reason.NOT_NOW or (attempts.kind is not Kind.WRITE and may_try_again(error)):
            self.endpoints.prefer_another(channel)
            return True
        return False

    async def _pause(self, attempts: Attempts) -> None:
        """Before the next attempt: none after a lost connection, which has pauses of its own."""
        attempts.count += 1
        now, deadline = self._loop.time(), attempts.deadline
        if now >= deadline:
            raise attempts.failure()
        if isinstance(attempts.last, GrpcError) and reason_of(attempts.last) is not Reason.TOKEN_STALE:
            pause_s = min(_AGAIN_FIRST_S * 2 ** min(attempts.count, 10), _AGAIN_MAX_S)
            await asyncio.sleep(min(pause_s * self._rng.uniform(0.5, 1.0), deadline - now))


class Attempts:
    """What happened to one request so far.

    deadline: when it is given up, by the loop's clock.
    left: whether an attempt may have reached a server, and its answer was lost.
    is_sent: whether an attempt may be on its way.
    """

    __slots__ = ("count", "deadline", "is_sent", "kind", "last", "left", "sign_ins", "what")

    def __init__(self, kind: Kind, what: What, deadline: float) -> None:
        self.kind, self.what, self.deadline = kind, what, deadline
        self.count = self.sign_ins = 0
        self.left = self.is_sent = False
        self.last: QuoracyError | None = None

    def note_loss(self, error: CallLost) -> None:
        """Go on after a loss, or raise if this kind of request must not be sent again."""
        self.last = error
        self.left |= error.left
        if (self.kind is Kind.WRITE and error.left) or isinstance(error, AnswerUnreadable):
            raise self.failure() from error

    def failure(self) -> QuoracyError:
        """What the caller gets if no other attempt is made."""
        last = self.last
        if self.left and self.kind is not Kind.READ:
            return indeterminate(describe(self.what), str(last))
        if isinstance(last, GrpcError):
            return error_of(last, describe(self.what), write=self.kind is not Kind.READ)
        if last is None:
            return Unavailable(f"{describe(self.what)}: there was no time to ask. Give it more.")
        end = "" if str(last).endswith((".", "?")) else "."
        return Unavailable(f"{describe(self.what)}: {last}{end}")
