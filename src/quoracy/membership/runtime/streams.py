"""Messages of any size, reliably: a bounded pool of connections to other members.

A message is sent on the connection that is open to its address, in whichever direction it was opened;
if there is none, we dial.  It is delivered at most once, in order with others on the same connection.
If the other endpoint does not acknowledge it in time, `failed` is called once: then it may have arrived
or not.

Invariants
    * Everything here is bounded: connections (also per host), bytes on their way out, bytes half
      received, and the time each of them may take.  `StreamSettings` says what happens at each bound.
    * `failed` is never called from within `send`.
    * After `close` nothing is delivered and nothing fails any more.

Without a key ring the hello of a connection is not authenticated, like the source of a packet: anyone
that can reach the port can claim any address.  But messages to an address are only sent on a connection
from the same host, so a false claim does not receive the messages of another member.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Callable

from quoracy.clock import Clock, Timer
from quoracy.errors import InvalidRequest
from quoracy.membership.machine import Address
from quoracy.membership.runtime.addresses import SystemAddress, parse_address, system_address
from quoracy.membership.runtime.connection import Connection, StreamSettings
from quoracy.membership.runtime.envelope import DropReason, Envelope
from quoracy.membership.runtime.traffic import Traffic

__all__ = ["StreamSettings", "Streams"]

# Many small messages to one member cost more than their bytes.
_MESSAGES_PER_CONNECTION_MAX = 1_024


class Streams:
    """The connections of one endpoint.

    deliver(channel, payload, sender): a message arrived.
    failed(channel, to, reason): a message may not have arrived.
    """

    def __init__(
        self,
        *,
        address: Address,
        source: tuple[str, int] | None,
        family: socket.AddressFamily,
        envelope: Envelope,
        traffic: Traffic,
        clock: Clock,
        settings: StreamSettings,
        deliver: Callable[[int, bytes, Address], None],
        failed: Callable[[int, Address, str], None],
    ) -> None:
        self.address = address
        self.envelope, self.traffic, self.clock, self.settings = envelope, traffic, clock, settings
        self.gathered_bytes = self.outgoing_bytes = 0
        self._source, self._family = source, family
        self._deliver, self._failed = deliver, failed
        self._dialled: dict[Address, Connection] = {}
        self._accepted: set[Connection] = set()
        self._greeted: dict[Address, Connection] = {}  # the last connection with a hello from there
        self._per_host: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweeping: Timer | None = None
        self._server: asyncio.Server | None = None
        self._is_closed = False

    async def listen(self, listening: socket.socket) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self, peer=None), sock=listening
        )

    @property
    def connections_count(self) -> int:
        return len(self._dialled) + len(self._accepted)

    def send(self, channel: int, to: Address, data: bytes) -> None:
        """Deliver a message, or call `failed`."""
        size_max = self.envelope.settings.message_bytes_max
        if len(data) > size_max:
            self._fail(channel, to, f"{len(data):,} bytes; message_bytes_max is {size_max:,}")
        elif self.outgoing_bytes + len(data) > self.settings.outgoing_bytes_max:
            self._fail(channel, to, f"{self.outgoing_bytes:,} bytes wait to be delivered already")
        else:
            connection = self._connection_to(to)
            if isinstance(connection, str):
                self._fail(channel, to, connection)
            elif len(connection.outgoing) >= _MESSAGES_PER_CONNECTION_MAX:
                self._fail(channel, to, f"{len(connection.outgoing):,} messages wait there already")
            else:
                connection.send(channel, data)

    def abort(self) -> None:
        """Close everything at once."""
        self._is_closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._server is not None:
            self._server.close()
        for connection in [*self._dialled.values(), *self._accepted]:
            connection.end("the endpoint was closed")

    async def close(self) -> None:
        self.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    # -- from connections ----------------------------------------------------------------------------

    def accepted(self, connection: Connection) -> bool:
        """Take in a connection; False if there is no room for it."""
        if self._is_closed:
            return False
        is_over = (
            len(self._accepted) >= self.settings.inbound_max
            or self._per_host[connection.host] >= self.settings.inbound_per_host_max
        )
        if is_over:
            self.traffic.drop(DropReason.RATE, connection.host, now=self.clock.now())
            return False
        self._accepted.add(connection)
        self._per_host[connection.host] += 1
        self.traffic.counts.connections_in += 1
        self._sweep_later()
        return True

    def greeted(self, connection: Connection) -> None:
        assert connection.peer is not None
        if self.envelope.is_sealed or parse_address(connection.peer)[0] == connection.host:
            self._greeted[connection.peer] = connection

    def ended(self, connection: Connection, reason: str) -> None:
        peer = connection.peer
        if peer is not None:
            for connections in (self._dialled, self._greeted):
                if connections.get(peer) is connection:
                    del connections[peer]
        if connection in self._accepted:
            self._accepted.remove(connection)
            self._per_host[connection.host] -= 1
            if not self._per_host[connection.host]:
                del self._per_host[connection.host]
        for message in connection.outgoing:
            self.outgoing_bytes -= message.size
            assert peer is not None
            self._fail(message.channel, peer, reason)
        connection.outgoing.clear()

    def deliver(self, channel: int, payload: bytes, sender: Address) -> None:
        self._deliver(channel, payload, sender)

    # -- dialling ------------------------------------------------------------------------------------

    def _connection_to(self, to: Address) -> Connection | str:
        """A connection that is open or being opened, or why there is none."""
        if self._is_closed:
            return "the endpoint is closed"
        if (dialled := self._dialled.get(to)) is not None:
            return dialled
        greeted = self._greeted.get(to)
        # The other side closes an idle connection: do not use it shortly before that.
        if greeted is not None and self.clock.now() - greeted.active_at < self.settings.idle_s / 2:
            return greeted
        try:
            place = system_address(to, self._family)
        except InvalidRequest as error:
            return str(error)
        if len(self._dialled) >= self.settings.outbound_max:
            idle = [each for each in self._dialled.values() if not each.outgoing]
            if not idle:
                return f"all {len(self._dialled)} connections that may be open are busy"
            min(idle, key=lambda each: each.active_at).end("idle, and its place was needed")
        connection = self._dialled[to] = Connection(self, peer=to)
        task = connection.dialling = asyncio.get_running_loop().create_task(
            self._dial(connection, place)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._sweep_later()
        return connection

    async def _dial(self, connection: Connection, place: SystemAddress) -> None:
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: connection, place[0], place[1], family=self._family, local_addr=self._source
            )
        except OSError as error:
            # The message of asyncio says where, which is known, instead of why.
            why = os.strerror(error.errno) if error.errno else str(error)
            connection.end(f"no connection: {why}")
            return
        self.traffic.counts.connections_out += 1

    # -- time ----------------------------------------------------------------------------------------

    def _sweep_later(self) -> None:
        if self._sweeping is None and self.connections_count:
            settings = self.settings
            shortest_s = min(
                settings.connect_timeout_s,
                settings.delivery_timeout_s,
                settings.frame_timeout_s,
                settings.idle_s,
            )
            self._sweeping = self.clock.call_later(min(1.0, shortest_s / 4), self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        if self._is_closed:
            return
        now = self.clock.now()
        for connection in [*self._dialled.values(), *self._accepted]:
            overdue = connection.overdue(now)
            if overdue is not None:
                why, reason = overdue
                if reason is not None:
                    self.traffic.drop(reason, connection.peer or connection.host, now=now)
                connection.end(why)
        self._sweep_later()

    def _fail(self, channel: int, to: Address, reason: str) -> None:
        if not self._is_closed:
            self.traffic.counts.undelivered += 1
            asyncio.get_running_loop().call_soon(self._failed_now, channel, to, reason)

    def _failed_now(self, channel: int, to: Address, reason: str) -> None:
        if not self._is_closed:
            self._failed(channel, to, reason)
