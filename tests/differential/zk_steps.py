"""What a sequence consists of: steps that several clients take, the same on both servers.

A step can be taken whatever happened before it: a client that is not connected just does not take it.
So steps can be left out of a sequence that shows a difference until none can be spared.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tests.differential.zk_requests import Mark, Op, Request, is_known

__all__ = ["As", "Ask", "Connect", "Hangup", "SendRaw", "Step"]


class As(Enum):
    """Whose session a connection asks for."""

    NEW = "a new session"
    OWN = "its own session"
    BACK = "its own session, or a new one if it has none"
    OWN_WRONG_PASSWORD = "its own session, with a wrong password"
    OWN_SHORT_PASSWORD = "its own session, with a short password"
    OWN_NO_PASSWORD = "its own session, without a password"
    OTHERS = "another client's session, with its own password"
    ENDED = "a session that was closed"
    UNKNOWN = "a session that never was"


@dataclass(frozen=True)
class Connect:
    client: int
    as_: As = As.NEW
    timeout_ms: int = 30_000
    read_only: bool | None = False
    last_zxid: int | Mark = 0

    def __str__(self) -> str:
        odd = "" if self.last_zxid == 0 else f", having seen {self.last_zxid}"
        return (
            f"{self.client}: connect as {self.as_.value}, "
            f"timeout {self.timeout_ms}, read only {self.read_only}{odd}"
        )


@dataclass(frozen=True)
class Ask:
    """One request, or several that are sent at once."""

    client: int
    requests: tuple[Request, ...]

    @property
    def may_hang_up(self) -> bool:
        """Whether the server may answer the last request and then hang up."""
        op = self.requests[-1].op
        return op in (Op.CLOSE_SESSION, Op.AUTH, Op.SASL) or not is_known(op)

    def __str__(self) -> str:
        return f"{self.client}: " + "  +  ".join(map(str, self.requests))


@dataclass(frozen=True)
class SendRaw:
    """Bytes that need not be a frame."""

    client: int
    data: bytes

    def __str__(self) -> str:
        return f"{self.client}: the bytes {self.data[:80]!r} ({len(self.data)})"


@dataclass(frozen=True)
class Hangup:
    client: int

    def __str__(self) -> str:
        return f"{self.client}: hang up"


Step: TypeAlias = Connect | Ask | SendRaw | Hangup
