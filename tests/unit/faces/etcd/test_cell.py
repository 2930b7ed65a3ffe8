"""The services on a store that stands on a cluster, which the test takes away and gives back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from quoracy.clock import ManualClock
from quoracy.errors import Indeterminate
from quoracy.faces.common.asgi import AsgiApp
from quoracy.faces.etcd.methods import Method, Unary, answer_of
from quoracy.faces.etcd.services.all import etcd_methods
from quoracy.faces.etcd.serving.calls import CallCounts
from quoracy.faces.etcd.serving.http_endpoints import make_http_app
from quoracy.faces.etcd.serving.leadership import Leadership
from quoracy.store.api import Store
from quoracy.wire.etcd import maintenance, rpc
from quoracy.wire.etcd.health import HealthCheckRequest, ServingStatus
from quoracy.wire.grpc import StatusCode
from quoracy.wire.quoracy import CLUSTER_HEALTH, ClusterHealthRequest
from tests.support.cluster_store import ClusterStore, open_cluster_store

from .asgi_client import ask, exchange
from .conftest import IDENTITY, Face

KV, LEASE = "/etcdserverpb.KV/", "/etcdserverpb.Lease/Lease"
MAINTENANCE, MEMBER = "/etcdserverpb.Maintenance/", "/etcdserverpb.Cluster/Member"
WATCH = "/etcdserverpb.Watch/Watch"
NO_LEADER = (StatusCode.UNAVAILABLE, "etcdserver: no leader")
ADDRESSES = "10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379"


@pytest.fixture
async def cluster() -> AsyncIterator[ClusterStore]:
    async with open_cluster_store() as store:
        yield store


@pytest.fixture
def cell(cluster: ClusterStore) -> Face:
    return Face(etcd_methods(cluster, IDENTITY))


@pytest.fixture
def leadership(cluster: ClusterStore) -> Leadership:
    return Leadership(cluster)


@pytest.fixture
def wanting(cell: Face, leadership: Leadership) -> Face:
    """The face as calls find it that want a leader."""
    return Face({path: leadership.guarded(method) for path, method in cell.methods.items()})


@pytest.fixture
def http(cluster: ClusterStore, cell: Face, wanting: Face) -> AsgiApp:
    return make_http_app(
        cell.methods,
        cluster,
        host="127.0.0.1",
        counts=CallCounts(),
        guarded_methods=wanting.methods,
    )


async def metadata_of(method: Method, request: Any) -> dict[bytes, bytes]:
    assert isinstance(method, Unary)
    _, metadata = await answer_of(method, request.encode())
    return dict(metadata)


def watch_of(key: bytes) -> rpc.WatchRequest:
    return rpc.WatchRequest(create_request=rpc.WatchCreateRequest(key=key))


# -- without the cluster ---------------------------------------------------------------------


async def test_without_a_cluster_what_needs_it_fails_with_etcds_words(
    cell: Face, cluster: ClusterStore
) -> None:
    lease = (await cluster.grant(60)).id
    cluster.lose_cluster()
    put = rpc.PutRequest(key=b"a", value=b"1")
    for path, request in (
        (KV + "Put", put),
        (KV + "Range", rpc.RangeRequest(key=b"a")),
        (KV + "Range", rpc.RangeRequest(key=b"a", limit=1)),
        (KV + "DeleteRange", rpc.DeleteRangeRequest(key=b"a")),
        (KV + "Txn", rpc.TxnRequest(success=[rpc.RequestOp(request_put=put)])),
        (KV + "Compact", rpc.CompactionRequest(revision=1)),
        (LEASE + "Grant", rpc.LeaseGrantRequest(TTL=60)),
        (LEASE + "Revoke", rpc.LeaseRevokeRequest(ID=lease)),
        (LEASE + "TimeToLive", rpc.LeaseTimeToLiveRequest(ID=lease)),
    ):
        assert await cell.refused(path, request) == NO_LEADER, path
    cluster.find_cluster()
    assert (await cell.call(KV + "Put", put)).header.revision == 2


async def test_write_with_an_unknown_outcome_is_said_to_have_timed_out(
    cell: Face, cluster: ClusterStore
) -> None:
    cluster.write_error = Indeterminate("the answer was lost")
    refused = await cell.refused(KV + "Put", rpc.PutRequest(key=b"a"))
    assert refused == (StatusCode.UNAVAILABLE, "etcdserver: request timed out")


async def test_keep_alive_stream_ends_when_a_lease_cannot_be_kept(
    cell: Face, cluster: ClusterStore
) -> None:
    lease = (await cluster.grant(60)).id
    stream = cell.stream(LEASE + "KeepAlive")
    stream.say(rpc.LeaseKeepAliveRequest(ID=lease))
    assert (await stream.hear()).TTL == 60
    cluster.lose_cluster()
    assert await stream.hears_nothing()  # nothing is said until it is asked
    stream.say(rpc.LeaseKeepAliveRequest(ID=lease))
    assert await stream.ended() == NO_LEADER


async def test_watch_begins_and_goes_on_without_a_cluster(cell: Face, cluster: ClusterStore) -> None:
    async with cell.stream(WATCH) as stream:
        stream.say(watch_of(b"a"))
        assert (await stream.hear()).created
        cluster.lose_cluster()
        stream.say(watch_of(b"b"))
        assert (await stream.hear()).created
        cluster.find_cluster()
        await cluster.put(b"a", b"1")
        assert [event.kv.value for event in (await stream.hear()).events] == [b"1"]


# -- stale reads -----------------------------------------------------------------------------


async def test_serializable_read_says_for_how_long_it_may_be_stale(
    cell: Face, cluster: ClusterStore
) -> None:
    await cluster.put(b"a", b"1")
    read = rpc.RangeRequest(key=b"a", serializable=True)
    txn = rpc.TxnRequest(success=[rpc.RequestOp(request_range=read)])
    range_method, txn_method = cell.methods[KV + "Range"], cell.methods[KV + "Txn"]
    assert await metadata_of(range_method, read) == {}
    assert await metadata_of(txn_method, txn) == {}
    cluster.lose_cluster(stale_s=2.4567)
    assert await metadata_of(range_method, read) == {b"quoracy-stale": b"2.457"}
    assert await metadata_of(txn_method, txn) == {b"quoracy-stale": b"2.457"}
    cluster.find_cluster()
    assert await metadata_of(range_method, read) == {}


async def test_gateway_marks_stale_reads_with_a_header(http: AsgiApp, cluster: ClusterStore) -> None:
    await cluster.put(b"a", b"1")
    body = b'{"key": "YQ==", "serializable": true}'
    fresh = await ask(http, "/v3/kv/range", body)
    assert "quoracy-stale" not in fresh.headers
    cluster.lose_cluster(stale_s=30.0)
    stale = await ask(http, "/v3/kv/range", body)
    assert (stale.status, stale.headers["quoracy-stale"]) == (200, "30.000")
    assert stale.json == fresh.json
    refused = await ask(http, "/v3/kv/range", b'{"key": "YQ=="}')
    assert (refused.status, refused.json["message"]) == (503, "etcdserver: no leader")


# -- calls that want a leader ----------------------------------------------------------------


async def test_call_that_wants_a_leader_is_refused_without_one(
    wanting: Face, cluster: ClusterStore
) -> None:
    read = rpc.RangeRequest(key=b"a", serializable=True)
    assert (await wanting.call(KV + "Range", read)).header.revision == 1
    cluster.lose_cluster()
    assert await wanting.refused(KV + "Range", read) == NO_LEADER
    for path, request in ((WATCH, watch_of(b"a")), (LEASE + "KeepAlive", rpc.LeaseKeepAliveRequest())):
        stream = wanting.stream(path)
        stream.say(request)
        assert await stream.ended() == NO_LEADER


async def test_streams_that_want_a_leader_end_when_it_is_lost(
    wanting: Face, cluster: ClusterStore
) -> None:
    lease = (await cluster.grant(60)).id
    watch, keeping = wanting.stream(WATCH), wanting.stream(LEASE + "KeepAlive")
    watch.say(watch_of(b"a"))
    keeping.say(rpc.LeaseKeepAliveRequest(ID=lease))
    await watch.hear()
    await keeping.hear()
    cluster.lose_cluster()
    assert await watch.ended() == NO_LEADER
    assert await keeping.ended() == NO_LEADER
    cluster.find_cluster()
    async with wanting.stream(WATCH) as again:
        again.say(watch_of(b"a"))
        assert (await again.hear()).created


async def test_client_that_gives_up_as_the_leader_is_lost_is_cancelled(
    wanting: Face, cluster: ClusterStore
) -> None:
    stream = wanting.stream(WATCH)
    stream.say(watch_of(b"a"))
    await stream.hear()
    cluster.lose_cluster()
    stream.task.cancel()
    await asyncio.wait([stream.task])
    assert stream.task.cancelled()


async def test_nothing_is_left_behind_by_streams_and_servers(
    wanting: Face, leadership: Leadership, cluster: ClusterStore
) -> None:
    async with wanting.stream(WATCH) as stream:
        stream.say(watch_of(b"a"))
        await stream.hear()
    cluster.lose_cluster()  # which nobody wants to be told of any more
    cluster.find_cluster()
    assert cluster.listeners_count == 1
    leadership.close()
    assert cluster.listeners_count == 0


async def test_server_without_a_cluster_always_leads(store: Store, face: Face) -> None:
    leadership = Leadership(store)
    assert leadership.has_leader
    assert all(leadership.guarded(method) is method for method in face.methods.values())
    leadership.close()


async def test_gateway_ends_a_stream_that_wants_a_leader(http: AsgiApp, cluster: ClusterStore) -> None:
    wants = {"grpc-metadata-hasleader": "true"}
    create = b'{"create_request": {"key": "YQ=="}}'
    async with exchange(http, "/v3/watch", headers=wants) as watch:
        watch.send(create)
        assert await watch.status() == 200
        assert (await watch.line())["result"]["created"]
        cluster.lose_cluster()
        assert (await watch.line())["error"]["message"] == "etcdserver: no leader"
    refused = await ask(http, "/v3/watch", create, headers=wants)
    assert (refused.status, refused.json["message"]) == (503, "etcdserver: no leader")
    async with exchange(http, "/v3/watch") as watch:
        watch.send(create)
        assert (await watch.status(), "result" in await watch.line()) == (200, True)


# -- what a node says of itself --------------------------------------------------------------


async def test_status_shows_lag_and_who_leads(cell: Face, cluster: ClusterStore) -> None:
    cluster.set_health(lag=3, warnings=("m3 does not answer",))
    status = await cell.call(MAINTENANCE + "Status", maintenance.StatusRequest())
    assert (status.raftIndex, status.raftAppliedIndex) == (4, 1)
    assert status.leader not in (0, status.header.member_id)
    assert status.errors == ["m3 does not answer"]
    again = await cell.call(MAINTENANCE + "Status", maintenance.StatusRequest())
    assert again.leader == status.leader
    cluster.set_health(leader="m2")
    other = await cell.call(MAINTENANCE + "Status", maintenance.StatusRequest())
    assert other.leader != status.leader
    cluster.set_health(role="leader")
    led = await cell.call(MAINTENANCE + "Status", maintenance.StatusRequest())
    assert led.leader == led.header.member_id
    cluster.set_health(role="learner")
    assert (await cell.call(MAINTENANCE + "Status", maintenance.StatusRequest())).isLearner


async def test_status_without_a_cluster_says_that_nobody_leads(
    cell: Face, cluster: ClusterStore
) -> None:
    cluster.lose_cluster("no member answers")
    status = await cell.call(MAINTENANCE + "Status", maintenance.StatusRequest())
    assert status.leader == 0
    assert status.errors == ["etcdserver: no leader", "no member answers"]


@pytest.mark.parametrize(
    ("path", "request_", "command"),
    [
        (MAINTENANCE + "Defragment", maintenance.DefragmentRequest(), "defrag"),
        (MEMBER + "Add", maintenance.MemberAddRequest(peerURLs=["http://h:1"]), "member add"),
        (MEMBER + "Remove", maintenance.MemberRemoveRequest(ID=22), "member remove"),
        (MEMBER + "Update", maintenance.MemberUpdateRequest(ID=22), "member update"),
        (MEMBER + "Promote", maintenance.MemberPromoteRequest(ID=22), "member promote"),
    ],
)
async def test_what_is_for_the_members_is_refused_with_their_addresses(
    cell: Face, path: str, request_: Any, command: str
) -> None:
    code, text = await cell.refused(path, request_)
    assert code is StatusCode.UNIMPLEMENTED
    assert text.endswith(f"use etcdctl --endpoints={ADDRESSES} {command}")


async def test_snapshot_is_the_members_to_give(cell: Face) -> None:
    stream = cell.stream(MAINTENANCE + "Snapshot")
    stream.say(maintenance.SnapshotRequest())
    code, text = await stream.ended()
    assert code is StatusCode.UNIMPLEMENTED
    assert f"--endpoints={ADDRESSES} snapshot save" in text


async def test_leadership_is_not_a_nodes_to_give(cell: Face, cluster: ClusterStore) -> None:
    path = MAINTENANCE + "MoveLeader"
    refused = await cell.refused(path, maintenance.MoveLeaderRequest(targetID=22))
    assert refused == (StatusCode.FAILED_PRECONDITION, "etcdserver: not leader")
    cluster.set_health(role="leader")
    await cell.call(path, maintenance.MoveLeaderRequest(targetID=22))
    refused = await cell.refused(path, maintenance.MoveLeaderRequest(targetID=23))
    assert refused == (StatusCode.FAILED_PRECONDITION, "etcdserver: bad leader transferee")


async def test_member_list_has_this_node_alone(cell: Face) -> None:
    listed = await cell.call(MEMBER + "List", maintenance.MemberListRequest())
    assert [(member.ID, member.clientURLs) for member in listed.members] == [
        (22, ["http://127.0.0.1:2379"])
    ]


async def test_node_tells_how_its_cluster_is(cell: Face, face: Face, cluster: ClusterStore) -> None:
    cluster.set_health(lag=3, warnings=("beware",))
    said = await cell.call(CLUSTER_HEALTH, ClusterHealthRequest())
    assert (said.engine, said.is_serving, said.lag, said.leader, said.role) == (
        "etcd 3.5.1", True, 3, "m1", "follower",
    )  # fmt: skip
    assert [(each.name, each.is_leader, bool(each.error)) for each in said.members] == [
        ("m1", True, False), ("m2", False, False), ("m3", False, True),
    ]  # fmt: skip
    assert said.warnings == ["beware"]
    cluster.lose_cluster("no member answers", stale_s=2.5)
    said = await cell.call(CLUSTER_HEALTH, ClusterHealthRequest())
    assert (said.is_serving, said.reason, said.stale_ms) == (False, "no member answers", 2500)
    assert CLUSTER_HEALTH not in face.methods


# -- health ----------------------------------------------------------------------------------


async def test_probes_tell_what_still_works_without_a_cluster(
    http: AsgiApp, cluster: ClusterStore
) -> None:
    for path in ("/health", "/readyz", "/livez"):
        assert (await ask(http, path, method="GET")).status == 200
    cluster.lose_cluster("no member answers")
    health = await ask(http, "/health", method="GET")
    assert (health.status, health.json["health"]) == (503, "false")
    assert health.json["reason"] == "RAFT NO LEADER: no member answers"
    assert (await ask(http, "/health?serializable=true", method="GET")).status == 200
    assert (await ask(http, "/livez", method="GET")).status == 200
    ready = await ask(http, "/readyz?verbose", method="GET")
    assert ready.status == 503
    lines = ready.text.splitlines()
    assert [line for line in lines if line.startswith("[-]")] == [
        "[-]linearizable_read failed: the cluster has no leader (no member answers). Try again later."
    ]
    assert "[+]serializable_read ok" in lines
    cluster.find_cluster()
    assert (await ask(http, "/readyz", method="GET")).status == 200


async def test_learners_node_is_not_ready(http: AsgiApp, cluster: ClusterStore) -> None:
    cluster.set_health(role="learner")
    ready = await ask(http, "/readyz/non_learner", method="GET")
    assert (ready.status, "learner" in ready.text) == (503, True)


async def test_load_balancers_are_told_to_go_elsewhere(
    cluster: ClusterStore, clock: ManualClock
) -> None:
    face = Face(etcd_methods(cluster, IDENTITY, clock=clock))
    path = "/grpc.health.v1.Health/"
    assert (await face.call(path + "Check", HealthCheckRequest())).status == ServingStatus.SERVING
    async with face.stream(path + "Watch") as watch:
        watch.say(HealthCheckRequest())
        assert (await watch.hear()).status == ServingStatus.SERVING
        cluster.lose_cluster()
        await clock.advance(2.0)
        assert (await watch.hear()).status == ServingStatus.NOT_SERVING
    answer = await face.call(path + "Check", HealthCheckRequest())
    assert answer.status == ServingStatus.NOT_SERVING


async def test_metrics_show_the_cluster(http: AsgiApp, cluster: ClusterStore) -> None:
    async def gauges() -> dict[str, float]:
        text = (await ask(http, "/metrics", method="GET")).text
        return {
            sample.name + json.dumps(sample.labels, sort_keys=True): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name.startswith(("quoracy_cluster", "etcd_server_has", "etcd_server_is"))
        }

    cluster.set_health(lag=5, role="leader")
    member = 'quoracy_cluster_members{"name": "%s", "role": "%s", "version": "3.5.1"}'
    assert await gauges() == {
        "etcd_server_has_leader{}": 1,
        "etcd_server_is_leader{}": 1,
        "quoracy_cluster_serving{}": 1,
        "quoracy_cluster_lag_revisions{}": 5,
        "quoracy_cluster_stale_seconds{}": 0,
        member % ("m1", "leader"): 1,
        member % ("m2", "follower"): 1,
        member % ("m3", "follower"): 0,
    }
    cluster.lose_cluster(stale_s=2.5)
    shown = await gauges()
    assert shown["etcd_server_has_leader{}"] == shown["etcd_server_is_leader{}"] == 0
    assert (shown["quoracy_cluster_serving{}"], shown["quoracy_cluster_stale_seconds{}"]) == (0, 2.5)
