# ruff: noqa: N815 - fields have the names of the proto files
"""The services Maintenance and Cluster of etcd's api/etcdserverpb/rpc.proto."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated

from quoracy.wire.etcd.rpc import ResponseHeader
from quoracy.wire.protobuf import INT64, UINT32, UINT64, Field, Message

__all__ = [
    "AlarmAction",
    "AlarmMember",
    "AlarmRequest",
    "AlarmResponse",
    "AlarmType",
    "DefragmentRequest",
    "DefragmentResponse",
    "DowngradeAction",
    "DowngradeInfo",
    "DowngradeRequest",
    "DowngradeResponse",
    "DowngradeVersionTestRequest",
    "HashKVRequest",
    "HashKVResponse",
    "HashRequest",
    "HashResponse",
    "Member",
    "MemberAddRequest",
    "MemberAddResponse",
    "MemberListRequest",
    "MemberListResponse",
    "MemberPromoteRequest",
    "MemberPromoteResponse",
    "MemberRemoveRequest",
    "MemberRemoveResponse",
    "MemberUpdateRequest",
    "MemberUpdateResponse",
    "MoveLeaderRequest",
    "MoveLeaderResponse",
    "SnapshotRequest",
    "SnapshotResponse",
    "StatusRequest",
    "StatusResponse",
]


class AlarmType(IntEnum):
    """The type of an alarm."""

    NONE = 0
    NOSPACE = 1
    CORRUPT = 2


class HashRequest(Message, kw_only=True):
    """Ask for a digest of the whole backend."""


class HashKVRequest(Message, kw_only=True):
    """Ask for a digest of the keys up to a revision."""

    revision: Annotated[int, Field(1, INT64)] = 0


class HashKVResponse(Message, kw_only=True):
    """The digest, and the revisions it covers."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    hash: Annotated[int, Field(2, UINT32)] = 0
    compact_revision: Annotated[int, Field(3, INT64)] = 0
    hash_revision: Annotated[int, Field(4, INT64)] = 0


class HashResponse(Message, kw_only=True):
    """The digest."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    hash: Annotated[int, Field(2, UINT32)] = 0


class SnapshotRequest(Message, kw_only=True):
    """Ask for a copy of the backend."""


class SnapshotResponse(Message, kw_only=True):
    """A piece of the copy; the copy ends when no bytes remain."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    remaining_bytes: Annotated[int, Field(2, UINT64)] = 0
    blob: Annotated[bytes, Field(3)] = b""
    version: Annotated[str, Field(4)] = ""


class Member(Message, kw_only=True):
    """A member of the cluster."""

    ID: Annotated[int, Field(1, UINT64)] = 0
    name: Annotated[str, Field(2)] = ""
    peerURLs: Annotated[Sequence[str], Field(3)] = ()
    clientURLs: Annotated[Sequence[str], Field(4)] = ()
    isLearner: Annotated[bool, Field(5)] = False


class MemberAddRequest(Message, kw_only=True):
    """Add a member to the cluster."""

    peerURLs: Annotated[Sequence[str], Field(1)] = ()
    isLearner: Annotated[bool, Field(2)] = False


class MemberAddResponse(Message, kw_only=True):
    """The new member, and all members."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    member: Annotated[Member | None, Field(2)] = None
    members: Annotated[Sequence[Member], Field(3)] = ()


class MemberRemoveRequest(Message, kw_only=True):
    """Remove a member from the cluster."""

    ID: Annotated[int, Field(1, UINT64)] = 0


class MemberRemoveResponse(Message, kw_only=True):
    """The remaining members."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    members: Annotated[Sequence[Member], Field(2)] = ()


class MemberUpdateRequest(Message, kw_only=True):
    """Change the peer URLs of a member."""

    ID: Annotated[int, Field(1, UINT64)] = 0
    peerURLs: Annotated[Sequence[str], Field(2)] = ()


class MemberUpdateResponse(Message, kw_only=True):
    """All members after the change."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    members: Annotated[Sequence[Member], Field(2)] = ()


class MemberListRequest(Message, kw_only=True):
    """Ask for the members of the cluster."""

    linearizable: Annotated[bool, Field(1)] = False


class MemberListResponse(Message, kw_only=True):
    """All members."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    members: Annotated[Sequence[Member], Field(2)] = ()


class MemberPromoteRequest(Message, kw_only=True):
    """Promote a learner to a voting member."""

    ID: Annotated[int, Field(1, UINT64)] = 0


class MemberPromoteResponse(Message, kw_only=True):
    """All members after the promotion."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    members: Annotated[Sequence[Member], Field(2)] = ()


class DefragmentRequest(Message, kw_only=True):
    """Return unused space of the backend to the file system."""


class DefragmentResponse(Message, kw_only=True):
    """The space was returned."""

    header: Annotated[ResponseHeader | None, Field(1)] = None


class MoveLeaderRequest(Message, kw_only=True):
    """Transfer leadership to another member."""

    targetID: Annotated[int, Field(1, UINT64)] = 0


class MoveLeaderResponse(Message, kw_only=True):
    """Leadership was transferred."""

    header: Annotated[ResponseHeader | None, Field(1)] = None


class AlarmAction(IntEnum):
    """The action of an alarm request."""

    GET = 0
    ACTIVATE = 1
    DEACTIVATE = 2


class AlarmRequest(Message, kw_only=True):
    """Ask for alarms, raise one or clear one."""

    action: Annotated[AlarmAction | int, Field(1)] = AlarmAction.GET
    memberID: Annotated[int, Field(2, UINT64)] = 0
    alarm: Annotated[AlarmType | int, Field(3)] = AlarmType.NONE


class AlarmMember(Message, kw_only=True):
    """An alarm of a member."""

    memberID: Annotated[int, Field(1, UINT64)] = 0
    alarm: Annotated[AlarmType | int, Field(2)] = AlarmType.NONE


class AlarmResponse(Message, kw_only=True):
    """The alarms concerned."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    alarms: Annotated[Sequence[AlarmMember], Field(2)] = ()


class DowngradeAction(IntEnum):
    """The action of a downgrade request."""

    VALIDATE = 0
    ENABLE = 1
    CANCEL = 2


class DowngradeRequest(Message, kw_only=True):
    """Validate, start or cancel a downgrade of the cluster."""

    action: Annotated[DowngradeAction | int, Field(1)] = DowngradeAction.VALIDATE
    version: Annotated[str, Field(2)] = ""


class DowngradeResponse(Message, kw_only=True):
    """The cluster's version."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    version: Annotated[str, Field(2)] = ""


class DowngradeVersionTestRequest(Message, kw_only=True):
    """Used by etcd's own tests of the version check."""

    ver: Annotated[str, Field(1)] = ""


class StatusRequest(Message, kw_only=True):
    """Ask for the status of the server."""


class StatusResponse(Message, kw_only=True):
    """The status of the server."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    version: Annotated[str, Field(2)] = ""
    dbSize: Annotated[int, Field(3, INT64)] = 0
    leader: Annotated[int, Field(4, UINT64)] = 0
    raftIndex: Annotated[int, Field(5, UINT64)] = 0
    raftTerm: Annotated[int, Field(6, UINT64)] = 0
    raftAppliedIndex: Annotated[int, Field(7, UINT64)] = 0
    errors: Annotated[Sequence[str], Field(8)] = ()
    dbSizeInUse: Annotated[int, Field(9, INT64)] = 0
    isLearner: Annotated[bool, Field(10)] = False
    storageVersion: Annotated[str, Field(11)] = ""
    dbSizeQuota: Annotated[int, Field(12, INT64)] = 0
    downgradeInfo: Annotated[DowngradeInfo | None, Field(13)] = None


class DowngradeInfo(Message, kw_only=True):
    """Whether a downgrade is under way, and to which version."""

    enabled: Annotated[bool, Field(1)] = False
    targetVersion: Annotated[str, Field(2)] = ""
