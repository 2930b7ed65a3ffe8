"""The numbers are those of another implementation, kazoo, for everything that it knows."""

from __future__ import annotations

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol import connection, serialization
from kazoo.protocol.states import EVENT_TYPE_MAP
from kazoo.security import Permissions

from quoracy.wire.zookeeper.codes import (
    XID_AUTH,
    XID_EVENT,
    XID_PING,
    CreateMode,
    Err,
    EventType,
    Op,
    Perm,
)


def plain(name: str) -> str:
    return name.replace("_", "").upper().removesuffix("ERROR")


def test_errors_are_exactly_those_that_kazoo_knows() -> None:
    renamed = {
        "RolledBackError": Err.OK,
        "SystemZookeeperError": Err.SYSTEM_ERROR,
        "ReconfigInProcessError": Err.RECONFIG_IN_PROGRESS,
        "NotReadOnlyCallError": Err.NOT_READ_ONLY,
        "SessionClosedRequireSaslError": Err.SESSION_CLOSED_REQUIRE_SASL_AUTH,
    }
    ours = {plain(code.name): code for code in Err}
    for number, error in EXCEPTIONS.items():
        name = error.__name__
        assert renamed.get(name, ours.get(plain(name))) == number, name
    assert set(EXCEPTIONS) == set(Err)


def test_every_operation_that_kazoo_sends_has_our_number() -> None:
    renamed = {"CheckVersion": Op.CHECK, "Transaction": Op.MULTI, "Close": Op.CLOSE_SESSION}
    ours = {plain(op.name): op for op in Op}
    theirs = {
        name: int(record.__dict__["type"])
        for name, record in vars(serialization).items()
        if isinstance(record, type) and isinstance(record.__dict__.get("type"), int)
    }
    assert len(theirs) >= 18
    for name, number in theirs.items():
        assert renamed.get(name, ours.get(plain(name))) == number, name


def test_events_and_special_xids_are_kazoos() -> None:
    assert set(EVENT_TYPE_MAP) == {
        EventType.NONE,
        EventType.CREATED,
        EventType.DELETED,
        EventType.DATA_CHANGED,
        EventType.CHILDREN_CHANGED,
    }
    assert (connection.WATCH_XID, connection.PING_XID, connection.AUTH_XID) == (
        XID_EVENT,
        XID_PING,
        XID_AUTH,
    )


def test_permissions_are_bits_and_all_is_their_union() -> None:
    parts = (Perm.READ, Perm.WRITE, Perm.CREATE, Perm.DELETE, Perm.ADMIN)
    assert sum(parts) == Perm.ALL == Permissions.ALL
    for part in parts:
        assert part == getattr(Permissions, part.name or "")


def test_modes_of_create_are_numbers_without_gaps() -> None:
    assert [int(mode) for mode in CreateMode] == [0, 1, 2, 3, 4, 5, 6]
