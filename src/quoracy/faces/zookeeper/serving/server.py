"""The shell of the ZooKeeper face: listeners, limits, and what all connections share.

All clients are served from one replica of the tree.  When the store cannot be followed any more
(it is away, or the replica met an error), every client is hung up on and finds its session again, here
or at another node; meanwhile four-letter words are answered, and ConnectRequests are not.

A store on a cluster may say that it is not serving: it has lost the cluster, and shows what it had.
Then too every client is hung up on.  Those that come back and asked for it are served read-only, from
the replica as it is; when the store serves again, they are hung up on once more (see `read_only`).

The caller binds the sockets, so that a port in use is its to report, and owns the signals.

Invariants
    * Connections are bounded: by maxClientCnxns for one address, by maxCnxns for all.  One too many is
      closed as soon as it is there.
    * A client that has not said what it wants `SESSIONLESS_S` after it connected is hung up on.
    * A server that stops ends no session: it answers what it has begun, for `DRAIN_S` at most, and
      hangs up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl as tls
from collections import Counter
from collections.abc import AsyncIterator
from typing import cast

from quoracy.clock import Clock, SystemClock
from quoracy.errors import QuoracyError
from quoracy.faces.common.reply_socket import Descriptors, ReplySocket
from quoracy.faces.zookeeper.admin import four_letter
from quoracy.faces.zookeeper.admin.stats import ServerStats
from quoracy.faces.zookeeper.serving.connection import Connection
from quoracy.faces.zookeeper.serving.read_only import ReadOnlySessions
from quoracy.faces.zookeeper.serving.request_queue import Throttle
from quoracy.faces.zookeeper.serving.sessions import Sessions
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree.reads import Reads
from quoracy.faces.zookeeper.tree.replica import Replica
from quoracy.faces.zookeeper.tree.watches import WatchTable
from quoracy.faces.zookeeper.tree.znodes import Tree
from quoracy.faces.zookeeper.writing.container_manager import Reaper
from quoracy.store.api import Store
from quoracy.store.model import ClusterHealth

__all__ = ["Face", "serve_zookeeper"]

logger = logging.getLogger(__name__)

# As zookeeper.nio.sessionlessCnxnTimeout.  Differs from ZooKeeper: there every byte starts it anew.
SESSIONLESS_S = 10.0
# How long a client that was hung up on may take to read what was said last.
LINGER_S = 1.0
# How long answers may take when the server stops.
DRAIN_S = 0.5
# Before the store is asked again whether it can be followed.
RETRY_S = 0.5
CHECK_EVERY_S = 5.0

_WRITE_BUFFER_MAX = 1 << 20


class Face:
    """What all connections share, and what the admin commands show."""

    def __init__(self, store: Store, settings: ZooKeeperSettings, clock: Clock) -> None:
        self.store, self.settings, self.clock = store, settings, clock
        self.catch_up = store.catch_up
        self.stats = ServerStats(now=clock.now())
        self.throttle = Throttle(settings.global_outstanding_limit)
        self.client_port = self.secure_client_port = -1
        self.loop = asyncio.get_running_loop()
        self._lines: set[_Line] = set()
        self._by_host: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._all_gone = asyncio.Event()
        self._is_draining = False
        self.descriptors = Descriptors()
        self._to_flush: list[Connection] = []
        self._to_go_on: list[Connection] = []
        self._pass_due = False
        self._words: set[asyncio.Task[None]] = set()
        self.read_only: ReadOnlySessions | None = None
        self._begin()

    def _begin(self) -> None:
        """A replica that knows nothing yet, and what goes with it."""
        self.replica = Replica(self.store, self.settings, self.clock)
        self.reads = Reads(self.replica.tree, self.replica.watches, self.settings)
        self.sessions = Sessions(self.store, self.replica, self.settings, self.clock)
        self.replica.applier.on_session_gone = self._session_gone
        self.replica.applier.on_session_moved = self._session_moved
        if self.read_only is not None:
            self.read_only.stop()
        health = self.health
        is_serving = health is None or health.is_serving
        self.read_only = None if is_serving else self._begin_read_only()

    def _begin_read_only(self) -> ReadOnlySessions:
        return ReadOnlySessions(self.replica.tree, self.settings, self.clock)

    def _session_gone(self, id: int) -> None:
        self.sessions.gone(id)
        if self.read_only is not None:
            self.read_only.gone(id)

    def _session_moved(self, id: int) -> None:
        self.sessions.moved(id)
        if self.read_only is not None:
            self.read_only.moved(id)

    @property
    def running(self) -> bool:
        return self.replica.ready.is_set()

    @property
    def is_read_only(self) -> bool:
        return self.read_only is not None

    @property
    def health(self) -> ClusterHealth | None:
        """Of the cluster the store stands on, if it does."""
        cluster = self.store.cluster
        return None if cluster is None else cluster.health()

    @property
    def tree(self) -> Tree:
        return self.replica.tree

    @property
    def watches(self) -> WatchTable:
        return self.replica.watches

    # -- the store -------------------------------------------------------------------------

    async def follow_forever(self, began: asyncio.Event) -> None:
        """Keep a replica up.  `began` is set when the first one is, or has failed to."""
        while not self._is_draining:
            beside = [
                self.loop.create_task(self._tell_ready(began)),
                self.loop.create_task(self._reap()),
            ]
            try:
                await self.replica.run()
            except QuoracyError as error:
                logger.warning("clients have to wait, for the store cannot be followed: %s", error)
            except Exception:
                self.stats.unrecoverable_error_count += 1
                logger.exception("clients have to wait, for following the store failed")
            finally:
                self._hang_up_on_all("the store cannot be followed at the moment")
                for task in beside:
                    task.cancel()
                await asyncio.wait(beside)
                await self.sessions.stop()
            began.set()
            await self.clock.sleep(RETRY_S)
            self._begin()

    def serving_changed(self, is_serving: bool) -> None:
        """The store has lost its cluster, or has it back."""
        if is_serving and self.read_only is not None:
            read_only, self.read_only = self.read_only, None
            read_only.stop()
        elif not is_serving and self.read_only is None:
            self.read_only = self._begin_read_only()
            self._hang_up_on_all("nothing can be written at the moment")

    async def _tell_ready(self, began: asyncio.Event) -> None:
        await self.replica.ready.wait()
        began.set()

    async def _reap(self) -> None:
        try:
            await Reaper(self.replica, self.settings, self.clock).run()
        except Exception:
            self.stats.unrecoverable_error_count += 1
            logger.exception("containers and TTL znodes are not removed any more, because of an error")

    def _hang_up_on_all(self, reason: str) -> None:
        for line in list(self._lines):
            connection = line.connection
            if connection is not None and not connection.is_asked_a_word:
                connection.hang_up(reason)

    # -- connections come and go -----------------------------------------------------------

    def may_come(self, host: str) -> bool:
        settings = self.settings
        if self._is_draining:
            return False
        if 0 < settings.max_client_cnxns <= self._by_host[host] or 0 < settings.max_cnxns <= len(
            self._lines
        ):
            self.stats.connection_rejected += 1
            self._refused[host] += 1
            return False
        return True

    def came(self, line: _Line) -> None:
        self._lines.add(line)
        self._by_host[line.host] += 1

    def left(self, line: _Line) -> None:
        self._lines.discard(line)
        self._by_host[line.host] -= 1
        if not self._by_host[line.host]:
            del self._by_host[line.host]
        if not self._lines:
            self._all_gone.set()

    async def check_forever(self) -> None:
        """Log now and then which addresses were refused: one line, however many there were."""
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            if self._refused:
                host, count = self._refused.most_common(1)[0]
                logger.warning(
                    "refused %d connections in %g s, %d of them from %s: maxClientCnxns is %d for one "
                    "address, maxCnxns %d for all, and 0 would be no limit",
                    self._refused.total(),
                    CHECK_EVERY_S,
                    count,
                    host,
                    self.settings.max_client_cnxns,
                    self.settings.max_cnxns,
                )
                self._refused.clear()

    async def drain(self) -> None:
        """Let what has begun be answered for a moment, and hang up on everyone.  Sessions live on."""
        self._is_draining = True
        for line in list(self._lines):
            if line.connection is not None:
                line.connection.finish()
        if not await self._wait_gone(DRAIN_S):
            self._hang_up_on_all("this server stops")
            for line in list(self._lines):
                line.abort()
            await self._wait_gone(DRAIN_S)

    async def _wait_gone(self, seconds: float) -> bool:
        if not self._lines:
            return True
        self._all_gone.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._all_gone.wait()
        except TimeoutError:
            return False
        return True

    # -- for connections -------------------------------------------------------------------

    def flush_soon(self, connection: Connection) -> None:
        self._to_flush.append(connection)
        self._pass_soon()

    def go_on_soon(self, connection: Connection) -> None:
        self._to_go_on.append(connection)
        self._pass_soon()

    def _pass_soon(self) -> None:
        if not self._pass_due:
            self._pass_due = True
            self.loop.call_soon(self._pass)

    def _pass(self) -> None:
        """One write for each connection with something to send; then those that waited for a turn."""
        self._pass_due = False
        to_flush, self._to_flush = self._to_flush, []
        for connection in to_flush:
            connection.flush()
        to_go_on, self._to_go_on = self._to_go_on, []
        for connection in to_go_on:
            connection.go_on()

    def answer_word(self, word: bytes, rest: bytes, connection: Connection) -> None:
        task = self.loop.create_task(self._answer_word(word, rest, connection))
        self._words.add(task)
        task.add_done_callback(self._words.discard)

    async def _answer_word(self, word: bytes, rest: bytes, connection: Connection) -> None:
        try:
            connection.say(await four_letter.answer(word, self, rest))
        except Exception:
            self.stats.unrecoverable_error_count += 1
            logger.exception("the four-letter word %r could not be answered", word)
            connection.hang_up("there was an error here")

    async def stop_words(self) -> None:
        words = list(self._words)
        for task in words:
            task.cancel()
        if words:
            await asyncio.wait(words)


class _Line(asyncio.Protocol):
    """The socket of one connection.  Decides nothing but when to give up waiting."""

    def __init__(self, face: Face, *, secure: bool) -> None:
        self._face, self._secure = face, secure
        self.connection: Connection | None = None
        self.host = ""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._peer_is_done = False
        self._replies = ReplySocket(face.descriptors)

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        face = self._face
        name = transport.get_extra_info("peername")
        if not name:  # it has left already
            self._transport.abort()
            return
        # An IPv4 address that came over an IPv6 socket is an IPv4 address.
        self.host = str(name[0]).removeprefix("::ffff:")
        if not face.may_come(self.host):
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_MAX)
        stats = face.stats.connected(
            self.host, name[1], now=face.clock.now(), wall=face.clock.wall(), secure=self._secure
        )
        self._replies.open(self._transport)
        self.connection = Connection(face, self, self._replies, stats)
        face.came(self)
        self._timer = face.loop.call_later(SESSIONLESS_S, self._check_begun)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (the name is asyncio's)
        # References are dropped: all is freed now, and not left to the garbage collector.
        self._transport = None
        self._replies.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.connection is not None:
            self.connection.lost()
            self.connection = None
            self._face.left(self)

    def data_received(self, data: bytes) -> None:
        self._face.catch_up()
        if self.connection is not None:
            self.connection.feed(data)

    def eof_received(self) -> bool:
        # A client that sends a four-letter word may close its side at once, and still wants the answer.
        # (Over TLS that cannot be.)
        self._peer_is_done = True
        connection = self.connection
        if connection is None or connection.is_over or self._secure:
            return False
        return connection.is_asked_a_word

    def pause_writing(self) -> None:
        if self.connection is not None:
            self.connection.pause()

    def resume_writing(self) -> None:
        if self.connection is not None:
            self.connection.resume()

    def _check_begun(self) -> None:
        if self.connection is not None and not self.connection.has_begun:
            self._face.stats.sessionless_connections_expired += 1
            self.connection.hang_up(f"it has not said what it wants for {SESSIONLESS_S:g} s")

    # -- the connection's side

    def send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._face.loop.call_later(LINGER_S, self.abort)
        if transport.can_write_eof() and not self._peer_is_done:
            # Closed with bytes of the peer unread, TCP would reset the connection and the last words
            # might never arrive: what still comes is read, and thrown away, for a moment.
            transport.resume_reading()
            transport.write_eof()
        else:
            transport.close()

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def abort(self) -> None:
        """Hang up now."""
        if self._transport is not None:
            self._transport.abort()


@contextlib.asynccontextmanager
async def serve_zookeeper(
    store: Store,
    listener: socket.socket | None,
    *,
    settings: ZooKeeperSettings | None = None,
    ssl: tls.SSLContext | None = None,
    secure_listener: socket.socket | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Face]:
    """Answer on bound sockets for as long as the body runs; `secure_listener` speaks TLS, with `ssl`.

    It listens when the tree has been read, or could not be.  Left, it lets answers go out for at most
    `DRAIN_S` seconds.
    """
    if secure_listener is not None and ssl is None:
        raise ValueError("a secure listener needs an SSL context")
    face = Face(store, settings or ZooKeeperSettings(), clock or SystemClock())
    began = asyncio.Event()
    listening = contextlib.ExitStack()
    if store.cluster is not None:
        listening.callback(store.cluster.on_serving(face.serving_changed))
    tasks = [face.loop.create_task(face.follow_forever(began))]
    servers: list[asyncio.Server] = []
    try:
        await began.wait()
        if listener is not None:
            face.client_port = listener.getsockname()[1]
            servers.append(
                await face.loop.create_server(
                    lambda: _Line(face, secure=False), sock=listener, backlog=1024
                )
            )
        if secure_listener is not None:
            face.secure_client_port = secure_listener.getsockname()[1]
            servers.append(
                await face.loop.create_server(
                    lambda: _Line(face, secure=True),
                    sock=secure_listener,
                    ssl=ssl,
                    ssl_handshake_timeout=SESSIONLESS_S,
                    backlog=1024,
                )
            )
        tasks.append(face.loop.create_task(face.check_forever()))
        yield face
    finally:
        for server in servers:
            server.close()
        listening.close()
        await face.drain()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await face.stop_words()
        await face.sessions.stop()
        if face.read_only is not None:
            face.read_only.stop()
