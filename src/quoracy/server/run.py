"""A running server: bind, open the store, serve the faces, wait for a signal, close in reverse order.

Addresses are bound first, so that a port in use is an error before any data is touched, but they accept
connections only when the store is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.engines.opening import open_embedded
from quoracy.server.config import Address, ServerConfig
from quoracy.server.identity import establish_ids, ids_in_cell
from quoracy.server.listeners import Certificates, bind, bound_address, reachable
from quoracy.server.process import notify_service_manager, raise_descriptor_limit, signals
from quoracy.server.runtime import MemoryTrimmer, freeze_loaded, run
from quoracy.server.settings import (
    LISTEN_ETCD,
    LISTEN_HTTP,
    LISTEN_ZOOKEEPER,
    LISTEN_ZOOKEEPER_ADMIN,
    LISTEN_ZOOKEEPER_TLS,
    Setting,
)
from quoracy.store.api import Store
from quoracy.store.model import StoreStatus
from quoracy.store.rules import Limits

if TYPE_CHECKING:
    from quoracy.engines.etcd.engine import EtcdStore

__all__ = ["Started", "run_server"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class Started(msgspec.Struct, frozen=True):
    """What a server reports once it is ready; the addresses are those it really has.

    `path` is None for a store that is in memory only.
    """

    path: Path | None
    status: StoreStatus
    etcd: Address | None
    http: Address | None
    zookeeper: Address | None
    zookeeper_tls: Address | None
    zookeeper_admin: Address | None


def run_server(
    config: ServerConfig,
    *,
    on_started: Callable[[Started], None],
    on_hangup: Callable[[], None] = lambda: None,
) -> signal.Signals:
    """Serve until a signal stops the server, and return it; SIGHUP reads certificates again.

    Raises `Unavailable` for an address that cannot be used, `DataError` for data that cannot be opened
    and `InvalidRequest` for an engine URL that means nothing and for TLS files that cannot be used.
    """
    return run(_serve(config, on_started, on_hangup))


async def _serve(
    config: ServerConfig, on_started: Callable[[Started], None], on_hangup: Callable[[], None]
) -> signal.Signals:
    certificates = _certificates(config)

    def hang_up() -> None:
        on_hangup()
        if certificates is not None:
            certificates.read_again()

    with (
        signals(hang_up) as stopped,
        _bound(config.listen_etcd, LISTEN_ETCD) as etcd,
        _bound(config.listen_http, LISTEN_HTTP) as http,
        _bound(config.listen_zookeeper, LISTEN_ZOOKEEPER) as zookeeper,
        _bound(config.listen_zookeeper_tls, LISTEN_ZOOKEEPER_TLS) as zookeeper_tls,
        _bound(config.listen_zookeeper_admin, LISTEN_ZOOKEEPER_ADMIN) as zookeeper_admin,
    ):
        raise_descriptor_limit(config.connections_max + config.zookeeper.max_cnxns)
        async with contextlib.AsyncExitStack() as running:
            store = await _unless_stopped(stopped, running.enter_async_context(_engine(config)))
            if store is None:
                return stopped.result()
            if http is not None:
                await running.enter_async_context(_http_face(store, http, config))
            if etcd is not None:
                await running.enter_async_context(_etcd_face(store, etcd, config, certificates))
            if zookeeper is not None or zookeeper_tls is not None:
                await running.enter_async_context(
                    _zookeeper_face(
                        store,
                        _ZooKeeperListeners(zookeeper, zookeeper_tls, zookeeper_admin),
                        config,
                        certificates,
                    )
                )
            freeze_loaded()
            notify_service_manager("READY=1")
            running.callback(notify_service_manager, "STOPPING=1")
            on_started(
                Started(
                    path=store.path if isinstance(store, EmbeddedStore) else None,
                    status=await store.status(),
                    etcd=_address(etcd),
                    http=_address(http),
                    zookeeper=_address(zookeeper),
                    zookeeper_tls=_address(zookeeper_tls),
                    zookeeper_admin=_address(zookeeper_admin),
                )
            )
            # Last: it begins by giving back what starting took.
            running.callback(MemoryTrimmer().close)
            return await stopped


async def _unless_stopped(stopped: asyncio.Future[signal.Signals], opening: Awaitable[_T]) -> _T | None:
    """The result of `opening`, which may wait for a cluster for ever; None if a signal came first."""
    loop = asyncio.get_running_loop()
    waiting = asyncio.timeout(None)

    def give_up(_: object) -> None:
        waiting.reschedule(loop.time())

    try:
        async with waiting:
            stopped.add_done_callback(give_up)
            try:
                return await opening
            finally:
                stopped.remove_done_callback(give_up)
    except TimeoutError:
        if waiting.expired():
            return None
        raise


@contextlib.asynccontextmanager
async def _engine(config: ServerConfig) -> AsyncIterator[EmbeddedStore | EtcdStore]:
    limits = _store_limits(config)
    if config.cell is not None:
        from quoracy.engines.etcd.opening import open_etcd
        from quoracy.server.cell.member import supervised_member

        async with (
            supervised_member(config.cell, limits=limits, retention=config.retention) as members,
            open_etcd(members, limits=limits) as replica,
        ):
            yield replica
        return
    if not config.engine_url.startswith("etcd:"):
        async with open_embedded(
            config.engine_url, limits=limits, retention=config.retention
        ) as embedded:
            yield embedded
        return
    from quoracy.engines.etcd.opening import open_etcd, parse_engine_url

    target, prefix = parse_engine_url(config.engine_url)
    async with open_etcd(target, prefix=prefix, limits=limits) as replicated:
        yield replicated


def _store_limits(config: ServerConfig) -> Limits:
    """The limits of the store; the etcd face holds its own clients to those of the configuration.

    A multi of ZooKeeper is bounded by its bytes alone, and becomes one transaction; each of its
    operations compares what it read, so its keys are named several times.
    """
    limits = config.limits
    if config.listen_zookeeper is None and config.listen_zookeeper_tls is None:
        return limits
    return msgspec.structs.replace(
        limits,
        txn_ops_max=config.zookeeper.jute_maxbuffer,
        request_bytes_max=max(limits.request_bytes_max, 16 * config.zookeeper.jute_maxbuffer),
    )


def _certificates(config: ServerConfig) -> Certificates | None:
    """The certificates, if a port uses them; otherwise the files are not even read."""
    if config.tls is None or (config.listen_etcd is None and config.listen_zookeeper_tls is None):
        return None
    return Certificates(config.tls)


def _address(listener: socket.socket | None) -> Address | None:
    return None if listener is None else bound_address(listener)


# The faces are imported when they are served: a server without one does not wait for it to load.


@contextlib.asynccontextmanager
async def _http_face(
    store: Store, listener: socket.socket, config: ServerConfig
) -> AsyncIterator[None]:
    from quoracy.faces.http import serve_http

    assert config.listen_http is not None
    async with serve_http(store, listener, host=config.listen_http.host):
        yield


@contextlib.asynccontextmanager
async def _etcd_face(
    store: EmbeddedStore | EtcdStore,
    listener: socket.socket,
    config: ServerConfig,
    certificates: Certificates | None,
) -> AsyncIterator[None]:
    from quoracy.faces.etcd.services.member import Identity
    from quoracy.faces.etcd.serving.server import serve_etcd
    from quoracy.wire.http2 import Http2Limits

    assert config.listen_etcd is not None
    _warn_if_open_to_all(config)
    scheme = "http" if certificates is None else "https"
    advertised = config.advertise_etcd or reachable(bound_address(listener))
    if isinstance(store, EmbeddedStore):
        ids = establish_ids(store.path)
    else:
        ids = ids_in_cell(store.cluster_id, str(advertised))
    async with serve_etcd(
        store,
        listener,
        host=config.listen_etcd.host,
        identity=Identity(ids.cluster_id, ids.member_id, client_urls=(f"{scheme}://{advertised}",)),
        ssl=None if certificates is None else certificates.front,
        snapshot=store.backup if isinstance(store, EmbeddedStore) else None,
        limits=config.limits,
        connections_max=config.connections_max,
        http2_limits=Http2Limits(streams_max=config.streams_max),
    ):
        yield


class _ZooKeeperListeners(msgspec.Struct, frozen=True):
    plain: socket.socket | None
    tls: socket.socket | None
    admin: socket.socket | None


@contextlib.asynccontextmanager
async def _zookeeper_face(
    store: Store,
    listeners: _ZooKeeperListeners,
    config: ServerConfig,
    certificates: Certificates | None,
) -> AsyncIterator[None]:
    from quoracy.faces.zookeeper.serving.server import serve_zookeeper

    _warn_if_zookeeper_is_open_to_all(config)
    async with serve_zookeeper(
        store,
        listeners.plain,
        settings=config.zookeeper,
        ssl=None if certificates is None else certificates.front,
        secure_listener=listeners.tls,
    ) as face:
        if listeners.admin is None:
            yield
            return
        from quoracy.faces.zookeeper.admin.commands import serve_admin

        assert config.listen_zookeeper_admin is not None
        async with serve_admin(face, listeners.admin, host=config.listen_zookeeper_admin.host):
            yield


def _warn_if_open_to_all(config: ServerConfig) -> None:
    assert config.listen_etcd is not None
    if config.tls is not None and config.tls.client_ca is not None:
        return
    if _is_reachable(config.listen_etcd):
        _log.warning(
            "anybody who reaches %s can read and write everything: set tls-client-ca, or listen on "
            "127.0.0.1 only",
            config.listen_etcd,
        )


def _warn_if_zookeeper_is_open_to_all(config: ServerConfig) -> None:
    if _is_reachable(config.listen_zookeeper):
        _log.warning(
            "anybody who reaches %s can read and write every znode whose ACL does not forbid it, and "
            "nothing is encrypted: use listen-zookeeper-tls with tls-client-ca, or listen on 127.0.0.1 "
            "only",
            config.listen_zookeeper,
        )
    if _is_reachable(config.listen_zookeeper_tls) and (
        config.tls is not None and config.tls.client_ca is None
    ):
        _log.warning(
            "anybody who reaches %s can read and write every znode whose ACL does not forbid it: set "
            "tls-client-ca, or listen on 127.0.0.1 only",
            config.listen_zookeeper_tls,
        )
    if _is_reachable(config.listen_zookeeper_admin):
        _log.warning(
            "anybody who reaches %s can see who is connected and what is watched, and can reset "
            "counters: listen on 127.0.0.1 only",
            config.listen_zookeeper_admin,
        )


def _is_reachable(address: Address | None) -> bool:
    """Whether other machines can reach it."""
    from quoracy.faces.common.guards import is_loopback

    return address is not None and not is_loopback(address.host)


@contextlib.contextmanager
def _bound(address: Address | None, setting: Setting[Address | None]) -> Iterator[socket.socket | None]:
    if address is None:
        yield None
        return
    with bind(address, setting=setting.flag) as listener:
        yield listener
