"""kazoo as the loads use it: calls with an end, and a clear word on what became of a write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError

__all__ = ["Unknown", "asked", "connected"]

_CONNECT_S_MAX = 20.0
_CALL_S_MAX = 2.0
# Tried again soon: what a schedule breaks is whole again after seconds.
_AGAIN = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 0.4}


class Unknown(Exception):
    """There was no answer: it may have been done, or may be yet."""


def connected(hosts: str, *, timeout_s: float) -> Any:
    """A client with a session of its own.  What it is asked for is asked for once."""
    client = KazooClient(
        hosts,
        timeout=timeout_s,
        connection_retry=dict(_AGAIN),
        command_retry={"max_tries": 0},
    )
    client.start(timeout=_CONNECT_S_MAX)
    return client


def asked(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The answer to one of kazoo's ..._async calls.  Raises `Unknown`, or what the server said."""
    try:
        return call(*arguments, **options).get(timeout=_CALL_S_MAX)
    except (
        ConnectionClosedError,
        ConnectionLoss,
        KazooTimeoutError,
        OperationTimeoutError,
        SessionExpiredError,
    ) as error:
        raise Unknown(str(error)) from error
