# ruff: noqa: N815 - fields have the names of the proto files
"""Users, roles, permissions: etcd's authpb/auth.proto and service Auth of etcdserverpb/rpc.proto."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated

from quoracy.wire.etcd.rpc import ResponseHeader
from quoracy.wire.protobuf import UINT64, Field, Message

__all__ = [
    "AuthDisableRequest",
    "AuthDisableResponse",
    "AuthEnableRequest",
    "AuthEnableResponse",
    "AuthRoleAddRequest",
    "AuthRoleAddResponse",
    "AuthRoleDeleteRequest",
    "AuthRoleDeleteResponse",
    "AuthRoleGetRequest",
    "AuthRoleGetResponse",
    "AuthRoleGrantPermissionRequest",
    "AuthRoleGrantPermissionResponse",
    "AuthRoleListRequest",
    "AuthRoleListResponse",
    "AuthRoleRevokePermissionRequest",
    "AuthRoleRevokePermissionResponse",
    "AuthStatusRequest",
    "AuthStatusResponse",
    "AuthUserAddRequest",
    "AuthUserAddResponse",
    "AuthUserChangePasswordRequest",
    "AuthUserChangePasswordResponse",
    "AuthUserDeleteRequest",
    "AuthUserDeleteResponse",
    "AuthUserGetRequest",
    "AuthUserGetResponse",
    "AuthUserGrantRoleRequest",
    "AuthUserGrantRoleResponse",
    "AuthUserListRequest",
    "AuthUserListResponse",
    "AuthUserRevokeRoleRequest",
    "AuthUserRevokeRoleResponse",
    "AuthenticateRequest",
    "AuthenticateResponse",
    "Permission",
    "PermissionType",
    "Role",
    "User",
    "UserAddOptions",
]


class UserAddOptions(Message, kw_only=True):
    """Options of a new user."""

    no_password: Annotated[bool, Field(1)] = False


class User(Message, kw_only=True):
    """A user as etcd stores it."""

    name: Annotated[bytes, Field(1)] = b""
    password: Annotated[bytes, Field(2)] = b""
    roles: Annotated[Sequence[str], Field(3)] = ()
    options: Annotated[UserAddOptions | None, Field(4)] = None


class PermissionType(IntEnum):
    """What a permission allows."""

    READ = 0
    WRITE = 1
    READWRITE = 2


class Permission(Message, kw_only=True):
    """The permission for one key, or for every key of a range."""

    permType: Annotated[PermissionType | int, Field(1)] = PermissionType.READ
    key: Annotated[bytes, Field(2)] = b""
    range_end: Annotated[bytes, Field(3)] = b""


class Role(Message, kw_only=True):
    """A role as etcd stores it."""

    name: Annotated[bytes, Field(1)] = b""
    keyPermission: Annotated[Sequence[Permission], Field(2)] = ()


class AuthEnableRequest(Message, kw_only=True):
    """Turn authentication on."""


class AuthDisableRequest(Message, kw_only=True):
    """Turn authentication off."""


class AuthStatusRequest(Message, kw_only=True):
    """Ask whether authentication is on."""


class AuthenticateRequest(Message, kw_only=True):
    """Exchange a name and a password for a token."""

    name: Annotated[str, Field(1)] = ""
    password: Annotated[str, Field(2)] = ""


class AuthUserAddRequest(Message, kw_only=True):
    """Add a user."""

    name: Annotated[str, Field(1)] = ""
    password: Annotated[str, Field(2)] = ""
    options: Annotated[UserAddOptions | None, Field(3)] = None
    hashedPassword: Annotated[str, Field(4)] = ""


class AuthUserGetRequest(Message, kw_only=True):
    """Ask for a user's roles."""

    name: Annotated[str, Field(1)] = ""


class AuthUserDeleteRequest(Message, kw_only=True):
    """Remove a user."""

    name: Annotated[str, Field(1)] = ""


class AuthUserChangePasswordRequest(Message, kw_only=True):
    """Change a user's password."""

    name: Annotated[str, Field(1)] = ""
    password: Annotated[str, Field(2)] = ""
    hashedPassword: Annotated[str, Field(3)] = ""


class AuthUserGrantRoleRequest(Message, kw_only=True):
    """Grant a role to a user."""

    user: Annotated[str, Field(1)] = ""
    role: Annotated[str, Field(2)] = ""


class AuthUserRevokeRoleRequest(Message, kw_only=True):
    """Revoke a role from a user."""

    name: Annotated[str, Field(1)] = ""
    role: Annotated[str, Field(2)] = ""


class AuthRoleAddRequest(Message, kw_only=True):
    """Add a role."""

    name: Annotated[str, Field(1)] = ""


class AuthRoleGetRequest(Message, kw_only=True):
    """Ask for a role's permissions."""

    role: Annotated[str, Field(1)] = ""


class AuthUserListRequest(Message, kw_only=True):
    """Ask for all users."""


class AuthRoleListRequest(Message, kw_only=True):
    """Ask for all roles."""


class AuthRoleDeleteRequest(Message, kw_only=True):
    """Remove a role."""

    role: Annotated[str, Field(1)] = ""


class AuthRoleGrantPermissionRequest(Message, kw_only=True):
    """Grant a permission to a role."""

    name: Annotated[str, Field(1)] = ""
    perm: Annotated[Permission | None, Field(2)] = None


class AuthRoleRevokePermissionRequest(Message, kw_only=True):
    """Revoke a permission from a role."""

    role: Annotated[str, Field(1)] = ""
    key: Annotated[bytes, Field(2)] = b""
    range_end: Annotated[bytes, Field(3)] = b""


class AuthEnableResponse(Message, kw_only=True):
    """Authentication is on."""

    header: Annotated[ResponseHeader | None, Field(1)] = None


class AuthDisableResponse(Message, kw_only=True):
    """Authentication is off."""

    header: Annotated[ResponseHeader | None, Field(1)] = None


class AuthStatusResponse(Message, kw_only=True):
    """Whether authentication is on, and the revision of its data."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    enabled: Annotated[bool, Field(2)] = False
    authRevision: Annotated[int, Field(3, UINT64)] = 0


class AuthenticateResponse(Message, kw_only=True):
    """The token to send with every request."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    token: Annotated[str, Field(2)] = ""


class AuthUserAddResponse(Message, kw_only=True):
    """The user was added."""

    header: Annotated[ResponseHeader | None, Field(1)] = None


class AuthUserGetResponse(Message, kw_only=True):
    """The user's roles."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    roles: Annotated[Sequence[str], Field(2)] = ()


class AuthUserDeleteResponse(Message, kw_only=True):
    """The user was removed."""

    header: Annotated[ResponseHeader | None, Field(1)] = None


class AuthUserChangePasswordResponse(Message, kw_only=True):
    """The password was changed."""

    header: Annotated[ResponseHeader | None, Field(1)] = None


class AuthUserGrantRoleResponse(Message, kw_only=True):
    """The role was granted."""

    header: Annotated[ResponseHeader | None, Field(1)] = None


class AuthUserRevokeRoleResponse(Message, kw_only=True):
    """The role was revoked."""

    header: Annotated[ResponseHeader | None, Field(1)] = None


class AuthRoleAddResponse(Message, kw_only=True):
    """The role was added."""

    header: Annotated[ResponseHeader | None, Field(1)] = None


class AuthRoleGetResponse(Message, kw_only=True):
    """The role's permissions."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    perm: Annotated[Sequence[Permission], Field(2)] = ()


class AuthRoleListResponse(Message, kw_only=True):
    """The names of all roles."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    roles: Annotated[Sequence[str], Field(2)] = ()


class AuthUserListResponse(Message, kw_only=True):
    """The names of all users."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    users: Annotated[Sequence[str], Field(2)] = ()


class AuthRoleDeleteResponse(Message, kw_only=True):
    """The role was removed."""

    header: Annotated[ResponseHeader | None, Field(1)] = None


class AuthRoleGrantPermissionResponse(Message, kw_only=True):
    """The permission was granted."""

    header: Annotated[ResponseHeader | None, Field(1)] = None


class AuthRoleRevokePermissionResponse(Message, kw_only=True):
    """The permission was revoked."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
