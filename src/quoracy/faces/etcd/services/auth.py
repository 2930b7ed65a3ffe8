"""etcd's Auth service on a server without authentication.

The answers are those of etcd while authentication is off: it is off, and nobody can log in.

Differs from etcd: users and roles are not kept (etcd keeps them even while it is off), so whatever
needs them is unimplemented rather than accepted and forgotten: an operator who believes that a password
was set must not be wrong.
"""

from __future__ import annotations

from quoracy.faces.etcd.methods import Method, awaited
from quoracy.faces.etcd.services.member import Headers
from quoracy.wire.etcd import auth as messages
from quoracy.wire.grpc import GrpcError, StatusCode
from quoracy.wire.protobuf import Message

__all__ = ["AuthService"]

# Name, route, prefix of the messages.
_UNAVAILABLE = (
    ("AuthEnable", "enable", "AuthEnable"),
    ("UserAdd", "user/add", "AuthUserAdd"),
    ("UserGet", "user/get", "AuthUserGet"),
    ("UserList", "user/list", "AuthUserList"),
    ("UserDelete", "user/delete", "AuthUserDelete"),
    ("UserChangePassword", "user/changepw", "AuthUserChangePassword"),
    ("UserGrantRole", "user/grant", "AuthUserGrantRole"),
    ("UserRevokeRole", "user/revoke", "AuthUserRevokeRole"),
    ("RoleAdd", "role/add", "AuthRoleAdd"),
    ("RoleGet", "role/get", "AuthRoleGet"),
    ("RoleList", "role/list", "AuthRoleList"),
    ("RoleDelete", "role/delete", "AuthRoleDelete"),
    ("RoleGrantPermission", "role/grant", "AuthRoleGrantPermission"),
    ("RoleRevokePermission", "role/revoke", "AuthRoleRevokePermission"),
)


class AuthService:
    def __init__(self, headers: Headers) -> None:
        self._headers = headers

    def methods(self) -> list[Method]:
        service, route = "/etcdserverpb.Auth/", "/v3/auth/"
        unavailable: list[Method] = [
            awaited(
                service + name,
                getattr(messages, f"{prefix}Request"),
                getattr(messages, f"{prefix}Response"),
                self.unavailable,
                (route + path,),
            )
            for name, path, prefix in _UNAVAILABLE
        ]
        return [
            awaited(
                service + "Authenticate",
                messages.AuthenticateRequest,
                messages.AuthenticateResponse,
                self.authenticate,
                (route + "authenticate",),
            ),
            awaited(
                service + "AuthStatus",
                messages.AuthStatusRequest,
                messages.AuthStatusResponse,
                self.status,
                (route + "status",),
            ),
            awaited(
                service + "AuthDisable",
                messages.AuthDisableRequest,
                messages.AuthDisableResponse,
                self.disable,
                (route + "disable",),
            ),
            *unavailable,
        ]

    async def authenticate(self, _: messages.AuthenticateRequest) -> messages.AuthenticateResponse:
        raise GrpcError(StatusCode.FAILED_PRECONDITION, "etcdserver: authentication is not enabled")

    async def status(self, _: messages.AuthStatusRequest) -> messages.AuthStatusResponse:
        return messages.AuthStatusResponse(header=await self._headers.now(), authRevision=1)

    async def disable(self, _: messages.AuthDisableRequest) -> messages.AuthDisableResponse:
        """It is off already, which etcd takes for a success too."""
        return messages.AuthDisableResponse(header=await self._headers.now())

    async def unavailable(self, _: Message) -> Message:
        raise GrpcError(
            StatusCode.UNIMPLEMENTED,
            "authentication is not available yet: this server keeps no users and no roles. "
            "Guard the port by other means, such as TLS with client certificates or a firewall.",
        )
