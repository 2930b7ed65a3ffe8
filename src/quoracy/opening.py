"""From a URL to a store, wherever it is: the one way in.

What a URL does not need is not imported: a program that keeps its store in its own process loads no
network code, and one that talks to a server loads no engine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from quoracy.errors import InvalidRequest
from quoracy.store.api import Store

if TYPE_CHECKING:
    from quoracy.clock import Clock
    from quoracy.engines.embedded.retention import Retention
    from quoracy.remote.urls import TlsOptions
    from quoracy.store.rules import Limits

__all__ = ["open_store"]

_EMBEDDED = ("memory", "sqlite")
_REMOTE = ("etcd", "quoracy")


@asynccontextmanager
async def open_store(
    url: str,
    *,
    limits: Limits | None = None,
    retention: Retention | None = None,
    clock: Clock | None = None,
    tls: TlsOptions | None = None,
    user: str | None = None,
    password: str | None = None,
    timeout_s: float | None = None,
) -> AsyncIterator[Store]:
    """Open the store that `url` names.

    `memory:` is gone when it is closed; `sqlite:PATH` is durable; both are in this process, and
    `retention` is for them.  `etcd://HOST:PORT,HOST:PORT` and `quoracy://...` (the same
    protocol) are servers: `tls`, `user`, `password` and `timeout_s`, the most a request may take, are
    for them.

        async with quoracy.open_store("sqlite:/var/lib/app/q.db") as store:
            await store.put(b"greeting", b"hello")

    Raises `InvalidRequest` for a URL or an option that makes no sense, and for data in this process
    what `open_embedded` raises.  A server is first spoken to by the first request.
    """
    scheme = url.partition(":")[0]
    if scheme in _EMBEDDED:
        from quoracy.engines.opening import open_embedded

        _refuse(
            url, "a store in this process", tls=tls, user=user, password=password, timeout_s=timeout_s
        )
        async with open_embedded(url, limits=limits, retention=retention, clock=clock) as store:
            yield store
    elif scheme in _REMOTE:
        from quoracy.remote.store import open_remote
        from quoracy.remote.urls import parse_url

        _refuse(url, "a server, which has its own", retention=retention)
        target = parse_url(url)
        if tls is not None:
            target = msgspec.structs.replace(target, tls=tls)
        if user is not None:
            target = msgspec.structs.replace(target, user=user, password=password or "")
        elif password is not None:
            raise InvalidRequest("a password needs a user. Give both, or neither.")
        async with open_remote(target, timeout_s=timeout_s, clock=clock, limits=limits) as remote:
            yield remote
    else:
        raise InvalidRequest(
            f"{url!r} names no store. Give memory:, sqlite:PATH, such as sqlite:/var/lib/app/q.db, or "
            "the address of a server, such as etcd://127.0.0.1:2379."
        )


def _refuse(url: str, what: str, **options: object) -> None:
    """An option that would have no effect is an error, not something to leave out quietly."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InvalidRequest(f"{', '.join(given)}: not for {url.partition(':')[0]}:, {what}.")
