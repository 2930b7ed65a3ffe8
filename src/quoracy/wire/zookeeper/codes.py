"""The numbers of ZooKeeper's client protocol: operations, errors, events, modes, permissions.

They are those of ZooKeeper 3.8 and 3.9 (ZooDefs, KeeperException.Code, Watcher, CreateMode).  Other
numbers are legal on the wire and stay plain ints.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

__all__ = [
    "PASSWORD_BYTES",
    "XID_AUTH",
    "XID_EVENT",
    "XID_PING",
    "XID_SET_WATCHES",
    "AddWatchMode",
    "CreateMode",
    "Err",
    "EventType",
    "KeeperState",
    "Op",
    "Perm",
    "WatcherType",
]


class Op(IntEnum):
    """The operation of a request: the second word of its header, and the type in a multi's headers."""

    NOTIFICATION = 0
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CREATE_SESSION = -10
    CLOSE_SESSION = -11
    ERROR = -1


class Err(IntEnum):
    """Why a request failed (KeeperException.Code)."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    DATA_INCONSISTENCY = -3
    CONNECTION_LOSS = -4
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    OPERATION_TIMEOUT = -7
    BAD_ARGUMENTS = -8
    UNKNOWN_SESSION = -12
    NEW_CONFIG_NO_QUORUM = -13
    RECONFIG_IN_PROGRESS = -14
    API_ERROR = -100
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_CALLBACK = -113
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NOT_READ_ONLY = -119
    EPHEMERAL_ON_LOCAL_SESSION = -120
    NO_WATCHER = -121
    REQUEST_TIMEOUT = -122
    RECONFIG_DISABLED = -123
    SESSION_CLOSED_REQUIRE_SASL_AUTH = -124
    QUOTA_EXCEEDED = -125
    THROTTLED_OP = -127


class EventType(IntEnum):
    """The type of an event (Watcher.Event.EventType)."""

    NONE = -1
    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4
    # Clients pass these to their own watchers; a server never sends them.
    DATA_WATCH_REMOVED = 5
    CHILD_WATCH_REMOVED = 6
    PERSISTENT_WATCH_REMOVED = 7


class KeeperState(IntEnum):
    """The state of the session that goes with an event (Watcher.Event.KeeperState)."""

    UNKNOWN = -1
    DISCONNECTED = 0
    NO_SYNC_CONNECTED = 1
    SYNC_CONNECTED = 3
    AUTH_FAILED = 4
    CONNECTED_READ_ONLY = 5
    SASL_AUTHENTICATED = 6
    CLOSED = 7
    EXPIRED = -112


class Perm(IntFlag):
    """What an ACL entry allows; the bits of its `perms`."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


class CreateMode(IntEnum):
    """The flags of a create request.  They are an enumeration, not bits: 5 is not "1 and 4"."""

    PERSISTENT = 0
    EPHEMERAL = 1
    PERSISTENT_SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3
    CONTAINER = 4
    PERSISTENT_WITH_TTL = 5
    PERSISTENT_SEQUENTIAL_WITH_TTL = 6


class AddWatchMode(IntEnum):
    """The mode of an addWatch request."""

    PERSISTENT = 0
    PERSISTENT_RECURSIVE = 1


class WatcherType(IntEnum):
    """Which watches checkWatches and removeWatches mean."""

    CHILDREN = 1
    DATA = 2
    ANY = 3
    PERSISTENT = 4
    PERSISTENT_RECURSIVE = 5


# Special values in place of a request's xid: they say what kind of frame it is.
XID_EVENT: Final = -1
XID_PING: Final = -2
XID_AUTH: Final = -4
XID_SET_WATCHES: Final = -8

# The length of a session's password.
PASSWORD_BYTES: Final = 16
