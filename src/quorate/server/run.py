"""Run a server: bind, open the store, put the faces on it, wait for a signal, undo it in reverse.

Addresses are bound first, so that a port in use is told at once and before any data is touched, but
they accept connections only when the store is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from quorate.engines.opening import open_store
from quorate.faces.http import serve_http
from quorate.server.config import Address, ServerConfig
from quorate.server.event_loop import run
from quorate.server.sockets import bind, bound_address
from quorate.store.model import StoreStatus

__all__ = ["Started", "run_server"]


@dataclass(frozen=True, slots=True)
class Started:
    """What a server has to say once it is ready; `http` is the address it really has.

    `path` is None for a store that is in memory only.
    """

    path: Path | None
    status: StoreStatus
    http: Address | None


def run_server(config: ServerConfig, *, on_started: Callable[[Started], None]) -> signal.Signals:
    """Serve until SIGINT or SIGTERM, and say which it was.

    Raises `Unavailable` for an address that cannot be had, `DataError` for data that cannot be opened
    and `InvalidRequest` for an engine URL that means nothing.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    return run(_serve(config, on_started))


async def _serve(config: ServerConfig, on_started: Callable[[Started], None]) -> signal.Signals:
    with _stop_signal() as stopped, _listener(config.listen_http) as http:
        async with contextlib.AsyncExitStack() as running:
            store = await running.enter_async_context(
                open_store(config.engine_url, limits=config.limits, retention=config.retention)
            )
            if http is not None:
                assert config.listen_http is not None
                await running.enter_async_context(serve_http(store, http, host=config.listen_http.host))
            on_started(
                Started(
                    path=store.path,
                    status=await store.status(),
                    http=None if http is None else bound_address(http),
                )
            )
            return await stopped


@contextlib.contextmanager
def _listener(address: Address | None) -> Iterator[socket.socket | None]:
    if address is None:
        yield None
        return
    with bind(address) as listener:
        yield listener


@contextlib.contextmanager
def _stop_signal() -> Iterator[asyncio.Future[signal.Signals]]:
    """A future for the first SIGINT or SIGTERM.

    The second one gets the system's default again: whoever is in a hurry can have the process die at
    once, which costs nothing that was acknowledged.
    """
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[signal.Signals] = loop.create_future()
    watched = (signal.SIGINT, signal.SIGTERM)

    def stop(number: int, _: FrameType | None) -> None:
        for each in watched:
            signal.signal(each, signal.SIG_DFL)
        loop.call_soon_threadsafe(stopped.set_result, signal.Signals(number))  # wakes the loop, too

    # Not loop.add_signal_handler, which Windows lacks.
    previous = {each: signal.signal(each, stop) for each in watched}
    try:
        yield stopped
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)
