"""An endpoint: sockets and timers for machines.  Decides nothing; carries out effects.

One endpoint is one address for packets (UDP) and streams (TCP).  Several machines share it, each on its
own channel; machines of the same channel on different members talk to each other.

Invariants
    * A machine is called by one call at a time, and its effects are carried out in their order, also if
      a `Tell` leads to further calls: their effects come after those that were decided before.
    * `ProtocolError` from a machine means that what arrived made no sense: it is counted and dropped.
      Any other exception is a bug of the machine (or of a callback): the endpoint stops with it, closes
      its sockets, and `wait_stopped` and leaving the `async with` raise it.
    * A failure to send is counted, never raised: packets may be lost anyway, and for messages on
      streams the machine's `unreachable` is called.
    * At most `PACKETS_PER_TURN` packets are read before timers and streams have their turn again, so a
      flood does not delay them.  Packets that come faster are lost in the system's buffer.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import math
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import assert_never

import msgspec

from quoracy.clock import Clock, SystemClock, Timer
from quoracy.errors import InvalidRequest, ProtocolError, Unavailable
from quoracy.membership.machine import Address, Effect, Machine, SendPacket, SendStream, Tell
from quoracy.membership.runtime.addresses import (
    SocketPair,
    advertised,
    bind_pair,
    join_address,
    parse_address,
    system_address,
)
from quoracy.membership.runtime.envelope import (
    CHANNELS_COUNT,
    CONTROL_CHANNEL,
    DropReason,
    Envelope,
    EnvelopeSettings,
    Kind,
)
from quoracy.membership.runtime.keyring import KeyRing
from quoracy.membership.runtime.streams import Streams, StreamSettings
from quoracy.membership.runtime.traffic import Traffic, TrafficStatistics

__all__ = ["GOSSIP_CHANNEL", "PACKETS_PER_TURN", "SWIM_CHANNEL", "Endpoint", "open_endpoint"]

_log = logging.getLogger(__name__)

SWIM_CHANNEL = 0
GOSSIP_CHANNEL = 1
PACKETS_PER_TURN = 64
# The precision of an event loop's timers; a shorter delay would only make it spin.
_DELAY_S_MIN = 0.001


class _Attached(msgspec.Struct, eq=False):
    """A machine on its channel."""

    channel: int
    machine: Machine
    on_tell: Callable[[object], None]
    on_unreachable: Callable[[Address, str], None] | None
    timer: Timer | None = None
    timer_due: float = math.inf


class Endpoint:
    """Made by `open_endpoint`.

    address: where others reach us (advertised).  bound: where the sockets are bound.
    """

    def __init__(
        self,
        sockets: SocketPair,
        *,
        address: Address,
        envelope: Envelope,
        clock: Clock,
        streams: StreamSettings,
    ) -> None:
        self.address, self.bound = address, sockets.bound
        self._sockets, self._envelope, self._clock = sockets, envelope, clock
        self._traffic = Traffic()
        self._packet_bytes_max = envelope.settings.datagram_bytes_max
        self._family = sockets.packets.family
        self._machines: dict[int, _Attached] = {}
        self._effects: deque[tuple[_Attached, Effect]] = deque()
        self._is_carrying_out = False
        self._error: Exception | None = None
        self._stopped = asyncio.Event()
        host, _ = parse_address(sockets.bound)
        self._streams = Streams(
            address=address,
            source=None if ipaddress.ip_address(host).is_unspecified else (host, 0),
            family=self._family,
            envelope=envelope,
            traffic=self._traffic,
            clock=clock,
            settings=streams,
            deliver=self._message_received,
            failed=self._undelivered,
        )

    async def start(self) -> None:
        await self._streams.listen(self._sockets.streams)
        asyncio.get_running_loop().add_reader(self._sockets.packets, self._packets_readable)

    # -- machines ------------------------------------------------------------------------------------

    def attach(
        self,
        channel: int,
        machine: Machine,
        on_tell: Callable[[object], None],
        *,
        on_unreachable: Callable[[Address, str], None] | None = None,
    ) -> None:
        """Start the machine on this channel (0 to 6) and drive it from now on.

        on_tell: gets the event of each `Tell`.  on_unreachable: besides the machine, gets the address
        that a message on a stream did not reach, and why.
        """
        if not 0 <= channel < CHANNELS_COUNT or channel == CONTROL_CHANNEL:
            raise InvalidRequest(f"channel {channel}: machines can have 0 to {CONTROL_CHANNEL - 1}")
        if channel in self._machines:
            raise InvalidRequest(f"channel {channel} has a machine already. Detach it first.")
        attached = self._machines[channel] = _Attached(channel, machine, on_tell, on_unreachable)
        try:
            self._call(attached, machine.start)
        except BaseException:
            self.detach(channel)
            raise

    def detach(self, channel: int) -> None:
        """Stop driving the machine; effects that it decided before are still carried out."""
        attached = self._machines.pop(channel)
        if attached.timer is not None:
            attached.timer.cancel()

    def call(self, channel: int, act: Callable[[float], list[Effect]]) -> None:
        """Have the machine do something: `endpoint.call(0, lambda now: swim.join(seeds, now))`.

        What `act` raises is raised here, and the endpoint goes on: it is an answer to the caller.
        Raises `Unavailable` if the endpoint has stopped.
        """
        if self._stopped.is_set():
            raise Unavailable(
                f"the endpoint {self.address} has stopped"
                + (f" because of {self._error!r}" if self._error else "")
                + ". Open a new one."
            ) from self._error
        attached = self._machines.get(channel)
        if attached is None:
            raise InvalidRequest(f"channel {channel} has no machine. Attach one first.")
        self._call(attached, act)

    # -- the endpoint itself -------------------------------------------------------------------------

    def statistics(self) -> TrafficStatistics:
        return self._traffic.statistics()

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    async def wait_stopped(self) -> None:
        """Returns when it was closed.  Raises the error that stopped it, if one did."""
        await self._stopped.wait()
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        """Close the sockets.  What is not delivered by now is not delivered."""
        self._stop()
        await self._streams.close()

    def _stop(self) -> None:
        if self._stopped.is_set():
            return
        self._stopped.set()
        for channel in list(self._machines):
            self.detach(channel)
        self._effects.clear()
        asyncio.get_running_loop().remove_reader(self._sockets.packets)
        self._streams.abort()
        self._sockets.close()

    def _fail(self, error: Exception) -> None:
        _log.error("the endpoint %s stops: %r", self.address, error, exc_info=error)
        self._error = error
        self._stop()

    # -- what arrives --------------------------------------------------------------------------------

    def _packets_readable(self) -> None:
        receive, size = self._sockets.packets.recvfrom, self._packet_bytes_max + 1
        traffic = self._traffic
        for _ in range(PACKETS_PER_TURN):
            try:
                data, source = receive(size)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:  # what an earlier packet of ours met on its way
                traffic.unsent(error, "someone", now=self._clock.now())
                continue
            traffic.counts.packets_in += 1
            traffic.counts.packet_bytes_in += len(data)
            self._packet_received(data, source)
            if self._stopped.is_set():
                return

    def _packet_received(self, data: bytes, source: tuple[str, int]) -> None:
        opened = (
            self._envelope.unwrap(data, kind=Kind.PACKET, wall_ms=int(self._clock.wall() * 1_000))
            if len(data) <= self._packet_bytes_max
            else DropReason.TOO_BIG
        )
        if isinstance(opened, DropReason):
            self._traffic.drop(opened, source, now=self._clock.now())
            return
        sender = join_address(source[0], source[1])
        attached = self._machines.get(opened.channel)
        if attached is None:
            self._traffic.drop(DropReason.UNKNOWN_CHANNEL, sender, now=self._clock.now())
            return
        payload, receive = opened.payload, attached.machine.receive
        self._drive(attached, lambda now: receive(payload, sender, now), source=sender)

    def _message_received(self, channel: int, payload: bytes, sender: Address) -> None:
        attached = self._machines.get(channel)
        if attached is None:
            self._traffic.drop(DropReason.UNKNOWN_CHANNEL, sender, now=self._clock.now())
            return
        receive = attached.machine.receive_stream
        self._drive(attached, lambda now: receive(payload, sender, now), source=sender)

    def _undelivered(self, channel: int, to: Address, reason: str) -> None:
        _log.debug("no message to %a: %a", to, reason)
        attached = self._machines.get(channel)
        if attached is None:
            return
        unreachable = attached.machine.unreachable
        self._drive(attached, lambda now: unreachable(to, now))
        if attached.on_unreachable is not None and not self._stopped.is_set():
            try:
                attached.on_unreachable(to, reason)
            except Exception as error:  # noqa: BLE001 (it stops the endpoint, which says so)
                self._fail(error)

    # -- machines and their effects ------------------------------------------------------------------

    def _drive(
        self,
        attached: _Attached,
        act: Callable[[float], list[Effect]],
        *,
        source: Address | None = None,
    ) -> None:
        """Call a machine for the event loop: errors are counted, or stop the endpoint."""
        try:
            self._call(attached, act)
        except ProtocolError as error:
            if source is None:
                self._fail(error)  # no input from outside caused it
            else:
                self._traffic.drop(DropReason.REFUSED, source, now=self._clock.now())
        except Exception as error:  # noqa: BLE001 (it stops the endpoint, which says so)
            self._fail(error)

    def _call(self, attached: _Attached, act: Callable[[float], list[Effect]]) -> None:
        effects = act(self._clock.now())
        self._set_timer(attached)
        for effect in effects:
            self._effects.append((attached, effect))
        if not self._is_carrying_out:
            self._carry_out()

    def _carry_out(self) -> None:
        self._is_carrying_out = True
        try:
            while self._effects:
                attached, effect = self._effects.popleft()
                match effect:
                    case SendPacket(to, data):
                        self._send_packet(attached.channel, to, data)
                    case SendStream(to, data):
                        self._streams.send(attached.channel, to, data)
                    case Tell(event):
                        attached.on_tell(event)
                    case _:
                        assert_never(effect)
        except Exception as error:  # noqa: BLE001 (it stops the endpoint, which says so)
            # Not raised to the caller: the error may come from another machine.
            self._fail(error)
        finally:
            self._is_carrying_out = False

    def _send_packet(self, channel: int, to: Address, data: bytes) -> None:
        wire = self._envelope.wrap(
            data, channel=channel, kind=Kind.PACKET, wall_ms=int(self._clock.wall() * 1_000)
        )
        try:
            self._sockets.packets.sendto(wire, system_address(to, self._family))
        except OSError as error:
            self._traffic.unsent(error, to, now=self._clock.now())
        except InvalidRequest:  # addresses come from other members, so they may be invalid
            self._traffic.unsent("not an address of this family", to, now=self._clock.now())
        else:
            self._traffic.counts.packets_out += 1
            self._traffic.counts.packet_bytes_out += len(wire)

    def _set_timer(self, attached: _Attached) -> None:
        """Set the timer only if it is due earlier: one that fires too early is set again."""
        due = attached.machine.next_due
        if due >= attached.timer_due or self._machines.get(attached.channel) is not attached:
            return
        if attached.timer is not None:
            attached.timer.cancel()
        delay_s = due - self._clock.now()
        if delay_s > 0:
            delay_s = max(delay_s, _DELAY_S_MIN)
        attached.timer_due = due
        attached.timer = self._clock.call_later(max(0.0, delay_s), lambda: self._timer_fired(attached))

    def _timer_fired(self, attached: _Attached) -> None:
        attached.timer, attached.timer_due = None, math.inf
        if self._machines.get(attached.channel) is not attached:
            return
        if self._clock.now() < attached.machine.next_due:
            self._set_timer(attached)
        else:
            self._drive(attached, attached.machine.tick)


@contextlib.asynccontextmanager
async def open_endpoint(
    bind: str = "127.0.0.1:0",
    *,
    advertise: str | None = None,
    keyring: KeyRing | None = None,
    label: str = "",
    clock: Clock | None = None,
    envelope: EnvelopeSettings = EnvelopeSettings(),  # noqa: B008 (frozen)
    streams: StreamSettings = StreamSettings(),  # noqa: B008 (frozen)
) -> AsyncIterator[Endpoint]:
    """Bind an endpoint until the block ends.

    advertise: where others reach us, if that is not where we are bound; port 0 stands for the bound
    port.  keyring: seal everything, and accept only what is sealed.  label: of the cluster.

    >>> async def where() -> str:
    ...     async with open_endpoint("127.0.0.1:0") as endpoint:
    ...         return endpoint.address
    >>> asyncio.run(where())
    '127.0.0.1:...'
    """
    wrapping = Envelope(entropy=os.urandom, label=label, keyring=keyring, settings=envelope)
    sockets = await bind_pair(bind)
    try:
        endpoint = Endpoint(
            sockets,
            address=_advertised(sockets.bound, advertise),
            envelope=wrapping,
            clock=clock if clock is not None else SystemClock(),
            streams=streams,
        )
        await endpoint.start()
    except BaseException:
        sockets.close()
        raise
    try:
        yield endpoint
    finally:
        await endpoint.close()
    await endpoint.wait_stopped()


def _advertised(bound: Address, advertise: str | None) -> Address:
    if advertise is None:
        return advertised(bound)
    host, port = parse_address(advertise, default_port=0)
    return join_address(host, port or parse_address(bound)[1])
