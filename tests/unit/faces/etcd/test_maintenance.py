"""Maintenance, Cluster, Auth and Health: a cluster of one, without authentication."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from quoracy.clock import ManualClock
from quoracy.engines.embedded.disk.backup import restore
from quoracy.engines.opening import open_embedded
from quoracy.faces.etcd.services.all import etcd_methods
from quoracy.store.api import Store
from quoracy.store.rules import Limits
from quoracy.wire.etcd.auth import (
    AuthDisableRequest,
    AuthEnableRequest,
    AuthenticateRequest,
    AuthStatusRequest,
    AuthUserAddRequest,
)
from quoracy.wire.etcd.health import HealthCheckRequest, ServingStatus
from quoracy.wire.etcd.maintenance import (
    AlarmAction,
    AlarmMember,
    AlarmRequest,
    AlarmType,
    DefragmentRequest,
    DefragmentResponse,
    DowngradeAction,
    DowngradeRequest,
    HashKVRequest,
    HashRequest,
    Member,
    MemberAddRequest,
    MemberListRequest,
    MemberPromoteRequest,
    MemberRemoveRequest,
    MemberUpdateRequest,
    MoveLeaderRequest,
    SnapshotRequest,
    StatusRequest,
)
from quoracy.wire.etcd.rpc import PutRequest
from quoracy.wire.grpc import StatusCode

from .conftest import IDENTITY, Face

MAINTENANCE = "/etcdserverpb.Maintenance/"
MEMBER = "/etcdserverpb.Cluster/Member"
AUTH = "/etcdserverpb.Auth/"
HEALTH = "/grpc.health.v1.Health/"


# -- maintenance -----------------------------------------------------------------------------


async def test_status(face: Face, store: Store) -> None:
    await store.put(b"a", b"1")
    status = await face.call(MAINTENANCE + "Status", StatusRequest())
    assert (status.leader, status.header.member_id, status.header.revision) == (22, 22, 2)
    assert status.version.startswith("3.5.")
    assert status.dbSize >= status.dbSizeInUse > 0
    assert (status.raftIndex, status.raftAppliedIndex, status.raftTerm) == (2, 2, 2)
    assert (status.errors, status.isLearner) == ((), False)


async def test_alarm_goes_up_and_comes_down_by_itself() -> None:
    limits = Limits(storage_bytes_max=4000)
    async with open_embedded("memory:", limits=limits) as store:
        face = Face(etcd_methods(store, IDENTITY, limits=limits))
        path = MAINTENANCE + "Alarm"
        assert (await face.call(path, AlarmRequest())).alarms == ()
        for number in range(3):
            await store.put(b"%d" % number, b"x" * 1000)
        refused = await face.refused("/etcdserverpb.KV/Put", PutRequest(key=b"a", value=b"x" * 1000))
        assert refused == (
            StatusCode.RESOURCE_EXHAUSTED,
            "etcdserver: mvcc: database space exceeded",
        )
        up = [AlarmMember(memberID=22, alarm=AlarmType.NOSPACE)]
        assert (await face.call(path, AlarmRequest())).alarms == up
        assert (await face.call(path, AlarmRequest(alarm=AlarmType.NOSPACE))).alarms == up
        assert (await face.call(path, AlarmRequest(alarm=AlarmType.CORRUPT))).alarms == ()
        clear = AlarmRequest(action=AlarmAction.DEACTIVATE, alarm=AlarmType.NOSPACE)
        assert (await face.call(path, clear)).alarms == up
        status = await face.call(MAINTENANCE + "Status", StatusRequest())
        assert status.errors == ["memberID:22 alarm:NOSPACE "]
        raised = AlarmRequest(action=AlarmAction.ACTIVATE, alarm=AlarmType.CORRUPT)
        assert (await face.call(path, raised)).alarms == ()


async def test_defragment_succeeds(face: Face) -> None:
    answer = await face.call(MAINTENANCE + "Defragment", DefragmentRequest())
    assert answer == DefragmentResponse()


async def test_hash_tells_contents_apart(face: Face, store: Store) -> None:
    await store.put(b"a", b"1")
    one = await face.call(MAINTENANCE + "HashKV", HashKVRequest())
    await store.put(b"a", b"2")
    two = await face.call(MAINTENANCE + "HashKV", HashKVRequest(revision=-1))
    assert one.hash != two.hash
    assert 0 < one.hash < 2**32
    again = await face.call(MAINTENANCE + "HashKV", HashKVRequest(revision=2))
    assert (again.hash, again.header.revision, again.hash_revision) == (one.hash, 3, 2)
    assert (await face.call(MAINTENANCE + "Hash", HashRequest())).hash == two.hash
    await store.compact(3)
    assert (await face.call(MAINTENANCE + "HashKV", HashKVRequest())).compact_revision == 3
    assert (await face.refused(MAINTENANCE + "HashKV", HashKVRequest(revision=2)))[1] == (
        "etcdserver: mvcc: required revision has been compacted"
    )
    assert (await face.refused(MAINTENANCE + "HashKV", HashKVRequest(revision=9)))[1] == (
        "etcdserver: mvcc: required revision is a future revision"
    )


async def test_snapshot_is_a_backup_that_restores(tmp_path: Path) -> None:
    async with open_embedded(f"sqlite:{tmp_path / 'q.db'}") as store:
        for number in range(500):
            await store.put(b"k%03d" % number, b"x" * 1000)
        face = Face(etcd_methods(store, IDENTITY, snapshot=store.backup))
        stream = face.stream(MAINTENANCE + "Snapshot")
        stream.say(SnapshotRequest())
        chunks = [await stream.hear()]
        while chunks[-1].remaining_bytes:
            chunks.append(await stream.hear())
        checksum = (await stream.hear()).blob
        assert await stream.ended() == (StatusCode.OK, "")
    blob = b"".join(chunk.blob for chunk in chunks)
    assert chunks[0].remaining_bytes == len(blob) - len(chunks[0].blob)
    assert checksum == hashlib.sha256(blob).digest()
    # etcdctl writes the checksum behind the data, and expects the data to be in whole sectors.
    assert len(blob) % 512 == 0
    saved = tmp_path / "saved.db"
    saved.write_bytes(blob + checksum)
    report = restore(saved, tmp_path / "restored.db")
    assert report.keys_count == 500


async def test_snapshot_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    async with open_embedded(f"sqlite:{tmp_path / 'q.db'}") as store:
        await store.put(b"a", b"x" * 200_000)
        face = Face(etcd_methods(store, IDENTITY, snapshot=store.backup))
        stream = face.stream(MAINTENANCE + "Snapshot")
        stream.say(SnapshotRequest())
        await stream.hear()
        stream.reads.clear()
        await stream.cancel()
    assert list(scratch.iterdir()) == []


async def test_snapshot_without_a_way_to_make_one(face: Face) -> None:
    stream = face.stream(MAINTENANCE + "Snapshot")
    stream.say(SnapshotRequest())
    assert (await stream.ended())[0] is StatusCode.UNIMPLEMENTED


async def test_leadership_stays_where_it_is(face: Face) -> None:
    path = MAINTENANCE + "MoveLeader"
    await face.call(path, MoveLeaderRequest(targetID=22))
    refused = await face.refused(path, MoveLeaderRequest(targetID=1))
    assert refused == (StatusCode.FAILED_PRECONDITION, "etcdserver: bad leader transferee")


async def test_downgrade(face: Face) -> None:
    path = MAINTENANCE + "Downgrade"
    refused = await face.refused(path, DowngradeRequest(action=DowngradeAction.CANCEL))
    assert refused == (StatusCode.FAILED_PRECONDITION, "etcdserver: no inflight downgrade job")
    assert (await face.refused(path, DowngradeRequest(version="3.4")))[0] is StatusCode.UNIMPLEMENTED


# -- cluster ---------------------------------------------------------------------------------


async def test_cluster_of_one(face: Face) -> None:
    listed = await face.call(MEMBER + "List", MemberListRequest(linearizable=True))
    urls = ["http://127.0.0.1:2379"]
    assert listed.members == [Member(ID=22, name="q1", peerURLs=urls, clientURLs=urls)]
    assert (listed.header.cluster_id, listed.header.revision) == (11, 0)


async def test_members_stay(face: Face) -> None:
    assert await face.refused(MEMBER + "Remove", MemberRemoveRequest(ID=22)) == (
        StatusCode.UNKNOWN,
        "etcdserver: re-configuration failed due to not enough started members",
    )
    not_found = (StatusCode.NOT_FOUND, "etcdserver: member not found")
    assert await face.refused(MEMBER + "Remove", MemberRemoveRequest(ID=5)) == not_found
    assert await face.refused(MEMBER + "Update", MemberUpdateRequest(ID=5)) == not_found
    assert await face.refused(MEMBER + "Promote", MemberPromoteRequest(ID=5)) == not_found
    assert await face.refused(MEMBER + "Promote", MemberPromoteRequest(ID=22)) == (
        StatusCode.FAILED_PRECONDITION,
        "etcdserver: can only promote a learner member",
    )
    update = MemberUpdateRequest(ID=22, peerURLs=["http://h:1"])
    assert (await face.refused(MEMBER + "Update", update))[0] is StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("urls", [[], ["ftp"], ["http://h"], ["http://h:1/x"], ["http://h:no"]])
async def test_member_add_with_bad_urls(face: Face, urls: list[str]) -> None:
    refused = await face.refused(MEMBER + "Add", MemberAddRequest(peerURLs=urls))
    assert refused == (
        StatusCode.INVALID_ARGUMENT,
        "etcdserver: given member URLs are invalid",
    )


async def test_member_add(face: Face) -> None:
    request = MemberAddRequest(peerURLs=["http://10.0.0.1:2380"])
    code, text = await face.refused(MEMBER + "Add", request)
    assert code is StatusCode.UNIMPLEMENTED
    assert "cluster of one" in text


# -- auth ------------------------------------------------------------------------------------


async def test_authentication_is_off(face: Face) -> None:
    status = await face.call(AUTH + "AuthStatus", AuthStatusRequest())
    assert (status.enabled, status.authRevision) == (False, 1)
    await face.call(AUTH + "AuthDisable", AuthDisableRequest())
    refused = await face.refused(AUTH + "Authenticate", AuthenticateRequest(name="a"))
    assert refused == (
        StatusCode.FAILED_PRECONDITION,
        "etcdserver: authentication is not enabled",
    )


async def test_users_are_not_accepted_and_forgotten(face: Face) -> None:
    for path, request in (
        (AUTH + "AuthEnable", AuthEnableRequest()),
        (AUTH + "UserAdd", AuthUserAddRequest(name="root", password="x")),
    ):
        code, text = await face.refused(path, request)
        assert code is StatusCode.UNIMPLEMENTED
        assert "not available yet" in text


# -- health ----------------------------------------------------------------------------------


async def test_health_check(face: Face) -> None:
    answer = await face.call(HEALTH + "Check", HealthCheckRequest())
    assert answer.status == ServingStatus.SERVING
    refused = await face.refused(HEALTH + "Check", HealthCheckRequest(service="x"))
    assert refused == (StatusCode.NOT_FOUND, "unknown service")


async def test_health_watch_tells_of_the_end(clock: ManualClock) -> None:
    async with open_embedded("memory:", clock=clock) as store:
        face = Face(etcd_methods(store, IDENTITY, clock=clock))
        stream = face.stream(HEALTH + "Watch")
        stream.say(HealthCheckRequest())
        assert (await stream.hear()).status == ServingStatus.SERVING
        await clock.advance(10)
        assert await stream.hears_nothing()
    await clock.advance(10)
    assert (await stream.hear()).status == ServingStatus.NOT_SERVING
    await stream.cancel()


async def test_health_watch_of_an_unknown_service(face: Face) -> None:
    async with face.stream(HEALTH + "Watch") as stream:
        stream.say(HealthCheckRequest(service="x"))
        assert (await stream.hear()).status == ServingStatus.SERVICE_UNKNOWN
