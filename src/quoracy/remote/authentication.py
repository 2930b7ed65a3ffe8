"""Authentication: a token for a name and a password, renewed when the server refuses it.

Invariants
    * One sign-in at a time; callers that need a token meanwhile wait for that one.
    * If the password is refused, the callers get the error; it is not tried again by itself.
"""

from __future__ import annotations

import asyncio

from quoracy.remote.dial import Channel
from quoracy.remote.errors import Reason, error_of, reason_of
from quoracy.wire.etcd.auth import AuthenticateRequest, AuthenticateResponse
from quoracy.wire.grpc import GrpcError

__all__ = ["Authentication"]

_AUTHENTICATE = "/etcdserverpb.Auth/Authenticate"


class Authentication:
    """The identity of this client.

    token: what proves it, if one is needed.
    ready: whether `token` can be used as it is.
    """

    def __init__(self, user: str | None, password: str | None, *, timeout_s: float) -> None:
        self._user, self._password, self._timeout_s = user, password, timeout_s
        self.token: str | None = None
        self.ready = user is None
        self._attempt: asyncio.Task[str] | None = None

    @property
    def has_user(self) -> bool:
        return self._user is not None

    async def sign_in(self, channel: Channel) -> None:
        """Get a token.  Raises `Rejected` if the server does not take the password."""
        if self.ready:
            return
        if self._attempt is None:
            self._attempt = asyncio.create_task(self._ask(channel), name="quoracy-sign-in")
            self._attempt.add_done_callback(self._over)
        attempt = self._attempt
        # Not awaited itself: a caller that is cancelled must not cancel the attempt of the others.
        await asyncio.wait([attempt])
        attempt.result()

    def refused(self, token: str | None) -> bool:
        """The server no longer takes this token; whether a new one may help."""
        if not self.has_user:
            return False
        if token == self.token:
            self.token = None
            self.ready = False
        return True

    async def close(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.wait([self._attempt])

    async def _ask(self, channel: Channel) -> str:
        request = AuthenticateRequest(name=self._user or "", password=self._password or "")
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        try:
            answer = await channel.unary(
                _AUTHENTICATE, request.encode(), timeout_s=self._timeout_s, deadline=deadline
            )
        except GrpcError as error:
            if reason_of(error) is Reason.AUTH_OFF:
                return ""  # without authentication the server needs no token
            raise error_of(error, f"signing in as {self._user!r}", write=False) from error
        return AuthenticateResponse.decode(answer).token

    def _over(self, attempt: asyncio.Task[str]) -> None:
        self._attempt = None
        if not attempt.cancelled() and attempt.exception() is None:
            self.token = attempt.result()
            self.ready = True
