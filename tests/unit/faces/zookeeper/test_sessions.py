"""Sessions: they begin durable, end neither early nor late, and are whose password they have."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from typing import Any, cast

import pytest

from quoracy.clock import ManualClock
from quoracy.engines.opening import open_embedded
from quoracy.errors import Indeterminate, LeaseNotFound, NoSpace, Overloaded, QuoracyError, Unavailable
from quoracy.faces.zookeeper.serving.session_timing import NEAR, RENEW_S
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree.layout import session_key
from quoracy.store.api import Store
from quoracy.wire.zookeeper.codes import Op
from tests.support.zookeeper_frames import connect_frame, create_body, request

from . import dialogue
from .dialogue import Client, Connected, serving

REFUSED = Connected(0, 0, bytes(16), b"\0")
# Until the store has looked which leases are due, and the replica has heard of it.
TICK_S = 0.2


@pytest.fixture(autouse=True, params=[False, True], ids=["in process", "remote"])
def stores_are_remote(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store in this process is followed in another way than one that is not: both must do."""
    monkeypatch.setattr(dialogue, "stores_are_remote", request.param)


class Troubled:
    """A store that fails when it is told to, and counts what it is asked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()
        self.faults: dict[str, QuoracyError] = {}
        self.answers = asyncio.Event()  # cleared, it does not answer
        self.answers.set()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def called(*args: Any, **options: Any) -> Any:
            self.calls[name] += 1
            if name in self.faults:
                raise self.faults[name]
            result = await method(*args, **options)
            await self.answers.wait()
            return result

        return called


def back_to(told: Connected, timeout_ms: int = 10_000) -> bytes:
    return connect_frame(timeout_ms=timeout_ms, session_id=told.session_id, password=told.password)


async def heartbeat(client: Client) -> None:
    assert (await client.ask(Op.PING, xid=-2)).xid == -2


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


# -- the beginning ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "given"), [(-5, 4000), (0, 4000), (4000, 4000), (12_345, 12_345), (2**31 - 1, 40_000)]
)
async def test_timeout_is_kept_within_the_bounds_of_the_server(asked: int, given: int) -> None:
    async with serving() as face:
        assert (await Client(face).connect(connect_frame(timeout_ms=asked))).timeout_ms == given


async def test_client_is_told_of_a_session_when_it_is_in_the_store_and_in_the_tree() -> None:
    async with serving() as face:
        told = await Client(face).connect()
        assert 0 < told.session_id < 2**63
        assert len(told.password) == 16
        (record,) = (await face.store.range(session_key(told.session_id))).kvs
        assert record.lease == told.session_id
        assert (await face.store.time_to_live(told.session_id)).ttl_s == NEAR.ttl_s(10_000) == 10.5
        assert face.tree.sessions[told.session_id].password == told.password


async def test_sessions_cannot_be_guessed() -> None:
    async with serving() as face:
        sessions = [await Client(face, port=port).connect() for port in range(20)]
        assert len({each.session_id for each in sessions}) == 20
        assert len({each.password for each in sessions}) == 20
        assert max(each.session_id for each in sessions).bit_length() > 48


@pytest.mark.parametrize(("sent", "echoed"), [(b"", b""), (b"\0", b"\0"), (b"\1", b"\0")])
async def test_read_only_byte_is_echoed_if_it_was_sent(sent: bytes, echoed: bytes) -> None:
    async with serving() as face:
        assert (await Client(face).connect(connect_frame(read_only=sent))).read_only == echoed
        unknown = connect_frame(read_only=sent, session_id=77)
        assert (await Client(face).connect(unknown)).read_only == echoed


TROUBLE: list[QuoracyError] = [
    Unavailable("no leader"),
    Overloaded(pending=2, pending_max=1),
    Indeterminate("the answer was lost"),
    NoSpace(size=2, size_max=1),
]


@pytest.mark.parametrize("error", TROUBLE, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", ["grant", "put"])
async def test_session_that_may_not_exist_is_not_handed_out(call: str, error: QuoracyError) -> None:
    async with open_embedded("memory:") as store:
        troubled = Troubled(store)
        async with serving(store=cast(Store, troubled)) as face:
            troubled.faults[call] = error
            client = Client(face)
            client.say(connect_frame())
            await client.wait_closed()
            assert client.unparsed == b""
            troubled.faults.clear()
            assert (await Client(face).connect()).session_id


async def test_session_of_a_client_that_left_meanwhile_ends_at_once() -> None:
    async with serving() as face:
        client = Client(face)
        client.say(connect_frame())
        client.lose()
        await settle()
        assert await face.store.leases() == ()
        assert face.tree.sessions == {}


# -- the end ---------------------------------------------------------------------------------


async def test_silent_session_lives_for_its_timeout_and_hardly_longer() -> None:
    clock = ManualClock()
    async with serving(clock=clock) as face:
        client = Client(face)
        told = await client.connect()
        await client.ask(Op.CREATE, create_body(b"/mine", flags=1))
        await clock.advance(10.0)
        assert b"/mine" in face.tree.nodes
        assert not client.is_closed()
        await clock.advance(RENEW_S + TICK_S)
        assert b"/mine" not in face.tree.nodes
        assert client.is_closed()
        again = back_to(told)
        assert await Client(face).connect(again) == REFUSED


@pytest.mark.parametrize("at", [0.3, 0.7, 5.0, 9.9, 10.0])
async def test_session_lives_for_its_timeout_after_every_sign_of_life(at: float) -> None:
    clock = ManualClock()
    async with serving(clock=clock) as face:
        client = Client(face)
        await client.connect()
        await clock.advance(at)
        await heartbeat(client)
        await clock.advance(10.0)
        assert not client.is_closed()
        await clock.advance(RENEW_S + TICK_S)
        assert client.is_closed()


async def test_half_a_request_is_no_sign_of_life() -> None:
    clock = ManualClock()
    async with serving(clock=clock) as face:
        client = Client(face)
        await client.connect()
        for byte in request(1, Op.PING)[:-1]:
            await clock.advance(1.0)
            client.say(bytes((byte,)))
        assert client.is_closed()


async def test_signs_of_life_are_reported_now_and_then_not_each() -> None:
    clock = ManualClock()
    async with open_embedded("memory:", clock=clock) as store:
        troubled = Troubled(store)
        async with serving(store=cast(Store, troubled), clock=clock) as face:
            client = Client(face)
            await client.connect()
            for _ in range(100):
                await heartbeat(client)
            assert troubled.calls["keep_alive"] == 0
            for _ in range(10):
                await clock.advance(RENEW_S)
                for _ in range(10):
                    await heartbeat(client)
                await settle()
            assert troubled.calls["keep_alive"] == 10


async def test_renewal_that_failed_is_tried_again_at_the_next_sign_of_life() -> None:
    clock = ManualClock()
    async with open_embedded("memory:", clock=clock) as store:
        troubled = Troubled(store)
        async with serving(store=cast(Store, troubled), clock=clock) as face:
            client = Client(face)
            await client.connect()
            await clock.advance(5.0)
            troubled.faults["keep_alive"] = Unavailable("no leader")
            await heartbeat(client)
            await settle()
            troubled.faults.clear()
            await heartbeat(client)
            await settle()
            await clock.advance(9.9)
            assert not client.is_closed()
            assert troubled.calls["keep_alive"] == 2


async def test_connection_ends_when_the_store_has_no_lease_for_its_session() -> None:
    clock = ManualClock()
    async with open_embedded("memory:", clock=clock) as store:
        troubled = Troubled(store)
        async with serving(store=cast(Store, troubled), clock=clock) as face:
            client = Client(face)
            told = await client.connect()
            await clock.advance(1.0)
            troubled.faults["keep_alive"] = LeaseNotFound(told.session_id)
            await heartbeat(client)
            await client.wait_closed()


async def test_closed_session_is_over_at_once() -> None:
    async with serving() as face:
        client, other = Client(face), Client(face)
        told = await client.connect()
        await other.connect()
        await client.ask(Op.CREATE, create_body(b"/mine", flags=1))
        reply = await client.ask(Op.CLOSE_SESSION, xid=7)
        assert (reply.xid, reply.err, reply.body) == (7, 0, b"")
        assert reply.zxid == face.tree.zxid
        assert client.is_closed()
        assert b"/mine" not in face.tree.nodes
        assert told.session_id not in face.tree.sessions
        assert not other.is_closed()
        again = back_to(told)
        assert await Client(face).connect(again) == REFUSED


@pytest.mark.parametrize("timeout_ms", [200, 500, 1000])
async def test_session_shorter_than_any_lease_ends_in_time(timeout_ms: int) -> None:
    clock = ManualClock()
    async with serving(ZooKeeperSettings(tick_time=100), clock=clock) as face:
        client = Client(face)
        told = await client.connect(connect_frame(timeout_ms=timeout_ms))
        assert told.timeout_ms == timeout_ms
        assert (await face.store.time_to_live(told.session_id)).ttl_s == 2.0
        for _ in range(5):
            await clock.advance(timeout_ms / 1000)
            await heartbeat(client)
        await clock.advance(timeout_ms / 1000)
        assert not client.is_closed()
        await clock.advance(RENEW_S)
        assert client.is_closed()
        assert face.tree.sessions == {}


async def test_process_that_was_held_up_ends_no_session_that_may_have_spoken() -> None:
    clock = ManualClock()
    async with serving(ZooKeeperSettings(tick_time=100), clock=clock) as face:
        client = Client(face)
        await client.connect(connect_frame(timeout_ms=1000))
        await clock.advance(0.4)
        clock.jump(1.5)
        await clock.advance(0.0)
        await heartbeat(client)  # it has waited in the socket all the time
        await clock.advance(1.0)
        assert not client.is_closed()


# -- coming back -----------------------------------------------------------------------------


async def test_client_comes_back_to_its_session() -> None:
    async with serving() as face:
        client = Client(face)
        told = await client.connect()
        await client.ask(Op.CREATE, create_body(b"/mine", flags=1))
        client.lose()
        again = Client(face)
        assert await again.connect(back_to(told)) == told
        assert b"/mine" in face.tree.nodes
        assert (await again.ask(Op.CREATE, create_body(b"/mine2", flags=1))).err == 0
        assert face.tree.sessions[told.session_id].ephemerals == {b"/mine", b"/mine2"}


async def test_second_connection_of_a_session_ends_the_first() -> None:
    async with serving() as face:
        first, second = Client(face), Client(face)
        told = await first.connect()
        assert await second.connect(back_to(told)) == told
        assert first.is_closed()
        assert not second.is_closed()
        await heartbeat(second)


async def test_of_many_that_come_back_together_one_is_served() -> None:
    async with open_embedded("memory:") as store:
        slow = Troubled(store)
        async with serving(store=cast(Store, slow)) as face:
            told = await Client(face).connect()
            crowd = [Client(face, port=port) for port in range(10)]
            slow.answers.clear()
            for each in crowd:
                each.say(back_to(told))
            await settle()
            slow.answers.set()
            await settle()
            left = [each for each in crowd if not each.is_closed()]
            assert len(left) == 1
            assert await left[0].connected() == told
            await heartbeat(left[0])


@pytest.mark.parametrize("password", [b"", b"x" * 16, bytes(16), b"x" * 15])
async def test_wrong_password_is_refused_and_the_owner_notices_nothing(password: bytes) -> None:
    async with serving() as face:
        owner = Client(face)
        told = await owner.connect()
        stranger = Client(face)
        again = connect_frame(session_id=told.session_id, password=password)
        assert await stranger.connect(again) == REFUSED
        assert stranger.is_closed()
        await heartbeat(owner)


@pytest.mark.parametrize("session_id", [1, 2**63 - 1, -1, -(2**63)])
async def test_unknown_session_is_refused_not_made(session_id: int) -> None:
    async with serving() as face:
        client = Client(face)
        assert await client.connect(connect_frame(session_id=session_id)) == REFUSED
        assert client.is_closed()
        assert await face.store.leases() == ()


async def test_client_that_saw_the_future_is_hung_up_on_without_a_word() -> None:
    async with serving() as face:
        client = Client(face)
        client.say(connect_frame(zxid=face.tree.zxid + 1))
        await client.wait_closed()
        assert client.unparsed == b""
        assert (await Client(face).connect(connect_frame(zxid=face.tree.zxid))).session_id


@pytest.mark.parametrize("error", TROUBLE[:3], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", ["keep_alive", "txn", "range"])
async def test_trouble_is_no_reason_to_tell_a_client_that_its_session_is_over(
    call: str, error: QuoracyError
) -> None:
    async with open_embedded("memory:") as store:
        async with serving(store=store) as elsewhere:
            told = await Client(elsewhere).connect()
        troubled = Troubled(store)
        async with serving(store=cast(Store, troubled)) as face:
            if call == "range":
                del face.tree.sessions[told.session_id]  # as at a node that has not heard of it yet
            troubled.faults[call] = error
            client = Client(face)
            again = back_to(told)
            client.say(again)
            await client.wait_closed()
            assert client.unparsed == b""
            if call != "range":
                troubled.faults.clear()
                assert await Client(face).connect(again) == told


async def test_session_whose_lease_has_ended_is_refused() -> None:
    async with open_embedded("memory:") as store:
        troubled = Troubled(store)
        async with serving(store=cast(Store, troubled)) as face:
            told = await Client(face).connect()
            troubled.faults["keep_alive"] = LeaseNotFound(told.session_id)
            again = back_to(told)
            assert await Client(face).connect(again) == REFUSED


async def test_shorter_timeout_holds_from_the_reconnect_on() -> None:
    clock = ManualClock()
    async with serving(clock=clock) as face:
        told = await Client(face).connect(connect_frame(timeout_ms=30_000))
        client = Client(face)
        assert (await client.connect(back_to(told, 5000))).timeout_ms == 5000
        assert face.tree.sessions[told.session_id].timeout_ms == 5000
        for _ in range(3):
            await clock.advance(4.9)
            await heartbeat(client)
        await clock.advance(5.0)
        assert not client.is_closed()
        await clock.advance(RENEW_S + TICK_S)
        assert client.is_closed()


async def test_longer_timeout_is_given_as_far_as_the_lease_is_long() -> None:
    async with serving() as face:
        told = await Client(face).connect(connect_frame(timeout_ms=8000))

        async def again(timeout_ms: int) -> int:
            return (await Client(face).connect(back_to(told, timeout_ms))).timeout_ms

        assert [await again(each) for each in (5000, 30_000, 8000, 7999)] == [5000, 8000, 8000, 7999]


# -- nodes -----------------------------------------------------------------------------------


async def test_session_moves_to_the_node_where_its_client_comes_back() -> None:
    async with open_embedded("memory:") as store, serving(store=store) as here:
        async with serving(store=store) as there:
            client = Client(here)
            told = await client.connect()
            await client.ask(Op.CREATE, create_body(b"/mine", flags=1))
            again = back_to(told)
            moved = Client(there)
            assert await moved.connect(again) == told
            await client.wait_closed()
            assert (await moved.ask(Op.CREATE, create_body(b"/mine2", flags=1))).err == 0
            await heartbeat(moved)
            back = Client(here)
            assert await back.connect(again) == told
            await moved.wait_closed()
            assert here.tree.sessions[told.session_id].ephemerals == {b"/mine", b"/mine2"}


async def test_client_comes_back_after_a_restart_of_the_server() -> None:
    async with open_embedded("memory:") as store:
        async with serving(store=store) as before:
            client = Client(before)
            told = await client.connect()
            await client.ask(Op.CREATE, create_body(b"/mine", flags=1))
            client.lose()
        async with serving(store=store) as after:
            again = back_to(told)
            assert await Client(after).connect(again) == told
            assert b"/mine" in after.tree.nodes


async def test_face_that_stops_ends_no_session_and_no_lease() -> None:
    async with open_embedded("memory:") as store:
        async with serving(store=store) as face:
            client = Client(face)
            told = await client.connect()
            client.connection.finish()
            assert client.is_closed()
        assert await store.leases() == (told.session_id,)
