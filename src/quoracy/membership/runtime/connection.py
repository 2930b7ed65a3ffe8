"""A TCP connection between two members: a hello, then messages both ways, each one acknowledged.

The side that dialled first says its advertised address; what arrives on the connection counts as coming
from there, and messages to that address are sent on it.  Every frame is an envelope, like a packet.  An
acknowledgement says how many more messages the other endpoint took, so that a message is either known
to have arrived, or reported to its sender as possibly lost.

    control channel:  "H" + address        the hello, first and once, from the side that dialled
                      "A" + count (4)      this many more messages were taken

Invariants
    * Frames are small until the hello is accepted; with a key ring, that takes a key.
    * A frame that was begun must be complete in time, and so must the hello: a slow sender cannot hold
      a connection.
    * Work per turn of the loop is bounded in frames and in bytes, however much has arrived.
    * While the other side does not read, acknowledgements are a growing number, not waiting bytes.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import deque
from typing import Protocol, cast

import msgspec

from quoracy.clock import Clock
from quoracy.errors import InvalidRequest, ProtocolError
from quoracy.membership.machine import Address
from quoracy.membership.runtime.addresses import parse_address
from quoracy.membership.runtime.envelope import (
    CONTROL_CHANNEL,
    LENGTH_BYTES,
    OVERHEAD_BYTES,
    DropReason,
    Envelope,
    FrameReader,
    Kind,
    frame,
)
from quoracy.membership.runtime.traffic import Traffic

__all__ = ["Connection", "Outgoing", "StreamSettings"]

_HELLO, _ACK = b"H", b"A"
_HELLO_BYTES_MAX = 512
_FRAMES_PER_TURN = 64
_BYTES_PER_TURN = 1024 * 1024
_COUNT_BYTES = 4


class StreamSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of streams.

    connect_timeout_s: to get a connection.
    delivery_timeout_s: from sending a message until it is acknowledged.
    frame_timeout_s: from the first byte of a frame to its last, and from accepting to the hello.
    idle_s: how long a connection that we opened may be unused before it is closed; one that was opened
    to us, twice that.
    outbound_max: connections that we opened.  At the bound the one that was idle longest is closed; if
    none is idle, the message counts as undeliverable.
    inbound_max, inbound_per_host_max: connections opened to us; those beyond are closed at once.
    outgoing_bytes_max: of messages that are not acknowledged yet, over all connections; beyond, a
    message counts as undeliverable.
    gathered_bytes_max: of frames that are not complete, over all connections; a connection that goes
    beyond is closed.
    """

    connect_timeout_s: float = 5.0
    delivery_timeout_s: float = 10.0
    frame_timeout_s: float = 10.0
    idle_s: float = 15.0
    outbound_max: int = 64
    inbound_max: int = 512
    inbound_per_host_max: int = 128
    outgoing_bytes_max: int = 64 * 1024 * 1024
    gathered_bytes_max: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise InvalidRequest(f"{name} must be more than 0, not {getattr(self, name)}")


class Outgoing(msgspec.Struct, gc=False):
    """A message until it is acknowledged; the data only until it is written."""

    channel: int
    data: bytes
    size: int
    deadline: float


class Owner(Protocol):
    """What a connection needs of the pool it is in."""

    address: Address
    envelope: Envelope
    traffic: Traffic
    clock: Clock
    settings: StreamSettings
    gathered_bytes: int
    outgoing_bytes: int

    def accepted(self, connection: Connection) -> bool: ...
    def greeted(self, connection: Connection) -> None: ...
    def ended(self, connection: Connection, reason: str) -> None: ...
    def deliver(self, channel: int, payload: bytes, sender: Address) -> None: ...


class Connection(asyncio.Protocol):
    """Made for `peer` when we dial; without one when we accept, until its hello names it."""

    def __init__(self, owner: Owner, *, peer: Address | None) -> None:
        self._owner = owner
        self.peer = peer
        self.is_dialled = peer is not None
        self.host = ""  # where it really comes from, if we accepted it
        self.is_ended = False
        self.dialling: asyncio.Task[None] | None = None
        self.opened_at = self.active_at = owner.clock.now()
        self.outgoing: deque[Outgoing] = (
            deque()
        )  # oldest first: the first `_written` of them are written
        self._written = 0
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(self._frame_bytes_max if self.is_dialled else _HELLO_BYTES_MAX)
        self._partial_since: float | None = None
        self._is_pump_due = False
        self._taken = 0  # messages that are not acknowledged yet
        self._is_writing_paused = False

    # -- from the pool -------------------------------------------------------------------------------

    def send(self, channel: int, data: bytes) -> None:
        now = self._owner.clock.now()
        self.outgoing.append(
            Outgoing(channel, data, len(data), now + self._owner.settings.delivery_timeout_s)
        )
        self._owner.outgoing_bytes += len(data)
        self.active_at = now
        if self._transport is not None:
            self._write_waiting()

    def overdue(self, now: float) -> tuple[str, DropReason | None] | None:
        """Why it should be closed by now, if it should."""
        settings = self._owner.settings
        if self._transport is None:
            waited_s = now - self.opened_at
            return ("no connection in time", None) if waited_s >= settings.connect_timeout_s else None
        if self.outgoing and now >= self.outgoing[0].deadline:
            return "no acknowledgement in time", None
        if self.peer is None and now - self.opened_at >= settings.frame_timeout_s:
            return "no hello in time", DropReason.SLOW
        if self._partial_since is not None and now - self._partial_since >= settings.frame_timeout_s:
            return "a frame was not complete in time", DropReason.SLOW
        # Twice as long on the accepting side, so that it does not close while the dialling side sends.
        idle_max_s = settings.idle_s if self.is_dialled else 2 * settings.idle_s
        if not self.outgoing and now - self.active_at >= idle_max_s:
            return "idle", None
        return None

    def end(self, reason: str) -> None:
        """Close it.  Messages that are not acknowledged count as undelivered."""
        if self.is_ended:
            return
        self.is_ended = True
        self._owner.gathered_bytes -= len(self._reader)
        if self.dialling is not None:
            self.dialling.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._owner.ended(self, reason)

    # -- from the event loop -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # (Not checked: the transports of uvloop do what a Transport does without being one.)
        self._transport = cast("asyncio.Transport", transport)
        if self.is_ended:  # it was ended while it was being opened
            self._transport.abort()
            return
        if not self.is_dialled:
            source = transport.get_extra_info("peername")
            self.host = str(source[0]) if source else ""
            if not self._owner.accepted(self):
                self.end("too many connections")
            return
        self._write(CONTROL_CHANNEL, _HELLO + self._owner.address.encode())
        self._write_waiting()

    def data_received(self, data: bytes) -> None:
        if self.is_ended:
            return
        owner = self._owner
        owner.traffic.counts.stream_bytes_in += len(data)
        owner.gathered_bytes += len(data)
        self._reader.feed(data)
        if not self._is_pump_due:
            self._pump()
        if owner.gathered_bytes > owner.settings.gathered_bytes_max:
            self._refuse(DropReason.RATE, "too much is half received already")

    def pause_writing(self) -> None:
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._acknowledge()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(f"the connection was lost ({exc})" if exc else "the other side closed the connection")

    # -- frames in -----------------------------------------------------------------------------------

    def _pump(self) -> None:
        self._is_pump_due = False
        owner = self._owner
        frames_count = bytes_count = 0
        while not self.is_ended:
            if frames_count >= _FRAMES_PER_TURN or bytes_count >= _BYTES_PER_TURN:
                self._pump_later()
                break
            try:
                data = self._reader.next_frame()
            except ProtocolError as error:
                self._refuse(DropReason.TOO_BIG, str(error))
                return
            if data is None:
                self._rest()
                break
            owner.gathered_bytes -= LENGTH_BYTES + len(data)
            self._partial_since = None
            frames_count += 1
            bytes_count += self._frame(data)
        self._acknowledge()

    def _pump_later(self) -> None:
        assert self._transport is not None
        self._is_pump_due = True
        self._transport.pause_reading()
        asyncio.get_running_loop().call_soon(self._pump)

    def _rest(self) -> None:
        # No complete frame is left: read on, and start the time of a frame that was begun.
        assert self._transport is not None
        if not self._transport.is_reading():
            self._transport.resume_reading()
        if len(self._reader) and self._partial_since is None:
            self._partial_since = self._owner.clock.now()

    def _frame(self, data: bytes) -> int:
        """Act on one frame; returns the bytes in it, inflated."""
        owner = self._owner
        self.active_at = owner.clock.now()
        opened = owner.envelope.unwrap(data, kind=Kind.STREAM, wall_ms=int(owner.clock.wall() * 1_000))
        if isinstance(opened, DropReason):
            self._refuse(opened, f"a frame was refused: {opened.value}")
            return 0
        if opened.channel == CONTROL_CHANNEL:
            self._control(opened.payload)
        elif self.peer is None:
            self._refuse(DropReason.MALFORMED, "it did not say hello first")
        else:
            owner.traffic.counts.messages_in += 1
            self._taken += 1
            owner.deliver(opened.channel, opened.payload, self.peer)
        return len(opened.payload)

    def _control(self, payload: bytes) -> None:
        kind, rest = payload[:1], payload[1:]
        if kind == _HELLO and self.peer is None and (address := _readable_address(rest)) is not None:
            self.peer = address
            self._reader.frame_bytes_max = self._frame_bytes_max
            self._owner.greeted(self)
        elif kind == _ACK and len(rest) == _COUNT_BYTES and self.peer is not None:
            self._acknowledged(int.from_bytes(rest, "big"))
        else:
            self._refuse(DropReason.MALFORMED, "a control frame that makes no sense")

    def _acknowledged(self, count: int) -> None:
        if not 0 < count <= self._written:
            self._refuse(DropReason.MALFORMED, "it acknowledged what was not sent")
            return
        self._written -= count
        for _ in range(count):
            self._owner.outgoing_bytes -= self.outgoing.popleft().size

    def _refuse(self, reason: DropReason, why: str) -> None:
        if self.is_ended:
            return
        source = self.peer or self.host
        self._owner.traffic.drop(reason, source, now=self._owner.clock.now())
        self.end(why)

    # -- frames out ----------------------------------------------------------------------------------

    def _write_waiting(self) -> None:
        while not self.is_ended and self._written < len(self.outgoing):
            message = self.outgoing[self._written]
            self._written += 1
            self._write(message.channel, message.data)
            message.data = b""
            self._owner.traffic.counts.messages_out += 1

    def _acknowledge(self) -> None:
        if self._taken and not self.is_ended and not self._is_writing_paused:
            count, self._taken = self._taken, 0
            self._write(CONTROL_CHANNEL, _ACK + count.to_bytes(_COUNT_BYTES, "big"))

    def _write(self, channel: int, payload: bytes) -> None:
        assert self._transport is not None
        owner = self._owner
        sealed = owner.envelope.wrap(
            payload, channel=channel, kind=Kind.STREAM, wall_ms=int(owner.clock.wall() * 1_000)
        )
        owner.traffic.counts.stream_bytes_out += LENGTH_BYTES + len(sealed)
        self._transport.write(frame(sealed))

    @property
    def _frame_bytes_max(self) -> int:
        return self._owner.envelope.settings.message_bytes_max + OVERHEAD_BYTES


def _readable_address(data: bytes) -> Address | None:
    try:
        address = data.decode("ascii")
        ipaddress.ip_address(parse_address(address)[0])
    except (ValueError, InvalidRequest):
        return None
    return address
