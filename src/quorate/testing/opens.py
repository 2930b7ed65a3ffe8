"""What opens connections in tests: the types of the fixtures `quorate_connect` and its like."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from quorate import sync
    from quorate.client.connection import Connection

__all__ = ["Connect", "SyncConnect"]


class Connect(Protocol):
    """Opens a connection through a link of its own; the options are those of `quorate.connect`."""

    def __call__(
        self,
        *,
        session_ttl: float = 10.0,
        identity: str | None = None,
        namespace: str | None = None,
        request_timeout: float | None = None,
    ) -> AbstractAsyncContextManager[Connection]: ...


class SyncConnect(Protocol):
    """The same, with `quorate.sync`."""

    def __call__(
        self,
        *,
        session_ttl: float = 10.0,
        identity: str | None = None,
        namespace: str | None = None,
        request_timeout: float | None = None,
    ) -> AbstractContextManager[sync.Connection]: ...
