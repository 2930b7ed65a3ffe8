"""Messages on streams: delivered, or said not to be, over few connections, whoever is at the end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from quoracy.clock import ManualClock
from quoracy.errors import InvalidRequest, ProtocolError
from quoracy.membership.machine import Effect, SendStream
from quoracy.membership.runtime.connection import StreamSettings
from quoracy.membership.runtime.endpoint import Endpoint, open_endpoint
from quoracy.membership.runtime.envelope import (
    CONTROL_CHANNEL,
    Envelope,
    EnvelopeSettings,
    FrameReader,
    Kind,
    Opened,
    frame,
)
from quoracy.membership.runtime.keyring import KeyRing, generate_key
from tests.membership.runtime.recorder import Recorder
from tests.support.asking import until

ENVELOPE = Envelope(entropy=os.urandom)


def attached(endpoint: Endpoint) -> Recorder:
    machine = Recorder()
    endpoint.attach(0, machine, machine.told)
    return machine


def does(*effects: Effect) -> Callable[[float], list[Effect]]:
    return lambda now: list(effects)


def framed(payload: bytes, channel: int = 0) -> bytes:
    return frame(ENVELOPE.wrap(payload, channel=channel, kind=Kind.STREAM, wall_ms=0))


def hello(address: str = "127.0.0.1:9") -> bytes:
    return framed(b"H" + address.encode(), CONTROL_CHANNEL)


def ack(count: int) -> bytes:
    return framed(b"A" + count.to_bytes(4, "big"), CONTROL_CHANNEL)


class Stranger:
    """The other end of one connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = FrameReader(2**24)

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def payload(self) -> tuple[int, bytes]:
        """Channel and payload of the next frame."""
        async with asyncio.timeout(20):
            while (data := self._frames.next_frame()) is None:
                received = await self._reader.read(65_536)
                assert received, "closed"
                self._frames.feed(received)
        opened = ENVELOPE.unwrap(data, kind=Kind.STREAM, wall_ms=0)
        assert isinstance(opened, Opened)
        return opened.channel, opened.payload

    async def wait_closed(self) -> None:
        async with asyncio.timeout(20):
            with contextlib.suppress(ConnectionError):
                while await self._reader.read(65_536):
                    pass

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


@contextlib.asynccontextmanager
async def dialled(endpoint: Endpoint) -> AsyncIterator[Stranger]:
    """A connection to the endpoint."""
    host, _, port = endpoint.bound.rpartition(":")
    stranger = Stranger(*await asyncio.open_connection(host, int(port)))
    try:
        yield stranger
    finally:
        await stranger.close()


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[tuple[str, asyncio.Queue[Stranger]]]:
    """Somebody whom the endpoint dials."""
    met: asyncio.Queue[Stranger] = asyncio.Queue()
    everyone: list[Stranger] = []

    def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        everyone.append(Stranger(reader, writer))
        met.put_nowait(everyone[-1])

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", met
    finally:
        server.close()
        for stranger in everyone:
            await stranger.close()
        await server.wait_closed()


# -- delivery ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "[::1]:0"])
@pytest.mark.parametrize("is_sealed", [False, True])
async def test_messages_arrive_in_order_and_answers_come_back_on_the_same_connection(
    bind: str, is_sealed: bool
) -> None:
    ring = KeyRing(generate_key()) if is_sealed else None
    async with open_endpoint(bind, keyring=ring) as a, open_endpoint(bind, keyring=ring) as b:
        machine, other = attached(a), attached(b)
        other.answer = lambda data, sender: [SendStream(sender, b"re: " + data)]
        for number in range(100):
            a.call(0, does(SendStream(b.address, b"%d" % number)))
        for number in range(100):
            assert await other.next() == ("stream", b"%d" % number, a.address)
            assert await machine.next() == ("stream", b"re: %d" % number, b.address)
        for one in (a, b):
            await until(lambda: one._streams.outgoing_bytes == 0)  # noqa: B023
            counts = one.statistics()
            assert counts.connections_in + counts.connections_out == 1
            assert (counts.messages_in, counts.messages_out, counts.undelivered) == (100, 100, 0)
            assert one._streams.gathered_bytes == 0


@pytest.mark.parametrize("size", [0, 1, 65_536, 3_000_000])
async def test_messages_of_any_size_arrive(size: int) -> None:
    async with open_endpoint() as a, open_endpoint() as b:
        attached(a)
        other = attached(b)
        data = os.urandom(size)
        a.call(0, does(SendStream(b.address, data)))
        assert await other.next() == ("stream", data, a.address)


async def test_both_may_send_much_at_once() -> None:
    async with open_endpoint() as a, open_endpoint() as b:
        machine, other = attached(a), attached(b)
        a.call(0, does(SendStream(b.address, b"first")))
        await other.next()
        data = os.urandom(6_000_000)  # much more than sockets hold
        a.call(0, does(SendStream(b.address, data)))
        b.call(0, does(SendStream(a.address, data)))
        assert await other.next() == ("stream", data, a.address)
        assert await machine.next() == ("stream", data, b.address)
        assert a.statistics().connections_in == 0


async def test_a_message_over_the_limit_is_undeliverable_and_disturbs_no_other() -> None:
    small = EnvelopeSettings(message_bytes_max=2_000)
    async with open_endpoint(envelope=small) as a, open_endpoint(envelope=small) as b:
        machine, other = attached(a), attached(b)
        a.call(0, does(SendStream(b.address, bytes(2_001)), SendStream(b.address, bytes(2_000))))
        assert await other.next() == ("stream", bytes(2_000), a.address)
        assert await machine.next() == ("unreachable", b.address)
        assert a.statistics().undelivered == 1


async def test_a_peer_that_is_gone_is_unreachable_once_per_message() -> None:
    async with open_endpoint() as a:
        machine = attached(a)
        async with open_endpoint() as b:
            pass
        a.call(0, does(SendStream(b.address, b"x"), SendStream(b.address, b"y")))
        assert [await machine.next(), await machine.next()] == [("unreachable", b.address)] * 2
        assert a.statistics().undelivered == 2
        assert a._streams.connections_count == a._streams.outgoing_bytes == 0


async def test_a_peer_that_was_restarted_is_dialled_anew() -> None:
    async with open_endpoint() as a:
        attached(a)
        async with open_endpoint() as b:
            other = attached(b)
            a.call(0, does(SendStream(b.address, b"one")))
            await other.next()
        await until(lambda: a._streams.connections_count == 0)
        async with open_endpoint(b.address) as again:
            other = attached(again)
            a.call(0, does(SendStream(b.address, b"two")))
            assert await other.next() == ("stream", b"two", a.address)


async def test_a_message_without_acknowledgement_is_undelivered_in_time(clock: ManualClock) -> None:
    settings = StreamSettings(delivery_timeout_s=10.0)
    async with listening() as (address, met), open_endpoint(clock=clock, streams=settings) as endpoint:
        machine = attached(endpoint)
        endpoint.call(0, does(SendStream(address, b"taken"), SendStream(address, b"not taken")))
        stranger = await met.get()
        assert await stranger.payload() == (CONTROL_CHANNEL, b"H" + endpoint.address.encode())
        assert [await stranger.payload(), await stranger.payload()] == [
            (0, b"taken"),
            (0, b"not taken"),
        ]
        stranger.write(ack(1))
        await until(lambda: endpoint._streams.outgoing_bytes == len(b"not taken"))
        await clock.advance(9.9)
        assert machine.log == []
        await clock.advance(1.2)
        assert machine.log == [("unreachable", address)]
        await stranger.wait_closed()


async def test_what_a_lost_connection_left_open_is_undelivered() -> None:
    async with listening() as (address, met), open_endpoint() as endpoint:
        machine = attached(endpoint)
        endpoint.call(0, does(SendStream(address, b"one"), SendStream(address, b"two")))
        stranger = await met.get()
        for _ in range(3):
            await stranger.payload()
        stranger.write(ack(1))
        await stranger.close()
        assert await machine.next() == ("unreachable", address)
        assert machine.heard.empty()
        assert endpoint._streams.outgoing_bytes == 0


async def test_no_connection_in_time_is_undelivered(clock: ManualClock) -> None:
    # A full queue of connections that nobody accepts: the system lets us wait.
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        place = deaf.getsockname()
        with contextlib.ExitStack() as fillers:
            for _ in range(4):
                filler = fillers.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(place)
            async with open_endpoint(clock=clock) as endpoint:
                machine = attached(endpoint)
                address = f"127.0.0.1:{place[1]}"
                endpoint.call(0, does(SendStream(address, b"x")))
                await clock.advance(4.9)
                assert machine.log == []
                await clock.advance(1.2)
                assert machine.log == [("unreachable", address)]
                assert endpoint._streams.connections_count == 0


async def test_after_closing_nothing_fails_any_more() -> None:
    async with listening() as (address, met):
        async with open_endpoint() as endpoint:
            machine = attached(endpoint)
            endpoint.call(0, does(SendStream(address, b"x")))
            await met.get()
        await asyncio.sleep(0)
        assert machine.log == []


async def test_failing_is_told_in_a_turn_of_its_own_and_not_once_closed() -> None:
    failed: list[tuple[int, str, str]] = []
    async with open_endpoint() as endpoint:
        endpoint._streams._failed = lambda *failure: failed.append(failure)
        endpoint._streams.send(0, "nowhere", b"x")
        assert failed == []  # a machine that answers a failure by sending again would never end
        await asyncio.sleep(0)
        assert [failure[:2] for failure in failed] == [(0, "nowhere")]
        endpoint._streams.send(0, "nowhere", b"x")
    await asyncio.sleep(0)
    assert len(failed) == 1


# -- who is on the other side ------------------------------------------------------------------------


async def test_the_hello_says_where_messages_come_from() -> None:
    async with open_endpoint() as endpoint, dialled(endpoint) as stranger:
        machine = attached(endpoint)
        machine.answer = lambda data, sender: [SendStream(sender, b"answer")]
        stranger.write(hello("127.0.0.1:4242") + framed(b"x"))
        assert await machine.next() == ("stream", b"x", "127.0.0.1:4242")
        received = {await stranger.payload(), await stranger.payload()}
        assert received == {(0, b"answer"), (CONTROL_CHANNEL, b"A\0\0\0\1")}


async def test_claiming_to_be_on_another_host_does_not_get_its_messages() -> None:
    async with open_endpoint() as endpoint, dialled(endpoint) as stranger:
        machine = attached(endpoint)
        async with open_endpoint("127.0.0.2:0") as real:
            other = attached(real)
            stranger.write(hello(real.address) + framed(b"x"))
            assert await machine.next() == ("stream", b"x", real.address)
            endpoint.call(0, does(SendStream(real.address, b"secret")))
            assert await other.next() == ("stream", b"secret", endpoint.address)
        assert await stranger.payload() == (CONTROL_CHANNEL, b"A\0\0\0\1")


@pytest.mark.parametrize(
    "data",
    [
        framed(b"no hello"),
        ack(1),
        framed(b"", CONTROL_CHANNEL),
        framed(b"H", CONTROL_CHANNEL),
        framed(b"H\xff\xfe:1", CONTROL_CHANNEL),
        framed(b"Hlocalhost:x", CONTROL_CHANNEL),
        framed(b"Ha.name:9", CONTROL_CHANNEL),
        framed(b"H127.0.0.1\n:9", CONTROL_CHANNEL),
        hello() + hello(),
        hello() + ack(1),
        hello() + framed(b"A\0\0\1", CONTROL_CHANNEL),
        hello() + framed(b"A\0\0\0\0", CONTROL_CHANNEL),
        hello() + framed(b"?", CONTROL_CHANNEL),
        frame(b""),
        frame(b"rubbish"),
        frame(ENVELOPE.wrap(b"H127.0.0.1:9", channel=7, kind=Kind.PACKET, wall_ms=0)),
    ],
)
async def test_who_breaks_the_rules_is_cut_off_and_counted(data: bytes) -> None:
    async with open_endpoint() as endpoint, dialled(endpoint) as stranger:
        machine = attached(endpoint)
        stranger.write(data)
        await stranger.wait_closed()
        assert endpoint.statistics().dropped == {"malformed": 1}
        assert machine.log == []
        assert endpoint._streams.connections_count == endpoint._streams.gathered_bytes == 0


async def test_frames_over_the_limit_are_refused_by_their_length_alone() -> None:
    async with open_endpoint() as endpoint:
        attached(endpoint)
        for begin in (
            (2_000).to_bytes(4, "big"),
            hello() + b"\x7f\xff\xff\xff",
            b"GET / HTTP/1.1\r\n\r\n",
        ):
            async with dialled(endpoint) as stranger:
                stranger.write(begin)
                await stranger.wait_closed()
        assert endpoint.statistics().dropped == {"too big": 3}


async def test_work_per_turn_is_bounded_however_many_frames_arrive() -> None:
    async with open_endpoint() as endpoint, dialled(endpoint) as stranger:
        machine = attached(endpoint)
        stranger.write(hello() + framed(b"x") * 1_000)
        taken = [0]
        while taken[-1] < 1_000:
            await asyncio.sleep(0)
            taken.append(endpoint.statistics().messages_in)
        assert max(b - a for a, b in itertools.pairwise(taken)) <= 64
        acknowledged = 0
        while acknowledged < 1_000:
            _, payload = await stranger.payload()
            acknowledged += int.from_bytes(payload[1:], "big")
        assert acknowledged == len(machine.log) == 1_000


async def test_acknowledgements_do_not_pile_up_for_who_does_not_read_them() -> None:
    async with open_endpoint() as endpoint, dialled(endpoint) as stranger:
        machine = attached(endpoint)
        stranger.write(hello() + framed(b"x"))
        await machine.next()
        (connection,) = endpoint._streams._accepted
        connection.pause_writing()
        sent = endpoint.statistics().stream_bytes_out
        for number in range(2, 10):
            stranger.write(framed(b"x"))
            await until(lambda: len(machine.log) == number)  # noqa: B023
        assert endpoint.statistics().stream_bytes_out == sent
        connection.resume_writing()
        counts = [(await stranger.payload())[1][1:] for _ in range(2)]
        assert [int.from_bytes(count, "big") for count in counts] == [1, 8]


# -- time --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "begin", [b"", b"\0", hello()[:-1], hello() + b"\0", hello() + framed(b"x" * 99)[:-1]]
)
async def test_who_says_too_little_is_cut_off_in_time(begin: bytes, clock: ManualClock) -> None:
    async with open_endpoint(clock=clock, streams=StreamSettings(frame_timeout_s=10.0)) as endpoint:
        attached(endpoint)
        async with dialled(endpoint) as stranger:
            stranger.write(begin)
            await until(lambda: endpoint.statistics().stream_bytes_in == len(begin))
            await until(lambda: endpoint._streams.connections_count == 1)
            await clock.advance(9.9)
            assert endpoint._streams.connections_count == 1
            await clock.advance(1.2)
            assert endpoint._streams.connections_count == endpoint._streams.gathered_bytes == 0
            await stranger.wait_closed()
            assert endpoint.statistics().dropped == {"slow": 1}


async def test_one_byte_now_and_then_does_not_hold_a_connection(clock: ManualClock) -> None:
    async with open_endpoint(clock=clock, streams=StreamSettings(frame_timeout_s=10.0)) as endpoint:
        attached(endpoint)
        async with dialled(endpoint) as stranger:
            stranger.write(hello())
            slow = framed(b"x" * 50)
            for at in range(12):
                if endpoint.statistics().dropped:
                    break
                stranger.write(slow[at : at + 1])
                await until(lambda: endpoint.statistics().stream_bytes_in == len(hello()) + at + 1)  # noqa: B023
                await clock.advance(1.0)
            assert endpoint.statistics().dropped == {"slow": 1}


async def test_each_frame_has_its_own_time(clock: ManualClock) -> None:
    async with open_endpoint(clock=clock, streams=StreamSettings(frame_timeout_s=10.0)) as endpoint:
        machine = attached(endpoint)
        async with dialled(endpoint) as stranger:
            stranger.write(hello())
            slow = framed(b"x" * 50)
            stranger.write(slow[:-1])
            for _ in range(4):
                await until(lambda: endpoint._streams.gathered_bytes == len(slow) - 1)
                await clock.advance(6.0)
                stranger.write(slow[-1:] + slow[:-1])
                assert await machine.next() == ("stream", b"x" * 50, "127.0.0.1:9")
            assert endpoint.statistics().dropped == {}


async def test_idle_connections_are_closed_by_who_opened_them(clock: ManualClock) -> None:
    async with open_endpoint(clock=clock) as a, open_endpoint(clock=clock) as b:
        attached(a)
        other = attached(b)
        a.call(0, does(SendStream(b.address, b"x")))
        await other.next()
        await until(lambda: a._streams.outgoing_bytes == 0)
        await clock.advance(14.0)
        assert (a._streams.connections_count, b._streams.connections_count) == (1, 1)
        await clock.advance(2.0)
        assert a._streams.connections_count == 0
        await until(lambda: b._streams.connections_count == 0)
        assert a.statistics().dropped == b.statistics().dropped == {}


async def test_a_connection_that_its_owner_forgot_is_closed_later(clock: ManualClock) -> None:
    async with open_endpoint(clock=clock) as endpoint, dialled(endpoint) as stranger:
        machine = attached(endpoint)
        stranger.write(hello() + framed(b"x"))
        await machine.next()
        await clock.advance(29.0)
        assert endpoint._streams.connections_count == 1
        await clock.advance(2.0)
        await stranger.wait_closed()
        assert endpoint.statistics().dropped == {}


async def test_a_connection_that_may_be_closed_any_moment_is_not_used(clock: ManualClock) -> None:
    async with open_endpoint(clock=clock) as a, open_endpoint(clock=clock) as b:
        machine, other = attached(a), attached(b)
        a.call(0, does(SendStream(b.address, b"x")))
        await other.next()
        await clock.advance(8.0)
        b.call(0, does(SendStream(a.address, b"late answer")))
        assert await machine.next() == ("stream", b"late answer", b.address)
        assert b.statistics().connections_out == 1


# -- bounds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", ["inbound_max", "inbound_per_host_max"])
async def test_connections_beyond_the_bound_are_closed_and_counted(bound: str) -> None:
    async with open_endpoint(streams=StreamSettings(**{bound: 2})) as endpoint:
        machine = attached(endpoint)
        async with dialled(endpoint) as one, dialled(endpoint) as two:
            await until(lambda: endpoint._streams.connections_count == 2)
            async with dialled(endpoint) as three:
                await three.wait_closed()
            assert endpoint.statistics().dropped == {"rate": 1}
            for number, stranger in enumerate((one, two)):
                stranger.write(hello(f"127.0.0.1:{number + 1}") + framed(b"x"))
                assert await machine.next() == ("stream", b"x", f"127.0.0.1:{number + 1}")
        await until(lambda: endpoint._streams.connections_count == 0)
        async with dialled(endpoint) as again:
            again.write(hello() + framed(b"y"))
            assert await machine.next() == ("stream", b"y", "127.0.0.1:9")


async def test_one_host_cannot_take_the_places_of_others() -> None:
    settings = StreamSettings(inbound_per_host_max=2)
    async with open_endpoint("0.0.0.0:0", advertise="127.0.0.1:0", streams=settings) as endpoint:
        machine = attached(endpoint)
        async with dialled(endpoint), dialled(endpoint), open_endpoint("127.0.0.3:0") as other:
            await until(lambda: endpoint._streams.connections_count == 2)
            attached(other)
            other.call(0, does(SendStream(endpoint.address, b"x")))
            assert await machine.next() == ("stream", b"x", other.address)


async def test_half_received_frames_are_bounded_over_all_connections() -> None:
    settings = StreamSettings(gathered_bytes_max=100_000)
    async with open_endpoint(streams=settings) as endpoint:
        attached(endpoint)
        half = (200_000).to_bytes(4, "big") + bytes(60_000)
        async with dialled(endpoint) as one, dialled(endpoint) as two:
            one.write(hello("127.0.0.1:1") + half)
            await until(lambda: endpoint._streams.gathered_bytes == len(half))
            two.write(hello("127.0.0.1:2") + half)
            await two.wait_closed()
            assert endpoint.statistics().dropped == {"rate": 1}
            assert endpoint._streams.gathered_bytes == len(half)
        await until(lambda: endpoint._streams.gathered_bytes == 0)


async def test_the_connection_that_was_idle_longest_makes_room(clock: ManualClock) -> None:
    settings = StreamSettings(outbound_max=2)
    async with contextlib.AsyncExitStack() as stack:
        a = await stack.enter_async_context(open_endpoint(clock=clock, streams=settings))
        machine = attached(a)
        others = [await stack.enter_async_context(open_endpoint()) for _ in range(3)]
        for other in others:
            heard = attached(other)
            a.call(0, does(SendStream(other.address, b"x")))
            await heard.next()
            await until(lambda: a._streams.outgoing_bytes == 0)
            clock.jump(0.1)
        assert list(a._streams._dialled) == [others[1].address, others[2].address]
        assert machine.log == []


async def test_without_an_idle_connection_a_message_is_undeliverable() -> None:
    settings = StreamSettings(outbound_max=1)
    async with listening() as (address, _), open_endpoint(streams=settings) as endpoint:
        machine = attached(endpoint)
        endpoint.call(0, does(SendStream(address, b"x"), SendStream("127.0.0.1:9", b"x")))
        assert await machine.next() == ("unreachable", "127.0.0.1:9")
        assert endpoint._streams.connections_count == 1


async def test_what_waits_to_be_delivered_is_bounded() -> None:
    settings = StreamSettings(outgoing_bytes_max=1_000)
    async with listening() as (address, met), open_endpoint(streams=settings) as endpoint:
        machine = attached(endpoint)
        endpoint.call(0, does(*[SendStream(address, bytes(400))] * 3))
        assert await machine.next() == ("unreachable", address)
        stranger = await met.get()
        for _ in range(3):
            await stranger.payload()
        stranger.write(ack(2))
        await until(lambda: endpoint._streams.outgoing_bytes == 0)
        assert machine.heard.empty()


async def test_messages_to_one_member_are_bounded_in_number() -> None:
    async with listening() as (address, _), open_endpoint() as endpoint:
        machine = attached(endpoint)
        endpoint.call(0, does(*[SendStream(address, b"")] * 1_030))
        for _ in range(6):
            assert await machine.next() == ("unreachable", address)
        assert machine.heard.empty()


def test_settings_that_cannot_work_are_refused() -> None:
    for name in StreamSettings.__struct_fields__:
        with pytest.raises(InvalidRequest, match=name):
            StreamSettings(**{name: 0})


def test_frames_may_be_cut_anywhere() -> None:
    data = frame(b"one") + frame(b"") + frame(b"three")
    for step in range(1, len(data)):
        reader, frames = FrameReader(5), []
        for at in range(0, len(data), step):
            reader.feed(data[at : at + step])
            while (got := reader.next_frame()) is not None:
                frames.append(got)
        assert frames == [b"one", b"", b"three"]
        assert len(reader) == 0
    reader.feed(frame(b"longer"))
    with pytest.raises(ProtocolError):
        reader.next_frame()
