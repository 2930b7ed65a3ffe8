"""grpcio, with messages of the official protobuf library: every kind of call, and its limits."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import pytest

from quoracy.wire.etcd import election, lock, maintenance, rpc
from quoracy.wire.protobuf import Message
from tests.interop.programs import QuoracyServer, until
from tests.support.protos import official_class

# The health stubs carry no types of their own.
health_pb2: Any = importlib.import_module("grpc_health.v1.health_pb2")
health_pb2_grpc: Any = importlib.import_module("grpc_health.v1.health_pb2_grpc")

REQUEST_BYTES_MAX = 1_572_864

_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Client:
    """Calls over one channel; messages are named by our classes and made by the official ones."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel

    def unary(self, method: str, request: type[Message], response: type[Message]) -> Any:
        return self.channel.unary_unary(f"/{method}", **_serializers(request, response))

    def stream(self, method: str, request: type[Message], response: type[Message]) -> Any:
        return self.channel.stream_stream(f"/{method}", **_serializers(request, response))

    def put(self, key: bytes, value: bytes, **options: Any) -> Any:
        call = self.unary("etcdserverpb.KV/Put", rpc.PutRequest, rpc.PutResponse)
        return call(make(rpc.PutRequest, key=key, value=value), timeout=30, **options)

    def range(self, key: bytes, range_end: bytes = b"", **options: Any) -> Any:
        call = self.unary("etcdserverpb.KV/Range", rpc.RangeRequest, rpc.RangeResponse)
        return call(make(rpc.RangeRequest, key=key, range_end=range_end), **{"timeout": 30, **options})

    def watch(self, requests: Any = None, **options: Any) -> Any:
        return self.stream("etcdserverpb.Watch/Watch", rpc.WatchRequest, rpc.WatchResponse)(
            requests, **options
        )


def _serializers(request: type[Message], response: type[Message]) -> dict[str, Any]:
    serialize: Callable[[Any], bytes] = official_class(request).SerializeToString
    return {
        "request_serializer": serialize,
        "response_deserializer": official_class(response).FromString,
    }


def make(cls: type[Message], **values: Any) -> Any:
    return official_class(cls)(**values)


def create_watch(**values: Any) -> Any:
    return make(rpc.WatchRequest, create_request=make(rpc.WatchCreateRequest, **values))


@pytest.fixture
def client(server: QuoracyServer) -> Iterator[Client]:
    with grpc.insecure_channel(server.address, options=_UNLIMITED) as channel:
        yield Client(channel)


@pytest.fixture
async def aio(server: QuoracyServer) -> AsyncIterator[Client]:
    async with grpc.aio.insecure_channel(server.address, options=_UNLIMITED) as channel:
        yield Client(channel)


def refused(call: Callable[[], Any]) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value


def code_of(call: Callable[[], Any]) -> Any:
    return refused(call).code()


# -- one request, one answer


def test_put_and_range(client: Client) -> None:
    put = client.put(b"grpc/a", b"1")
    answer = client.range(b"grpc/a")
    assert [(kv.key, kv.value, kv.mod_revision) for kv in answer.kvs] == [
        (b"grpc/a", b"1", put.header.revision)
    ]


def test_health_service_is_the_standard_one(client: Client) -> None:
    stub = health_pb2_grpc.HealthStub(client.channel)
    serving = health_pb2.HealthCheckResponse.SERVING
    assert stub.Check(health_pb2.HealthCheckRequest(), timeout=30).status == serving
    watch = stub.Watch(health_pb2.HealthCheckRequest())
    assert next(watch).status == serving
    watch.cancel()
    unknown = health_pb2.HealthCheckRequest(service="no.such.Service")
    assert code_of(lambda: stub.Check(unknown, timeout=30)) is grpc.StatusCode.NOT_FOUND


def test_unknown_method_is_unimplemented(client: Client) -> None:
    call = client.unary("etcdserverpb.KV/Nothing", rpc.PutRequest, rpc.PutResponse)
    assert code_of(lambda: call(make(rpc.PutRequest), timeout=30)) is grpc.StatusCode.UNIMPLEMENTED


def test_metadata_and_authority_of_any_kind_are_taken(client: Client) -> None:
    metadata = [
        ("hasleader", "true"),
        ("token", "x" * 500),
        ("some-bin", b"\0\xff"),
        ("a", "1"),
        ("a", "2"),
    ]
    assert client.put(b"grpc/metadata", b"1", metadata=metadata).header.revision > 1


def test_gzipped_requests_are_read(client: Client) -> None:
    client.put(b"grpc/gzip", b"a" * 100_000, compression=grpc.Compression.Gzip)
    assert client.range(b"grpc/gzip").kvs[0].value == b"a" * 100_000


def test_many_calls_at_once_on_one_connection(client: Client) -> None:
    call = client.unary("etcdserverpb.KV/Put", rpc.PutRequest, rpc.PutResponse)
    calls = [
        call.future(make(rpc.PutRequest, key=b"grpc/many/%d" % number, value=b"x"), timeout=60)
        for number in range(1_000)
    ]
    revisions = {each.result().header.revision for each in calls}
    assert len(revisions) == 1_000
    assert client.range(b"grpc/many/", b"grpc/many0").count == 1_000


# -- sizes


def test_large_values_go_in_and_come_out(client: Client) -> None:
    value = bytes(range(256)) * 5_700  # about 1.4 MiB
    client.put(b"grpc/large", value)
    assert client.range(b"grpc/large").kvs[0].value == value


def test_response_larger_than_any_window_arrives(client: Client) -> None:
    for number in range(12):
        client.put(b"grpc/bulk/%02d" % number, bytes(1_000_000))
    answer = client.range(b"grpc/bulk/", b"grpc/bulk0")
    assert sum(len(kv.value) for kv in answer.kvs) == 12_000_000


@pytest.mark.parametrize(
    ("size", "code", "said"),
    [
        (REQUEST_BYTES_MAX + 1, grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: request is too large"),
        (REQUEST_BYTES_MAX + 600_000, grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max"),
        (40_000_000, grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max"),
    ],
)
def test_too_large_requests_are_refused(client: Client, size: int, code: Any, said: str) -> None:
    error = refused(lambda: client.put(b"grpc/too-large", bytes(size)))
    assert (error.code(), said in error.details()) == (code, True), error.details()
    assert client.range(b"grpc/too-large").count == 0


# -- deadlines and cancellation


def lock_call(client: Client) -> Any:
    return client.unary("v3lockpb.Lock/Lock", lock.LockRequest, lock.LockResponse)


def grant(client: Client) -> int:
    call = client.unary("etcdserverpb.Lease/LeaseGrant", rpc.LeaseGrantRequest, rpc.LeaseGrantResponse)
    return int(call(make(rpc.LeaseGrantRequest, TTL=600), timeout=30).ID)


def test_lock_with_a_deadline_ends_and_leaves_no_key(client: Client) -> None:
    held = lock_call(client)(make(lock.LockRequest, name=b"grpc/lock", lease=grant(client)), timeout=30)
    request = make(lock.LockRequest, name=b"grpc/lock", lease=grant(client))
    error = code_of(lambda: lock_call(client)(request, timeout=0.5))
    assert error is grpc.StatusCode.DEADLINE_EXCEEDED
    until(lambda: client.range(b"grpc/lock/", b"grpc/lock0").count == 1, "the key to go")
    assert client.range(b"grpc/lock/", b"grpc/lock0").kvs[0].key == held.key


def test_cancelled_lock_leaves_no_key(client: Client) -> None:
    lock_call(client)(make(lock.LockRequest, name=b"grpc/cancel", lease=grant(client)), timeout=30)
    request = make(lock.LockRequest, name=b"grpc/cancel", lease=grant(client))
    waiting = lock_call(client).future(request)
    until(lambda: client.range(b"grpc/cancel/", b"grpc/cancel0").count == 2, "it to queue")
    waiting.cancel()
    until(lambda: client.range(b"grpc/cancel/", b"grpc/cancel0").count == 1, "the key to go")


def test_election_is_observed(client: Client) -> None:
    observe = client.channel.unary_stream(
        "/v3electionpb.Election/Observe",
        **_serializers(election.LeaderRequest, election.LeaderResponse),
    )(make(election.LeaderRequest, name=b"grpc/election"))
    campaign = client.unary(
        "v3electionpb.Election/Campaign", election.CampaignRequest, election.CampaignResponse
    )
    request = make(election.CampaignRequest, name=b"grpc/election", lease=grant(client), value=b"ada")
    leader = campaign(request, timeout=30).leader
    seen = next(observe).kv
    assert (seen.key, seen.value) == (leader.key, b"ada")
    observe.cancel()


def test_snapshot_streams_every_byte(client: Client) -> None:
    call = client.channel.unary_stream(
        "/etcdserverpb.Maintenance/Snapshot",
        **_serializers(maintenance.SnapshotRequest, maintenance.SnapshotResponse),
    )
    parts = list(call(make(maintenance.SnapshotRequest), timeout=60))
    data, digest = b"".join(part.blob for part in parts[:-1]), parts[-1].blob
    assert parts[-1].remaining_bytes == 0
    assert parts[0].remaining_bytes + len(parts[0].blob) == len(data)
    assert digest == hashlib.sha256(data).digest()


# -- streams


async def test_thousand_watches_on_one_stream(aio: Client) -> None:
    async def creations() -> AsyncIterator[Any]:
        for number in range(1_000):
            yield create_watch(key=b"grpc/watched/%d" % number)
        await done.wait()

    done = asyncio.Event()
    stream = aio.watch(creations())
    created = [await stream.read() for _ in range(1_000)]
    assert all(each.created for each in created)
    assert len({each.watch_id for each in created}) == 1_000
    for number in (0, 500, 999):
        await aio.put(b"grpc/watched/%d" % number, b"x")
        answer = await stream.read()
        assert answer.watch_id == created[number].watch_id
        assert [event.kv.key for event in answer.events] == [b"grpc/watched/%d" % number]
    done.set()
    stream.cancel()


async def test_one_watch_cancelled_leaves_the_others(aio: Client) -> None:
    stream = aio.watch()
    await stream.write(create_watch(key=b"grpc/two"))
    await stream.write(create_watch(key=b"grpc/two"))
    first, second = await stream.read(), await stream.read()
    cancel = make(rpc.WatchCancelRequest, watch_id=first.watch_id)
    await stream.write(make(rpc.WatchRequest, cancel_request=cancel))
    cancelled = await stream.read()
    assert (cancelled.canceled, cancelled.watch_id) == (True, first.watch_id)
    await aio.put(b"grpc/two", b"x")
    seen = await stream.read()
    assert (seen.watch_id, len(seen.events)) == (second.watch_id, 1)
    await stream.done_writing()  # as with etcd, a client that asks for no more is still told
    await aio.put(b"grpc/two", b"y")
    assert (await stream.read()).events[0].kv.value == b"y"
    stream.cancel()


def test_client_that_never_reads_does_not_hold_up_others(server: QuoracyServer) -> None:
    before = server.rss_bytes
    options = [*_UNLIMITED, ("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1)]
    with (
        grpc.insecure_channel(server.address, options=options) as lazy,
        grpc.insecure_channel(server.address, options=options) as busy,
    ):
        asked = threading.Event()

        def requests() -> Iterator[Any]:
            yield create_watch(key=b"grpc/lazy", prev_kv=True)
            asked.wait(60)

        unread = Client(lazy).watch(requests())
        assert next(unread).created
        client = Client(busy)
        for number in range(300):
            client.put(b"grpc/lazy", number.to_bytes(4, "big") * 50_000)
        assert client.range(b"grpc/lazy").kvs[0].version == 300
        # 300 values of 200 kB, twice in each event, were not kept for it.
        assert server.rss_bytes - before < 100_000_000
        seen = [
            int.from_bytes(event.kv.value[:4], "big") for _ in range(5) for event in next(unread).events
        ]
        assert seen[:3] == [0, 1, 2]
        asked.set()
        unread.cancel()


def test_keepalive_pings_are_answered_and_forgiven(server: QuoracyServer) -> None:
    options = [
        ("grpc.keepalive_time_ms", 50),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    with grpc.insecure_channel(server.address, options=options) as channel:
        client = Client(channel)
        request = make(lock.LockRequest, name=b"grpc/keepalive", lease=grant(client))
        lock_call(client)(request, timeout=30)
        waiting = make(lock.LockRequest, name=b"grpc/keepalive", lease=grant(client))
        # A second of pings while nothing else happens; an unhappy server would say GOAWAY.
        error = code_of(lambda: lock_call(client)(waiting, timeout=1))
        assert error is grpc.StatusCode.DEADLINE_EXCEEDED
        assert client.put(b"grpc/keepalive", b"x").header.revision > 1
