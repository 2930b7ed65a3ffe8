"""Machines on real sockets: their effects are carried out, their bugs surface, rubbish is counted."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import math
import os
import socket
from collections.abc import Callable

import pytest

from quoracy.clock import ManualClock, SystemClock, Timer
from quoracy.errors import InvalidRequest, ProtocolError, Unavailable
from quoracy.membership.machine import Address, Effect, SendPacket, SendStream, Tell
from quoracy.membership.runtime import addresses
from quoracy.membership.runtime.addresses import bind_pair
from quoracy.membership.runtime.endpoint import PACKETS_PER_TURN, Endpoint, open_endpoint
from quoracy.membership.runtime.envelope import Envelope, EnvelopeSettings, Kind
from quoracy.membership.runtime.keyring import KeyRing, generate_key
from tests.membership.runtime.recorder import REFUSED, Recorder
from tests.support.asking import until

pytestmark = pytest.mark.filterwarnings("error")


def attached(endpoint: Endpoint, channel: int = 0) -> Recorder:
    machine = Recorder()
    endpoint.attach(channel, machine, machine.told)
    return machine


def does(*effects: Effect) -> Callable[[float], list[Effect]]:
    return lambda now: list(effects)


def plain_socket(endpoint: Endpoint) -> socket.socket:
    """Somebody else, who can send anything to it."""
    host, _, port = endpoint.bound.rpartition(":")
    stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    stranger.connect((host, int(port)))
    return stranger


def wire(payload: bytes, channel: int = 0) -> bytes:
    return Envelope(entropy=os.urandom).wrap(payload, channel=channel, kind=Kind.PACKET, wall_ms=0)


# -- packets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "[::1]:0"])
@pytest.mark.parametrize("is_sealed", [False, True])
async def test_packets_arrive_with_the_address_of_their_sender(bind: str, is_sealed: bool) -> None:
    ring = KeyRing(generate_key()) if is_sealed else None
    async with open_endpoint(bind, keyring=ring) as a, open_endpoint(bind, keyring=ring) as b:
        machine, other = attached(a), attached(b)
        a.call(0, does(SendPacket(b.address, b"one"), SendPacket(b.address, b"two" * 300)))
        assert await other.next() == ("packet", b"one", a.address)
        assert await other.next() == ("packet", b"two" * 300, a.address)
        assert machine.log == []
        assert (a.statistics().packets_out, b.statistics().packets_in) == (2, 2)
        assert a.statistics().packet_bytes_out == b.statistics().packet_bytes_in > 0


async def test_each_machine_hears_its_own_channel() -> None:
    async with open_endpoint() as a, open_endpoint() as b:
        machines = [(attached(a, channel), attached(b, channel)) for channel in (0, 1, 6)]
        for channel in (6, 1, 0):
            a.call(channel, does(SendPacket(b.address, b"%d" % channel)))
        for channel, (_, other) in zip((0, 1, 6), machines, strict=True):
            assert await other.next() == ("packet", b"%d" % channel, a.address)
            assert other.heard.empty()


async def test_a_channel_without_a_machine_is_counted() -> None:
    async with open_endpoint() as a, open_endpoint() as b:
        attached(a, 1)
        a.call(1, does(SendPacket(b.address, b"x"), SendStream(b.address, b"x")))
        await until(lambda: b.statistics().dropped == {"unknown channel": 2})


async def test_what_a_machine_refuses_is_counted_and_nothing_else_happens() -> None:
    async with open_endpoint() as a, open_endpoint() as b:
        attached(a)
        other = attached(b)
        a.call(0, does(SendPacket(b.address, REFUSED), SendPacket(b.address, b"sense")))
        assert await other.next() == ("packet", b"sense", a.address)
        a.call(0, does(SendStream(b.address, REFUSED), SendStream(b.address, b"more")))
        assert await other.next() == ("stream", b"more", a.address)
        assert b.statistics().dropped == {"refused": 2}


async def test_members_of_differently_labelled_or_keyed_clusters_do_not_hear_each_other() -> None:
    ring = KeyRing(generate_key())
    async with open_endpoint() as plain, open_endpoint(label="blue") as blue:
        async with open_endpoint(keyring=ring) as keyed:
            machines = {each.address: attached(each) for each in (plain, blue, keyed)}
            for one in (plain, blue, keyed):
                for other in (plain, blue, keyed):
                    if one is not other:
                        one.call(
                            0, does(SendPacket(other.address, b"x"), SendStream(other.address, b"x"))
                        )
            await until(lambda: all(len(each.log) == 2 for each in machines.values()))
            for machine in machines.values():
                assert {event[0] for event in machine.log} == {"unreachable"}
            assert plain.statistics().dropped == {"wrong key": 2, "wrong label": 2}
            assert blue.statistics().dropped == {"wrong label": 4}
            assert keyed.statistics().dropped == {"unencrypted": 2, "wrong label": 2}


async def test_a_recorded_packet_works_once() -> None:
    ring = KeyRing(generate_key())
    async with open_endpoint(keyring=ring) as endpoint:
        machine = attached(endpoint)
        sealed = Envelope(entropy=os.urandom, keyring=ring).wrap(
            b"once", channel=0, kind=Kind.PACKET, wall_ms=int(SystemClock().wall() * 1_000)
        )
        with plain_socket(endpoint) as stranger:
            for _ in range(3):
                stranger.send(sealed)
            await until(lambda: endpoint.statistics().packets_in == 3)
        assert len(machine.log) == 1
        assert endpoint.statistics().dropped == {"replayed": 2}


async def test_a_datagram_over_the_limit_is_too_big_whatever_is_in_it() -> None:
    async with open_endpoint() as endpoint:
        machine = attached(endpoint)
        with plain_socket(endpoint) as stranger:
            for data in (bytes(1_401), wire(b"x").ljust(1_401), bytes(60_000), wire(b"y")):
                stranger.send(data)
        assert (await machine.next())[1] == b"y"
        assert endpoint.statistics().dropped == {"too big": 3}


async def test_a_flood_of_rubbish_leaves_turns_to_everything_else() -> None:
    async with open_endpoint() as endpoint:
        machine = attached(endpoint)
        with plain_socket(endpoint) as stranger:
            for _ in range(3 * PACKETS_PER_TURN):
                stranger.send(b"rubbish")
            stranger.send(wire(b"sense"))
        taken = [endpoint.statistics().packets_in]
        while taken[-1] < 3 * PACKETS_PER_TURN + 1:
            await asyncio.sleep(0)
            taken.append(endpoint.statistics().packets_in)
        steps = [after - before for before, after in itertools.pairwise(taken)]
        assert max(steps) <= PACKETS_PER_TURN
        assert sum(1 for step in steps if step) >= 4
        assert (await machine.next())[1] == b"sense"
        assert endpoint.statistics().dropped == {"malformed": 3 * PACKETS_PER_TURN}


async def test_the_log_has_one_line_per_reason_in_ten_seconds(
    caplog: pytest.LogCaptureFixture, clock: ManualClock
) -> None:
    async with open_endpoint(clock=clock) as endpoint:
        with plain_socket(endpoint) as stranger, caplog.at_level(logging.WARNING):
            for round_count in (1, 2):
                for _ in range(50):
                    stranger.send(b"rubbish")
                    stranger.send(b"\xd7 from the future")
                await until(lambda: endpoint.statistics().packets_in == 100 * round_count)  # noqa: B023
                assert len(caplog.records) == 2 * round_count
                clock.jump(10.0)
        assert "51 so far" in caplog.text


async def test_a_stranger_cannot_write_lines_of_our_log(caplog: pytest.LogCaptureFixture) -> None:
    async with open_endpoint() as endpoint:
        machine = attached(endpoint)
        to = "x\nroot logged in\udc80:1"
        with caplog.at_level(logging.DEBUG, logger="quoracy"):
            endpoint.call(0, does(SendPacket(to, b"x"), SendStream(to, b"x")))
            await machine.next()
        assert len(caplog.records) == 2
        for record in caplog.records:
            assert record.getMessage().isascii()
            assert "\n" not in record.getMessage()


# -- what cannot be sent -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "to",
    [
        "[::1]:9",
        "a.name:9",
        "127.0.0.1:99999",
        "",
        "::",
        "127.0.0.1:0",
        "x" * 300 + ":1",
        "\udc80:1",
        "a..b:1",
    ],
    ids=lambda to: ascii(to)[:20],
)
async def test_an_address_that_does_not_work_is_counted_and_never_raised(to: str) -> None:
    async with open_endpoint() as endpoint:
        machine = attached(endpoint)
        endpoint.call(0, does(SendPacket(to, b"x"), SendStream(to, b"x")))
        assert await machine.next() == ("unreachable", to)
        assert sum(endpoint.statistics().unsent.values()) == 1
        assert endpoint.statistics().packets_out == 0
        assert not endpoint.is_stopped


async def test_packets_to_where_nobody_listens_disturb_nobody() -> None:
    async with open_endpoint() as a, open_endpoint() as b:
        attached(a)
        other = attached(b)
        gone = await bind_pair("127.0.0.1:0")
        gone.close()
        for _ in range(20):
            a.call(0, does(SendPacket(gone.bound, b"x"), SendPacket(b.address, b"y")))
            assert await other.next() == ("packet", b"y", a.address)


async def test_errors_of_the_system_are_counted_by_name() -> None:
    large = EnvelopeSettings(datagram_bytes_max=65_507)
    async with open_endpoint(envelope=large) as endpoint:
        attached(endpoint)
        # Broadcasts need a permission that we did not ask for.
        endpoint.call(0, does(SendPacket("255.255.255.255:9", b"x")))
        assert list(endpoint.statistics().unsent) in (["EACCES"], ["ENETUNREACH"])


async def test_a_packet_over_the_limit_is_a_bug_of_the_machine() -> None:
    with pytest.raises(InvalidRequest, match="datagram_bytes_max"):
        async with open_endpoint() as endpoint:
            attached(endpoint)
            endpoint.call(0, does(SendPacket("127.0.0.1:9", bytes(1_400))))
            assert endpoint.is_stopped


# -- time --------------------------------------------------------------------------------------------


class CountingClock(ManualClock):
    """Also says how many timers were asked for."""

    timers = 0
    last: asyncio.Future[None]

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        self.timers += 1
        timer = super().call_later(seconds, callback)
        assert isinstance(timer, asyncio.Future)
        self.last = timer
        return timer


async def test_a_machine_ticks_when_it_is_due_and_not_before() -> None:
    clock = CountingClock()
    async with open_endpoint(clock=clock) as endpoint:
        machine = attached(endpoint)
        machine.next_due = 5.0
        endpoint.call(0, does())
        await clock.advance(4.9)
        assert machine.ticks == []
        await clock.advance(0.2)
        assert machine.ticks == [5.0]
        await clock.advance(100.0)
        assert machine.ticks == [5.0]


async def test_a_timer_is_set_anew_only_if_it_is_due_earlier() -> None:
    clock = CountingClock()
    async with open_endpoint(clock=clock) as endpoint:
        machine = attached(endpoint)
        for due, timers in ((5.0, 1), (9.0, 1), (7.0, 1), (3.0, 2), (3.0, 2), (6.0, 2), (math.inf, 2)):
            machine.next_due = due
            endpoint.call(0, does())
            assert clock.timers == timers
        machine.next_due = 6.0
        await clock.advance(5.0)
        assert machine.ticks == []  # the timer came at 3, saw that nothing is due, and was set anew
        assert clock.timers == 3
        await clock.advance(1.0)
        assert machine.ticks == [6.0]


async def test_what_is_due_already_happens_at_once() -> None:
    clock = ManualClock(100.0)
    async with open_endpoint(clock=clock) as endpoint:
        machine = attached(endpoint)
        machine.on_tick = lambda now: [Tell(("ticked", now))]
        machine.next_due = 1.0
        endpoint.call(0, does())
        assert await machine.next() == ("ticked", 100.0)


async def test_a_detached_machine_is_left_alone() -> None:
    clock = CountingClock()
    async with open_endpoint(clock=clock) as endpoint:
        machine = attached(endpoint)
        machine.next_due = 1.0
        endpoint.call(0, does())
        endpoint.detach(0)
        assert clock.last.cancelled()  # or it would keep the machine in memory until it is due
        await clock.advance(5.0)
        assert machine.ticks == []
        other = attached(endpoint)
        other.next_due = 6.0
        endpoint.call(0, lambda _: [])
        await clock.advance(5.0)
        assert (machine.ticks, other.ticks) == ([], [6.0])


# -- effects -----------------------------------------------------------------------------------------


async def test_effects_of_calls_from_within_a_tell_come_after_those_decided_before() -> None:
    async with open_endpoint() as endpoint:
        machine = Recorder()
        order: list[object] = []

        def told(event: object) -> None:
            order.append(event)
            if event == "first":
                endpoint.call(0, does(Tell("nested"), Tell("nested too")))
                order.append("called")

        endpoint.attach(0, machine, told)
        endpoint.call(0, does(Tell("first"), Tell("second")))
        assert order == ["first", "called", "second", "nested", "nested too"]


async def test_what_a_call_raises_goes_to_the_caller_and_the_endpoint_goes_on() -> None:
    async with open_endpoint() as endpoint:
        machine = attached(endpoint)

        def refuse(now: float) -> list[Effect]:
            raise InvalidRequest("no such member")

        with pytest.raises(InvalidRequest, match="no such member"):
            endpoint.call(0, refuse)
        endpoint.call(0, does(Tell(("still here",))))
        assert machine.log == [("still here",)]


async def test_on_unreachable_is_told_why() -> None:
    async with open_endpoint() as endpoint:
        machine = Recorder()
        reasons: list[tuple[Address, str]] = []
        endpoint.attach(
            0, machine, machine.told, on_unreachable=lambda to, reason: reasons.append((to, reason))
        )
        gone = await bind_pair("127.0.0.1:0")
        gone.close()
        endpoint.call(0, does(SendStream(gone.bound, b"x")))
        await until(lambda: bool(reasons))
        assert reasons[0][0] == gone.bound
        assert "refused" in reasons[0][1].lower()
        assert machine.log == [("unreachable", gone.bound)]


# -- bugs surface ------------------------------------------------------------------------------------


class Bug(Exception):
    """No part of any protocol."""


def raises(*_: object) -> list[Effect]:
    raise Bug


@pytest.mark.parametrize(
    "where", ["receive", "receive_stream", "unreachable", "tick", "told", "on_unreachable"]
)
async def test_a_bug_stops_the_endpoint_and_is_raised(where: str, clock: ManualClock) -> None:
    with pytest.raises(Bug):
        async with open_endpoint(clock=clock) as endpoint, open_endpoint() as peer:
            machine, other = Recorder(), attached(peer)
            if where not in ("told", "on_unreachable"):
                setattr(machine, where, raises)
            endpoint.attach(
                0,
                machine,
                raises if where == "told" else machine.told,  # type: ignore[arg-type]
                on_unreachable=raises if where == "on_unreachable" else None,  # type: ignore[arg-type]
            )
            gone = await bind_pair("127.0.0.1:0")
            gone.close()
            match where:
                case "receive" | "told":
                    peer.call(0, does(SendPacket(endpoint.address, b"x")))
                case "receive_stream":
                    peer.call(0, does(SendStream(endpoint.address, b"x")))
                case "unreachable" | "on_unreachable":
                    endpoint.call(0, does(SendStream(gone.bound, b"x")))
                case "tick":
                    machine.next_due = 0.0
                    endpoint.call(0, does())
            with pytest.raises(Bug):
                async with asyncio.timeout(20):
                    await endpoint.wait_stopped()
            with pytest.raises(Unavailable, match="Bug"):
                endpoint.call(0, does())
            if where != "receive_stream":  # there it never got its acknowledgement
                assert other.log == []


async def test_a_protocol_error_out_of_nothing_is_a_bug() -> None:
    def wrong(now: float) -> list[Effect]:
        raise ProtocolError("of whom?")

    with pytest.raises(ProtocolError):
        async with open_endpoint() as endpoint:
            machine = attached(endpoint)
            machine.on_tick = wrong
            machine.next_due = 0.0
            endpoint.call(0, does())
            with pytest.raises(ProtocolError):
                await endpoint.wait_stopped()


async def test_a_machine_that_cannot_start_is_not_attached() -> None:
    async with open_endpoint() as endpoint:
        machine = Recorder()
        setattr(machine, "start", raises)  # noqa: B010 (mypy knows that it is a method)
        with pytest.raises(Bug):
            endpoint.attach(0, machine, machine.told)
        attached(endpoint)


# -- addresses ---------------------------------------------------------------------------------------


async def test_one_port_serves_packets_and_streams() -> None:
    async with open_endpoint() as endpoint:
        attached(endpoint)
        host, _, port = endpoint.address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        await writer.wait_closed()
        with pytest.raises(Unavailable, match="in use"):
            await bind_pair(endpoint.address)


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
async def test_a_port_that_is_half_taken_is_refused(kind: socket.SocketKind) -> None:
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind(("127.0.0.1", 0))
        if kind is socket.SOCK_STREAM:
            taken.listen()
        with pytest.raises(Unavailable, match="both are needed"):
            await bind_pair(f"127.0.0.1:{taken.getsockname()[1]}")


async def test_port_0_finds_one_that_is_free_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    real, tried = addresses._bind, list[object]()

    def half_taken(*arguments: object) -> addresses.SocketPair:
        tried.append(arguments)
        if len(tried) < 5:
            raise OSError(errno.EADDRINUSE, "taken for UDP")
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(addresses, "_bind", half_taken)
    (await bind_pair("127.0.0.1:0")).close()
    assert len(tried) == 5
    tried.clear()
    with pytest.raises(Unavailable, match="in use"):
        await bind_pair("127.0.0.1:1")
    assert len(tried) == 1


async def test_ipv6_everywhere_leaves_ipv4_to_others() -> None:
    pair = await bind_pair("[::]:0")
    for each in (pair.packets, pair.streams):
        assert each.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1
    pair.close()


@pytest.mark.parametrize("bind", ["203.0.113.7:0", "no-such-host.invalid:0"])
async def test_an_address_that_is_not_ours_is_refused(bind: str) -> None:
    with pytest.raises(Unavailable, match="cannot bind"):
        async with open_endpoint(bind):
            pass


async def test_what_is_advertised_gets_the_port_that_was_found() -> None:
    async with open_endpoint(advertise="192.0.2.5") as a, open_endpoint(advertise="192.0.2.5:7") as b:
        assert a.address == f"192.0.2.5:{a.bound.rpartition(':')[2]}"
        assert b.address == "192.0.2.5:7"


@pytest.mark.parametrize("channel", [-1, 7, 8])
async def test_machines_cannot_have_channels_that_are_none_or_taken(channel: int) -> None:
    async with open_endpoint() as endpoint:
        with pytest.raises(InvalidRequest, match="0 to 6"):
            attached(endpoint, channel)
        attached(endpoint, 3)
        with pytest.raises(InvalidRequest, match="already"):
            attached(endpoint, 3)
        with pytest.raises(InvalidRequest, match="no machine"):
            endpoint.call(4, does())


async def test_a_closed_endpoint_says_so_and_frees_its_port() -> None:
    async with open_endpoint() as endpoint:
        attached(endpoint)
    with pytest.raises(Unavailable, match="has stopped"):
        endpoint.call(0, does())
    await endpoint.wait_stopped()
    async with open_endpoint(endpoint.bound) as again:
        assert again.address == endpoint.address
