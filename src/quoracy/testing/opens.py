"""What opens connections in tests: the types of the fixtures `quoracy_connect` and its like."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from quoracy import sync
    from quoracy.client.connection import Connection

__all__ = ["Connect", "SyncConnect"]


class Connect(Protocol):
    """Opens a connection through a link of its own; the options are those of `quoracy.connect`."""

    def __call__(
        self,
        *,
        session_ttl: float = 10.0,
        identity: str | None = None,
        namespace: str | None = None,
        request_timeout: float | None = None,
    ) -> AbstractAsyncContextManager[Connection]: ...


class SyncConnect(Protocol):
    """The same, with `quoracy.sync`."""

    def __call__(
        self,
        *,
        session_ttl: float = 10.0,
        identity: str | None = None,
        namespace: str | None = None,
        request_timeout: float | None = None,
    ) -> AbstractContextManager[sync.Connection]: ...
