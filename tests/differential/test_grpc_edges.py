"""Over gRPC, where random calls seldom go: limits, fragments, ends of streams; and where we differ."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from quoracy.store.rules import Limits
from quoracy.wire.etcd import rpc
from quoracy.wire.protobuf import Message
from tests.differential.grpc_lockstep import Lockstep, in_lockstep
from tests.differential.grpc_sides import Ports, Refusal, official_bytes, running_servers

_REQUEST_BYTES_MAX = Limits().request_bytes_max
_MESSAGE_BYTES_MAX = _REQUEST_BYTES_MAX + 512 * 1024
_PUT, _RANGE = "/etcdserverpb.KV/Put", "/etcdserverpb.KV/Range"
_ALL = rpc.WatchCreateRequest(key=b"\0", range_end=b"\0")


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    with running_servers(tmp_path_factory.mktemp("edges")) as ports:
        yield ports


@pytest.fixture
async def lockstep(ports: Ports) -> AsyncIterator[Lockstep]:
    """Both in step, with no keys, compacted to the newest revision."""
    async with in_lockstep(ports) as lockstep:
        lockstep.name = "edges"
        await lockstep.ask(rpc.PutRequest(key=b"begin"))
        await lockstep.ask(rpc.PutRequest(key=b"begin"))
        await lockstep.ask(rpc.DeleteRangeRequest(key=b"\0", range_end=b"\0"))
        await lockstep.ask(rpc.CompactionRequest(revision=lockstep.revision))
        yield lockstep


async def test_new_servers_start_alike(tmp_path: Path) -> None:
    everything = rpc.RangeRequest(key=b"\0", range_end=b"\0")
    requests: list[Message] = [
        everything,
        rpc.RangeRequest(key=b"a", revision=1),
        rpc.RangeRequest(key=b"a", revision=2),
        rpc.DeleteRangeRequest(key=b"\0", range_end=b"\0"),
        rpc.TxnRequest(),
        rpc.LeaseLeasesRequest(),
        rpc.LeaseKeepAliveRequest(ID=1),
        rpc.LeaseTimeToLiveRequest(ID=1, keys=True),
        rpc.LeaseRevokeRequest(ID=1),
        rpc.CompactionRequest(revision=2),
        rpc.CompactionRequest(revision=-1),
        rpc.PutRequest(key=b"a", prev_kv=True),
        rpc.PutRequest(key=b"a", prev_kv=True),
        everything,
    ]
    with running_servers(tmp_path) as ports:
        async with in_lockstep(ports) as lockstep:
            for request in requests:
                await lockstep.ask(request)
            stream = lockstep.open_stream()
            await lockstep.progress(stream)
            for start in (0, 1, 2, 3, 4):
                await lockstep.watch(
                    stream, rpc.WatchCreateRequest(key=b"a", start_revision=start, prev_kv=True)
                )
            await lockstep.settle()
            await lockstep.progress(stream)
            assert lockstep.events >= 15


# -- limits ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(_REQUEST_BYTES_MAX - 1_000, id="largest"),
        pytest.param(_REQUEST_BYTES_MAX + 1, id="too-large-for-the-store"),
        pytest.param(_MESSAGE_BYTES_MAX - 1_000, id="largest-message"),
        pytest.param(_MESSAGE_BYTES_MAX + 1, id="too-large-a-message"),
    ],
)
async def test_large_values(lockstep: Lockstep, size: int) -> None:
    put = rpc.PutRequest(key=b"large", value=bytes(size))
    await lockstep.ask(put)
    await lockstep.ask(rpc.TxnRequest(success=[rpc.RequestOp(request_put=put)]))
    await lockstep.ask(rpc.RangeRequest(key=b"large"))


async def test_only_etcd_counts_what_wraps_a_request(lockstep: Lockstep) -> None:
    """etcd measures the request as it logs it, we the keys and values in it."""
    key = b"key"
    data = official_bytes(rpc.PutRequest(key=key, value=bytes(_REQUEST_BYTES_MAX - len(key))))
    theirs, ours = await lockstep.ask_at(_PUT, data)
    assert theirs == Refusal("INVALID_ARGUMENT", "etcdserver: request is too large")
    assert isinstance(ours, bytes)
    # In step again.
    await lockstep.etcd.ask_at(_PUT, official_bytes(rpc.PutRequest(key=key)))
    await lockstep.ask(rpc.DeleteRangeRequest(key=key))


async def test_events_too_large_for_one_response_come_in_fragments(lockstep: Lockstep) -> None:
    stream = lockstep.open_stream()
    whole = lockstep.revision + 1
    await lockstep.watch(stream, rpc.WatchCreateRequest(key=b"f", range_end=b"g", fragment=True))
    for round_ in range(3):
        puts = [
            rpc.PutRequest(key=b"f%d" % number, value=b"%d" % round_ * 300_000) for number in range(5)
        ]
        ops = [rpc.RequestOp(request_put=put) for put in puts]
        await lockstep.ask(rpc.TxnRequest(success=ops))
    for fragment in (True, False):
        request = rpc.WatchCreateRequest(
            key=b"f", range_end=b"g", start_revision=whole, prev_kv=True, fragment=fragment
        )
        await lockstep.watch(stream, request)
    await lockstep.settle()
    await lockstep.ask(rpc.DeleteRangeRequest(key=b"f", range_end=b"g", prev_kv=True))
    await lockstep.settle()


# -- streams -----------------------------------------------------------------------------------


async def test_an_id_stays_taken_when_compaction_ended_its_watch(lockstep: Lockstep) -> None:
    stream = lockstep.open_stream()
    old = rpc.WatchCreateRequest(key=b"a", watch_id=7, start_revision=lockstep.revision - 1)
    assert await lockstep.watch(stream, old) is None
    again = rpc.WatchCreateRequest(key=b"a", watch_id=7)
    assert await lockstep.watch(stream, again) is None
    assert "mvcc: duplicate watch ID provided on the WatchStream" in lockstep.news
    await lockstep.cancel(stream, 7)
    assert await lockstep.watch(stream, again) is not None
    await lockstep.settle()


async def test_watches_go_on_when_the_client_has_said_all(lockstep: Lockstep) -> None:
    stream = lockstep.open_stream()
    assert await lockstep.watch(stream, _ALL) is not None
    await stream.say_no_more()
    await lockstep.ask(rpc.PutRequest(key=b"later"))
    await lockstep.settle()
    assert lockstep.events >= 3


async def test_a_lease_that_ends_deletes_its_keys_in_one_revision(lockstep: Lockstep) -> None:
    stream = lockstep.open_stream()
    watch = await lockstep.watch(stream, rpc.WatchCreateRequest(key=b"a", range_end=b"c", prev_kv=True))
    assert watch is not None
    await lockstep.ask(rpc.LeaseGrantRequest(ID=11, TTL=2))
    for key in (b"b", b"a"):
        await lockstep.ask(rpc.PutRequest(key=key, lease=11))
    await stream.heard_up_to(watch, lockstep.revision + 1)
    await lockstep.ask(rpc.LeaseTimeToLiveRequest(ID=11, keys=True))
    await lockstep.ask(rpc.RangeRequest(key=b"a", range_end=b"c"))
    await lockstep.settle()


# -- what is no request at all -------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/etcdserverpb.KV/Nothing",
        "/etcdserverpb.KV/",
        "/a.B/Range",
        "/etcdserverpb.KV/Range/",
    ],
)
async def test_unknown_methods(lockstep: Lockstep, path: str) -> None:
    theirs, ours = await lockstep.ask_at(path, b"")
    assert isinstance(theirs, Refusal)
    assert ours == theirs


async def test_a_path_that_names_no_method(lockstep: Lockstep) -> None:
    """The text is the same; its code has become UNIMPLEMENTED in later versions of etcd's library."""
    theirs, ours = await lockstep.ask_at("/nothing", b"")
    assert isinstance(theirs, Refusal)
    assert ours == Refusal("UNIMPLEMENTED", theirs.text)


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05a", b"\xff", b"\x18" + b"\x80" * 11, b"\x0b"])
async def test_bytes_that_are_no_message(lockstep: Lockstep, data: bytes) -> None:
    """The code is the same; the text is the parser's own, after the same beginning."""
    theirs, ours = await lockstep.ask_at(_RANGE, data)
    assert isinstance(theirs, Refusal)
    assert isinstance(ours, Refusal)
    assert ours.code == theirs.code == "INTERNAL"
    assert theirs.text.split(":")[:2] == ours.text.split(":")[:2]


# -- where we differ -----------------------------------------------------------------------------


async def test_only_etcd_refuses_a_negative_revision_inside_a_transaction(lockstep: Lockstep) -> None:
    """Outside of one it is the newest to both."""
    negative = rpc.RangeRequest(key=b"a", revision=-2)
    await lockstep.ask(negative)
    txn = rpc.TxnRequest(success=[rpc.RequestOp(request_range=negative)])
    theirs, ours = await lockstep.ask_at("/etcdserverpb.KV/Txn", official_bytes(txn))
    assert theirs == Refusal("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted")
    assert isinstance(ours, bytes)


async def test_only_ours_refuses_orders_that_do_not_exist(lockstep: Lockstep) -> None:
    """As etcd does from 3.6 on.  A target that does not exist ends the process of etcd 3.5."""
    refusal = Refusal("INVALID_ARGUMENT", "etcdserver: invalid sort option")
    theirs, ours = await lockstep.ask_at(
        _RANGE, official_bytes(rpc.RangeRequest(key=b"a", sort_order=7))
    )
    assert isinstance(theirs, bytes)
    assert ours == refusal
    assert refusal == await lockstep.ours.ask_at(
        _RANGE, official_bytes(rpc.RangeRequest(key=b"a", sort_order=1, sort_target=7))
    )


async def test_only_ours_refuses_a_negative_start_at_once(lockstep: Lockstep) -> None:
    """As later versions of etcd do; this one says it in two messages, or loses history in silence."""
    stream = lockstep.open_stream()
    create = rpc.WatchCreateRequest(key=b"a", start_revision=-2)
    await stream.say(rpc.WatchRequest(create_request=create))
    theirs, ours = await stream.news()
    assert theirs == {"header": theirs["header"], "created": True}
    assert (await stream.etcd_news())["compact_revision"] == lockstep.compact_revision
    assert ours == {
        "header": theirs["header"],
        "watch_id": -1,
        "created": True,
        "canceled": True,
        "cancel_reason": "etcdserver: mvcc: required revision has been compacted",
    }


async def test_only_etcd_speaks_of_progress_for_a_watch_that_is_yet_to_begin(
    lockstep: Lockstep,
) -> None:
    stream = lockstep.open_stream()
    start = lockstep.revision + 2
    await lockstep.watch(stream, rpc.WatchCreateRequest(key=b"a", start_revision=start))
    await stream.say(rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()))
    first = await stream.etcd_news()
    assert first["header"]["revision"] == start - 2
    for _ in range(3):
        await lockstep.ask(rpc.PutRequest(key=b"b"))
    assert (await stream.our_news())["header"]["revision"] >= start - 1
