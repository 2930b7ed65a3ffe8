"""From the addresses of a cluster to a store on it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from quoracy.clock import Clock, SystemClock
from quoracy.engines.etcd.engine import EtcdStore
from quoracy.engines.etcd.prefix import DEFAULT_PREFIX
from quoracy.errors import InvalidRequest, Unavailable
from quoracy.remote.dial import ChannelOptions
from quoracy.remote.store import NO_LIMITS, TIMEOUT_S, open_remote
from quoracy.remote.urls import Target, parse_url
from quoracy.store.rules import Limits

__all__ = ["WAIT_S", "open_etcd", "parse_engine_url"]

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())

# How long to wait for a cluster that does not answer yet: machines that start together take a while.
WAIT_S = 30.0
_AGAIN_S = 0.5

# A member that is silent is given up soon, for there are others.
_OPTIONS = ChannelOptions(connect_s=0.7, silence_s=5.0, answer_s=1.5, require_leader=True)

# The one watch that feeds the replica.  Over these it is given up and made anew from etcd's history,
# which costs etcd more than it costs us to keep what came.
_BUFFERS = msgspec.structs.replace(
    NO_LIMITS, watch_buffer_events_max=100_000, watch_buffer_bytes_max=64 * 1024**2
)


@asynccontextmanager
async def open_etcd(
    target: Target,
    *,
    prefix: bytes = DEFAULT_PREFIX,
    limits: Limits | None = None,
    clock: Clock | None = None,
    timeout_s: float = TIMEOUT_S,
    wait_s: float = WAIT_S,
) -> AsyncIterator[EtcdStore]:
    """A store on the etcd cluster of `target`, with everything under `prefix` as its contents.

    `limits` of requests are checked here; etcd's own come on top.  `timeout_s` is the most a request
    may take, `wait_s` the most to wait for a cluster that does not answer yet.  Raises `Unavailable`
    after that.
    """
    clock = clock or SystemClock()
    limits = limits or Limits()
    async with (
        open_remote(target, timeout_s=timeout_s, clock=clock, options=_OPTIONS) as remote,
        open_remote(
            target, timeout_s=timeout_s, clock=clock, limits=_BUFFERS, options=_OPTIONS
        ) as near,
    ):
        store = EtcdStore(remote, near, prefix, limits=limits, clock=clock, timeout_s=timeout_s)
        try:
            await _start(store, target, clock, wait_s)
            yield store
        finally:
            await store.close()


def parse_engine_url(url: str) -> tuple[Target, bytes]:
    """`etcd://HOST[:PORT],...[/PREFIX][?tls=1&ca=...]`: the cluster, and where the store is in it.

    >>> parse_engine_url("etcd://10.0.0.1,10.0.0.2/cells/a/?tls=1")[1]
    b'/cells/a/'
    """
    before, mark, query = url.partition("?")
    scheme, separator, rest = before.partition("://")
    hosts, _, path = rest.partition("/")
    if "@" in path:  # a slash in the password
        raise InvalidRequest("a slash in the user or the password of an engine's URL is written %2F.")
    prefix = f"/{path}".encode() if path else DEFAULT_PREFIX
    return parse_url(f"{scheme}{separator}{hosts}{mark}{query}"), prefix


async def _start(store: EtcdStore, target: Target, clock: Clock, wait_s: float) -> None:
    deadline = clock.now() + wait_s
    reported = ""
    while True:
        try:
            await store.start()
            return
        except Unavailable as error:
            if clock.now() >= deadline:
                raise Unavailable(
                    f"the etcd cluster at {target} could not be asked for {wait_s:g} s: {error}"
                ) from error
            if str(error) != reported:
                reported = str(error)
                _log.warning("waiting for the etcd cluster: %s", error)
            await clock.sleep(_AGAIN_S)
