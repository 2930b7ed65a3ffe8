"""The list of procedures: complete, and under the routes etcd's gateway has."""

from __future__ import annotations

from collections import Counter

from quoracy.faces.etcd.methods import Streaming

from .conftest import Face

# From the services of etcd's rpc.proto, v3lock.proto and v3election.proto, and of grpc.health.v1.
PROCEDURES = {
    "etcdserverpb.KV": "Range Put DeleteRange Txn Compact",
    "etcdserverpb.Watch": "Watch",
    "etcdserverpb.Lease": "LeaseGrant LeaseRevoke LeaseKeepAlive LeaseTimeToLive LeaseLeases",
    "etcdserverpb.Cluster": "MemberAdd MemberRemove MemberUpdate MemberList MemberPromote",
    "etcdserverpb.Maintenance": "Alarm Status Defragment Hash HashKV Snapshot MoveLeader Downgrade",
    "etcdserverpb.Auth": "AuthEnable AuthDisable AuthStatus Authenticate UserAdd UserGet UserList "
    "UserDelete UserChangePassword UserGrantRole UserRevokeRole RoleAdd RoleGet RoleList RoleDelete "
    "RoleGrantPermission RoleRevokePermission",
    "v3lockpb.Lock": "Lock Unlock",
    "v3electionpb.Election": "Campaign Proclaim Leader Observe Resign",
    "grpc.health.v1.Health": "Check Watch",
    "quoracy.v1.History": "RevisionAt",  # our own
    "quoracy.v1.Queue": "WaitFirst",
}
STREAMS = {
    "/etcdserverpb.Watch/Watch": True,
    "/etcdserverpb.Lease/LeaseKeepAlive": True,
    "/etcdserverpb.Maintenance/Snapshot": False,
    "/v3electionpb.Election/Observe": False,
    "/grpc.health.v1.Health/Watch": False,
}
ROUTES = [
    "/v3/kv/range",
    "/v3/kv/put",
    "/v3/kv/deleterange",
    "/v3/kv/txn",
    "/v3/kv/compaction",
    "/v3/watch",
    "/v3/lease/grant",
    "/v3/lease/revoke",
    "/v3/kv/lease/revoke",
    "/v3/lease/keepalive",
    "/v3/lease/timetolive",
    "/v3/kv/lease/timetolive",
    "/v3/lease/leases",
    "/v3/kv/lease/leases",
    "/v3/cluster/member/add",
    "/v3/cluster/member/remove",
    "/v3/cluster/member/update",
    "/v3/cluster/member/list",
    "/v3/cluster/member/promote",
    "/v3/maintenance/alarm",
    "/v3/maintenance/status",
    "/v3/maintenance/defragment",
    "/v3/maintenance/hash",
    "/v3/maintenance/hashkv",
    "/v3/maintenance/snapshot",
    "/v3/maintenance/transfer-leadership",
    "/v3/maintenance/downgrade",
    "/v3/auth/enable",
    "/v3/auth/disable",
    "/v3/auth/status",
    "/v3/auth/authenticate",
    "/v3/auth/user/add",
    "/v3/auth/user/get",
    "/v3/auth/user/list",
    "/v3/auth/user/delete",
    "/v3/auth/user/changepw",
    "/v3/auth/user/grant",
    "/v3/auth/user/revoke",
    "/v3/auth/role/add",
    "/v3/auth/role/get",
    "/v3/auth/role/list",
    "/v3/auth/role/delete",
    "/v3/auth/role/grant",
    "/v3/auth/role/revoke",
    "/v3/lock/lock",
    "/v3/lock/unlock",
    "/v3/election/campaign",
    "/v3/election/proclaim",
    "/v3/election/leader",
    "/v3/election/observe",
    "/v3/election/resign",
]


def test_every_procedure_is_there(face: Face) -> None:
    expected = {f"/{service}/{name}" for service, names in PROCEDURES.items() for name in names.split()}
    assert face.methods.keys() == expected


def test_streams_are_streams(face: Face) -> None:
    found = {
        path: method.client_streams
        for path, method in face.methods.items()
        if isinstance(method, Streaming)
    }
    assert found == STREAMS


def test_every_route_leads_to_one_procedure(face: Face) -> None:
    routes = Counter(route for method in face.methods.values() for route in method.routes)
    assert routes == Counter(ROUTES)


def test_messages_have_the_procedures_name(face: Face) -> None:
    for path, method in face.methods.items():
        assert method.request.__name__.endswith("Request"), path
        assert method.response.__name__.endswith("Response"), path
