"""The etcd face of a cell: locks and elections across nodes, and what is told without a majority.

What a node answers then was compared with what members of etcd 3.4.23 and 3.5.1 answer: the same texts,
and the same calls go on; but where a member keeps a caller waiting for seven seconds, a node answers at
once.
"""

from __future__ import annotations

import base64
import json
import queue
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import httpx
import pytest

from quoracy.remote.etcd_versions import known_faults
from quoracy.wire.etcd import election, lock, maintenance, rpc
from tests.faults.scale import LONG
from tests.interop.cell_faces import CellFaces, Node, Spread, running_cell
from tests.interop.programs import WAIT_S_MAX, etcdctls, run, until
from tests.interop.test_etcdctl_streams import (  # noqa: F401 (pytest finds them here, and runs them)
    test_election_has_one_leader_and_tells_those_who_listen,
    test_lock_goes_from_one_holder_to_the_next,
    test_several_watches_on_one_stream_and_their_progress,
    test_watch_in_json_has_the_revisions,
    test_watch_of_a_compacted_revision_is_refused,
)
from tests.interop.test_grpcio import Client, create_watch, make

WANTS_LEADER = (("hasleader", "true"),)
NO_LEADER = (grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader")


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CellFaces]:
    with running_cell(tmp_path_factory.mktemp("cell")) as cell:
        yield cell


@pytest.fixture
def server(cell: CellFaces) -> CellFaces:
    """As the scenarios of etcdctl know it."""
    return cell


@pytest.fixture(params=etcdctls()[-1:], ids=lambda each: each.version)
def etcdctl(request: pytest.FixtureRequest, cell: CellFaces) -> Spread:
    return Spread.over(request.param, cell)


@pytest.fixture
def clients(cell: CellFaces) -> Iterator[list[Client]]:
    """One for each node."""
    with ExitStack() as stack:
        yield [Client(stack.enter_context(grpc.insecure_channel(node.address))) for node in cell.nodes]


def grant(client: Client, ttl: int = 60) -> int:
    call = client.unary("etcdserverpb.Lease/LeaseGrant", rpc.LeaseGrantRequest, rpc.LeaseGrantResponse)
    return int(call(make(rpc.LeaseGrantRequest, TTL=ttl), timeout=WAIT_S_MAX).ID)


def revoke(client: Client, lease: int) -> None:
    call = client.unary(
        "etcdserverpb.Lease/LeaseRevoke", rpc.LeaseRevokeRequest, rpc.LeaseRevokeResponse
    )
    call(make(rpc.LeaseRevokeRequest, ID=lease), timeout=WAIT_S_MAX)


def contenders(client: Client, name: bytes) -> int:
    return int(client.range(name + b"/", name + b"0").count)


def post(node: Node, path: str, body: dict[str, object], **headers: str) -> httpx.Response:
    return httpx.post(
        f"http://{node.address}{path}", content=json.dumps(body), headers=headers, timeout=WAIT_S_MAX
    )


def text64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# -- locks and elections ---------------------------------------------------------------------


def test_lock_passes_to_another_node_when_the_holders_lease_ends(clients: list[Client]) -> None:
    first, second, third = clients
    call = [c.unary("v3lockpb.Lock/Lock", lock.LockRequest, lock.LockResponse) for c in clients]
    leases = [grant(first), grant(second)]
    held = call[0](make(lock.LockRequest, name=b"jobs", lease=leases[0]), timeout=WAIT_S_MAX)
    waiting = call[1].future(make(lock.LockRequest, name=b"jobs", lease=leases[1]), timeout=WAIT_S_MAX)
    until(lambda: contenders(third, b"jobs") == 2, "the second to queue")
    assert not waiting.done()
    revoke(third, leases[0])
    passed = waiting.result()
    assert passed.key != held.key
    assert passed.header.revision > held.header.revision
    # Whoever got the lock at one node finds its key at every other, and the old one nowhere.
    for client in clients:
        assert [kv.key for kv in client.range(b"jobs/", b"jobs0").kvs] == [passed.key]


def test_gateway_lock_passes_to_another_node(cell: CellFaces) -> None:
    leases = [post(node, "/v3/lease/grant", {"TTL": 60}).json()["ID"] for node in cell.nodes[:2]]
    name = text64("gateway")

    def lock_at(index: int) -> Any:
        body: dict[str, object] = {"name": name, "lease": leases[index]}
        return post(cell.nodes[index], "/v3/lock/lock", body).json()

    held = lock_at(0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lock_at, 1)
        span: dict[str, object] = {"key": text64("gateway/"), "range_end": text64("gateway0")}
        until(
            lambda: post(cell.nodes[2], "/v3/kv/range", span).json().get("count") == "2",
            "the second to queue",
        )
        post(cell.nodes[2], "/v3/lease/revoke", {"ID": leases[0]})
        passed = waiting.result(WAIT_S_MAX)
    assert passed["key"] != held["key"]


def test_election_is_seen_at_every_node(clients: list[Client]) -> None:
    first, second, third = clients
    leases = [grant(first), grant(second)]
    campaigns = [
        c.unary("v3electionpb.Election/Campaign", election.CampaignRequest, election.CampaignResponse)
        for c in clients
    ]
    won = campaigns[0](
        make(election.CampaignRequest, name=b"chief", lease=leases[0], value=b"ada"), timeout=WAIT_S_MAX
    )
    observing = third.channel.unary_stream(
        "/v3electionpb.Election/Observe",
        request_serializer=lambda each: each.SerializeToString(),
        response_deserializer=election.LeaderResponse.decode,
    )(make(election.LeaderRequest, name=b"chief"), timeout=WAIT_S_MAX)
    assert next(observing).kv.value == b"ada"
    standing = campaigns[1].future(
        make(election.CampaignRequest, name=b"chief", lease=leases[1], value=b"grace"),
        timeout=WAIT_S_MAX,
    )
    until(lambda: contenders(third, b"chief") == 2, "the second to stand")
    resign = second.unary(
        "v3electionpb.Election/Resign", election.ResignRequest, election.ResignResponse
    )
    resign(make(election.ResignRequest, leader=won.leader), timeout=WAIT_S_MAX)
    assert standing.result().leader.rev > won.leader.rev
    assert next(observing).kv.value == b"grace"
    observing.cancel()


# -- without a majority ----------------------------------------------------------------------


class Streaming:
    """A stream of calls whose requests the test puts one by one."""

    def __init__(self, call: Callable[..., Any], metadata: Any = ()) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.answers = call(iter(self._requests.get, None), metadata=metadata)

    def ask(self, request: Any) -> Any:
        self.say(request)
        return next(self.answers)

    def say(self, request: Any) -> None:
        self._requests.put(request)

    def ended(self) -> tuple[grpc.StatusCode, str]:
        """How it ends by itself."""
        return refusal(lambda: next(self.answers))

    def close(self) -> None:
        self.answers.cancel()
        self._requests.put(None)


@contextmanager
def streaming(call: Callable[..., Any], metadata: Any = ()) -> Iterator[Streaming]:
    stream = Streaming(call, metadata)
    try:
        yield stream
    finally:
        stream.close()


def refusal(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    return error.code(), error.details()


def read(client: Client, *, serializable: bool, metadata: Any = ()) -> tuple[Any, dict[str, str]]:
    """The answer, and the metadata that came with it."""
    call = client.unary("etcdserverpb.KV/Range", rpc.RangeRequest, rpc.RangeResponse)
    answer, done = call.with_call(
        make(rpc.RangeRequest, key=b"lost", serializable=serializable),
        timeout=WAIT_S_MAX,
        metadata=metadata,
    )
    return answer, dict(done.initial_metadata())


def check_without_majority(node: Node, client: Client, lease: int) -> None:
    """What a node says while there is no majority.

    "no leader" says as well that nothing was sent: what was sent and not answered is "timed out".
    """
    put = make(rpc.PutRequest, key=b"lost", value=b"2")
    txn = make(rpc.TxnRequest, success=[make(rpc.RequestOp, request_put=put)])
    txn_call = client.unary("etcdserverpb.KV/Txn", rpc.TxnRequest, rpc.TxnResponse)
    keep_alive = client.stream(
        "etcdserverpb.Lease/LeaseKeepAlive", rpc.LeaseKeepAliveRequest, rpc.LeaseKeepAliveResponse
    )
    assert refusal(lambda: client.put(b"lost", b"2")) == NO_LEADER
    assert refusal(lambda: client.range(b"lost")) == NO_LEADER
    assert refusal(lambda: txn_call(txn, timeout=WAIT_S_MAX)) == NO_LEADER
    assert refusal(lambda: grant(client)) == NO_LEADER
    with streaming(keep_alive) as keeping:
        keeping.say(make(rpc.LeaseKeepAliveRequest, ID=lease))
        assert keeping.ended() == NO_LEADER

    answer, metadata = read(client, serializable=True)
    assert [kv.value for kv in answer.kvs] == [b"1"]
    assert float(metadata["quoracy-stale"]) > 0
    assert refusal(lambda: read(client, serializable=True, metadata=WANTS_LEADER)) == NO_LEADER
    stale = post(node, "/v3/kv/range", {"key": text64("lost"), "serializable": True})
    assert (stale.status_code, float(stale.headers["quoracy-stale"]) > 0) == (200, True)

    status_call = client.unary(
        "etcdserverpb.Maintenance/Status", maintenance.StatusRequest, maintenance.StatusResponse
    )
    status = status_call(make(maintenance.StatusRequest), timeout=WAIT_S_MAX)
    assert (status.leader, status.errors[0]) == (0, "etcdserver: no leader")


def check_probes(node: Node) -> None:
    def get(path: str) -> httpx.Response:
        return httpx.get(f"http://{node.address}{path}", timeout=WAIT_S_MAX)

    health = get("/health")
    assert (health.status_code, health.json()["health"]) == (503, "false")
    assert health.json()["reason"].startswith("RAFT NO LEADER: ")
    assert get("/health?serializable=true").status_code == 200
    assert get("/livez").status_code == 200
    ready = get("/readyz?verbose")
    failed = [line for line in ready.text.splitlines() if line.startswith("[-]")]
    assert (ready.status_code, len(failed)) == (503, 1), ready.text
    assert failed[0].startswith("[-]linearizable_read failed: ")
    metrics = get("/metrics").text
    assert "\nquoracy_cluster_serving 0.0\n" in metrics
    assert "\netcd_server_has_leader 0.0\n" in metrics


@pytest.mark.parametrize(
    "killed",
    [
        pytest.param(False, id="stopped"),
        pytest.param(
            True,
            id="killed",
            marks=[
                pytest.mark.faults,
                pytest.mark.skipif(not LONG, reason="QUORACY_FAULTS=long runs it"),
            ],
        ),
    ],
)
def test_without_a_majority_clients_are_told_what_etcd_tells(
    cell: CellFaces, clients: list[Client], killed: bool
) -> None:
    clients[0].put(b"lost", b"1")
    for client in clients:  # every node has it, so every node can show it afterwards
        assert client.range(b"lost").count == 1
    lease = grant(clients[0])
    watch = clients[0].stream("etcdserverpb.Watch/Watch", rpc.WatchRequest, rpc.WatchResponse)
    with streaming(watch) as patient, streaming(watch, WANTS_LEADER) as demanding:
        assert patient.ask(create_watch(key=b"lost")).created
        assert demanding.ask(create_watch(key=b"lost")).created
        cell.lose_majority(killed=killed)
        try:
            assert demanding.ended() == NO_LEADER
            for node, client in zip(cell.nodes, clients, strict=True):
                check_without_majority(node, client, lease)
                check_probes(node)
            said = quoracy_status(cell)
            assert said.code == 1
            assert [each["cluster"]["serving"] for each in endpoints(said)] == [False] * 3
            with streaming(watch) as late:
                assert late.ask(create_watch(key=b"lost")).created
        finally:
            cell.restore_majority(killed=killed)
        clients[1].put(b"lost", b"3")
        assert [event.kv.value for event in next(patient.answers).events] == [b"3"]
        answer, metadata = read(clients[2], serializable=False)
        assert ([kv.value for kv in answer.kvs], "quoracy-stale" in metadata) == ([b"3"], False)


# -- quoracy status --------------------------------------------------------------------------


def quoracy_status(cell: CellFaces) -> Any:
    return run(sys.executable, "-m", "quoracy", "status", "-e", cell.url, "-o", "json")


def endpoints(said: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(said.out)["endpoints"]
    return found


def test_status_shows_the_cell(cell: CellFaces) -> None:
    said = quoracy_status(cell)
    assert said.code == 0, said
    nodes = endpoints(said)
    assert [node["endpoint"] for node in nodes] == [node.address for node in cell.nodes]
    leaders = {node["cluster"]["leader"] for node in nodes}
    assert len(leaders) == 1
    for node in nodes:
        cluster = node["cluster"]
        assert (cluster["serving"], cluster["stale_s"]) == (True, 0)
        version = cluster["engine"].removeprefix("etcd ")
        members = cluster["members"]
        assert {member["name"] for member in members} == {"m0", "m1", "m2"}
        assert [m["name"] for m in members if m["role"] == "leader"] == list(leaders)
        assert {member["version"] for member in members} == {version}
        fault = known_faults(version)
        assert node["warnings"] == ([] if fault is None else [fault])
