"""Finding the others: seeds that are there, that are not, that come later, that are ourselves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

import pytest

from quoracy import membership
from quoracy.errors import InvalidRequest, Unavailable
from quoracy.membership import Changed, Conflict, MemberChangeKind
from quoracy.membership.runtime import seeds as joining_module
from quoracy.membership.runtime.keyring import KeyRing, generate_key
from quoracy.membership.runtime.queries import AgentQuery
from tests.membership.runtime.test_cluster import ANY, QUICK, join, names_of, soon, until_sees

_ports = iter(range(21_000 + os.getpid() % 5_000, 32_000))


def free_address() -> str:
    """Where nobody listens, for UDP and TCP, below the ports that are given out; each time another."""
    for port in _ports:
        with contextlib.suppress(OSError), socket.socket() as tcp, _udp() as udp:
            tcp.bind(("127.0.0.1", port))
            udp.bind(("127.0.0.1", port))
            return f"127.0.0.1:{port}"
    raise AssertionError("all ports are in use")


def _udp() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining_module, "RETRY_S_MIN", 0.02)
    monkeypatch.setattr(joining_module, "RETRY_S_MAX", 0.1)


async def test_without_seeds_it_is_the_first() -> None:
    async with join("a") as a:
        assert names_of(a) == "a"
        assert a.seeds_missing == ""


async def test_a_seed_that_is_ourselves_is_fine() -> None:
    address = free_address()
    async with membership.join(address, [address], name="a", settings=QUICK) as a:
        assert a.seeds_missing == ""
        assert names_of(a) == "a"


async def test_a_seed_that_is_ourselves_is_recognised_at_every_address_of_this_machine() -> None:
    port = free_address().rpartition(":")[2]
    seeds = [f"127.0.0.1:{port}", f"127.0.0.2:{port}", f"localhost:{port}"]
    async with membership.join(f"0.0.0.0:{port}", seeds, name="a", settings=QUICK) as a:
        assert a.seeds_missing == ""
        assert a.statistics().traffic.messages_out == 0


async def test_one_seed_that_answers_is_enough() -> None:
    async with join("a") as a, join("b", seeds=[free_address(), a.me.address]) as b:
        assert names_of(b) == "ab"


async def test_that_no_seed_answers_is_told_of_each_of_them() -> None:
    first, second = free_address(), "no-such-machine.invalid"
    with pytest.raises(Unavailable) as raised:
        async with join("a", seeds=[first, second]):
            pass
    message = str(raised.value)
    assert message.startswith("no seed took us in (")
    assert f"{first}: no connection" in message
    assert "'no-such-machine.invalid' is not the name of a machine" in message


async def test_a_seed_that_says_nothing_is_waited_for_no_longer_than_allowed() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unavailable, match=f"{address}: no answer"):
            async with join("a", seeds=[address], join_timeout=0.2):
                pass


async def test_an_address_that_makes_no_sense_is_refused_before_anything_is_opened() -> None:
    with pytest.raises(InvalidRequest, match=r"'10\.0\.0\.1:x' is no address"):
        async with join("a", seeds=["10.0.0.1:x"]):
            pass


@pytest.mark.usefixtures("quick_retries")
async def test_seeds_that_were_not_there_are_asked_until_they_are() -> None:
    address = free_address()
    async with join("a", seeds=[address], keep_trying=True) as a:
        assert address in a.seeds_missing
        async with membership.join(address, name="b", settings=QUICK):
            await until_sees(a, "ab")
            assert a.seeds_missing == ""


@pytest.mark.usefixtures("quick_retries")
async def test_two_that_are_each_others_seeds_find_each_other() -> None:
    first, second = free_address(), free_address()
    one = membership.join(first, [first, second], name="a", settings=QUICK, keep_trying=True)
    async with one as a:
        other = membership.join(second, [first, second], name="b", settings=QUICK, keep_trying=True)
        async with other as b:
            await until_sees(a, "ab")
            await until_sees(b, "ab")


async def test_names_that_cannot_be_looked_up_are_an_error_even_for_the_patient() -> None:
    with pytest.raises(Unavailable, match="is not the name of a machine"):
        async with join("a", seeds=["no-such-machine.invalid"], keep_trying=True):
            pass


async def test_whoever_does_not_wait_gets_the_cluster_at_once_and_the_members_later() -> None:
    async with join("a") as a, join("b", a, wait=False) as b:
        assert names_of(b) == "b"
        await until_sees(b, "ab")


async def test_a_name_that_another_member_has_is_refused_with_its_address() -> None:
    async with join("a") as a, join("b", a) as b:
        events = a.events()
        with pytest.raises(InvalidRequest, match=f"'b' belongs to the member at {b.me.address}"):
            async with join("b", a):
                pass
        # The one that was refused has not said goodbye in the other's name.
        await b.update_meta({"still": "here"})
        heard = await soon(anext(events))
        while isinstance(heard, Conflict):
            heard = await soon(anext(events))
        assert isinstance(heard, Changed)
        assert (heard.kind, heard.member.address) == (MemberChangeKind.UPDATED, b.me.address)


async def test_the_default_name_is_the_hosts_and_tells_ports_apart() -> None:
    async with membership.join(ANY) as a, membership.join(ANY, [a.me.address]) as b:
        port = a.me.address.rpartition(":")[2]
        assert a.me.name == f"{socket.gethostname()}-{port}"
        assert a.me.name != b.me.name


async def test_a_port_in_use_is_told() -> None:
    async with join("a") as a:
        with pytest.raises(Unavailable, match=r"cannot bind .*: the port is in use"):
            async with membership.join(a.me.address, name="b"):
                pass


async def test_members_can_be_on_ipv6() -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"no IPv6 on this machine: {error}")
    one = membership.join("[::1]:0", name="a", settings=QUICK)
    async with one as a:
        async with membership.join("[::1]:0", [a.me.address], name="b", settings=QUICK) as b:
            await until_sees(a, "ab")
            assert b.me.address.startswith("[::1]:")


async def test_an_advertised_name_is_looked_up_and_gets_the_port() -> None:
    async with membership.join("0.0.0.0:0", name="a", advertise="localhost", settings=QUICK) as a:
        host, _, port = a.me.address.rpartition(":")
        assert host == "127.0.0.1"
        assert int(port) > 0


# -- asking without being a member -------------------------------------------------------------------


async def test_anyone_may_ask_a_member_without_a_key() -> None:
    async with join("a", meta={"zone": "x"}) as a, join("b", a, meta=b"\xff") as b:
        await until_sees(a, "ab")
        report = await AgentQuery(a.me.address).ask()
        assert (report.name, report.address, report.is_encrypted) == ("a", a.me.address, False)
        mine, other = report.members
        assert (mine.name, mine.state, mine.meta) == ("a", "alive", {"zone": "x"})
        assert (other.name, other.address, other.meta_bytes) == ("b", b.me.address, b"\xff")
        assert names_of(a) == names_of(b) == "ab"  # who asks is no member


async def test_with_a_key_only_who_has_it_gets_an_answer() -> None:
    ring = KeyRing(generate_key())
    async with join("a", keyring=ring) as a:
        assert (await AgentQuery(a.me.address, keyring=ring).ask()).is_encrypted
        for wrong in (None, KeyRing(generate_key())):
            with pytest.raises(Unavailable, match="with the same key and the same label"):
                await AgentQuery(a.me.address, keyring=wrong).ask()
        assert sum(a.statistics().traffic.dropped.values()) >= 2


async def test_asking_nobody_is_an_error_that_says_where() -> None:
    address = free_address()
    with pytest.raises(Unavailable, match=f"no member answers at {address}"):
        await AgentQuery(address).ask()


async def test_one_that_accepts_and_says_nothing_is_given_up_on() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        with pytest.raises(TimeoutError, match=rf"no answer from 127\.0\.0\.1:{port} within 0\.2 s"):
            await AgentQuery(f"127.0.0.1:{port}", timeout_s=0.2).ask()


async def test_many_may_ask_at_once() -> None:
    async with join("a") as a:
        reports = await asyncio.gather(*(AgentQuery(a.me.address).ask() for _ in range(50)))
        assert {report.name for report in reports} == {"a"}
