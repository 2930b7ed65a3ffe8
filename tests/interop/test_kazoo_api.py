"""kazoo's client, call by call, on a real ZooKeeper and on Quoracy."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    ConnectionLoss,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent

from tests.interop.kazoo_clients import Clients, Heard
from tests.interop.programs import WAIT_S_MAX

# -- create ---------------------------------------------------------------------------------------


def test_a_node_is_created_with_its_data(clients: Clients) -> None:
    client = clients.connect()
    assert client.create("/a", b"data") == "/a"
    data, stat = client.get("/a")
    assert data == b"data"
    assert stat.czxid == stat.mzxid == stat.pzxid == client.last_zxid
    assert (stat.version, stat.cversion, stat.aversion) == (0, 0, 0)
    assert (stat.ephemeralOwner, stat.dataLength, stat.numChildren) == (0, 4, 0)
    assert stat.ctime == stat.mtime > 1_600_000_000_000
    assert client.create("/empty") == "/empty"
    assert client.get("/empty")[0] == b""


def test_data_may_be_missing_and_may_be_nearly_a_megabyte(clients: Clients) -> None:
    client = clients.connect()
    client.create("/nothing", None)
    # kazoo reads a missing buffer as one without bytes.
    assert client.get("/nothing")[0] in (None, b"")
    assert client.get("/nothing")[1].dataLength == 0
    much = b"x" * (1024 * 1024 - 1000)
    client.create("/much", much)
    assert client.get("/much")[0] == much


def test_a_request_that_is_too_large_costs_the_connection_not_the_session(clients: Clients) -> None:
    client = clients.connect()
    session = client.client_id
    with pytest.raises(ConnectionLoss):
        client.create("/too-much", b"x" * (1024 * 1024 + 1))
    assert client.retry(client.exists, "/too-much") is None
    assert client.client_id == session


def test_ephemeral_nodes_belong_to_the_session(clients: Clients) -> None:
    client = clients.connect()
    client.create("/e", b"", ephemeral=True)
    assert client.exists("/e").ephemeralOwner == client.client_id[0]
    assert client.exists("/e").owner_session_id == client.client_id[0]
    with pytest.raises(NoChildrenForEphemeralsError):
        client.create("/e/child")
    witness = clients.connect()
    gone: Heard[WatchedEvent] = Heard()
    assert witness.exists("/e", watch=gone) is not None
    client.stop()
    assert (gone.next().type, witness.exists("/e")) == (EventType.DELETED, None)


def test_sequence_numbers_count_what_was_created_in_a_directory(clients: Clients) -> None:
    client = clients.connect()
    client.create("/s")
    assert client.create("/s/n-", sequence=True) == "/s/n-0000000000"
    assert client.create("/s/other") == "/s/other"
    assert client.create("/s/n-", sequence=True, ephemeral=True) == "/s/n-0000000002"
    client.delete("/s/n-0000000002")
    assert client.create("/s/", sequence=True) == "/s/0000000003"
    with pytest.raises(NodeExistsError):
        client.create("/s/other")
    assert client.create("/s/m", b"7", sequence=True, include_data=True)[0] == "/s/m0000000004"


def test_create_with_include_data_gives_the_stat(clients: Clients) -> None:
    client = clients.connect()
    path, stat = client.create("/c2", b"four", include_data=True)
    assert path == "/c2"
    assert stat == client.get("/c2")[1]
    path, stat = client.create("/c2/e", b"", ephemeral=True, include_data=True)
    assert stat.ephemeralOwner == client.client_id[0]


def test_parents_are_made_when_asked_for(clients: Clients) -> None:
    client = clients.connect()
    with pytest.raises(NoNodeError):
        client.create("/p/q/r")
    assert client.create("/p/q/r", b"x", makepath=True) == "/p/q/r"
    assert client.create("/p2/q/r-", sequence=True, makepath=True) == "/p2/q/r-0000000000"
    client.ensure_path("/p/q/r/s/t")
    assert client.get_children("/p/q/r/s") == ["t"]
    with pytest.raises(NodeExistsError):
        client.create("/p/q/r")


def test_names_may_be_anything_that_can_be_printed(clients: Clients) -> None:
    client = clients.connect()
    names = ["größe", "日本語", "with space", "a.b", "…", "\ud7ff", "\uf900", "-", "%2f", "..."]
    for name in names:
        assert client.create(f"/{name}", name.encode()) == f"/{name}"
    assert sorted(client.get_children("/")) == sorted(names)
    assert [client.get(f"/{name}")[0].decode() for name in names] == names


@pytest.mark.parametrize("name", ["\x01", "\x1f", "\x7f", "\x9f", "\ue000", "\U0001f600", "\uffff"])
def test_names_that_cannot_be_printed_are_refused(clients: Clients, name: str) -> None:
    with pytest.raises(BadArgumentsError):
        clients.connect().create(f"/bad{name}")


# -- get, set, exists, children, delete -----------------------------------------------------------


def test_set_counts_versions_and_checks_them(clients: Clients) -> None:
    client = clients.connect()
    client.create("/v", b"0")
    created = client.exists("/v")
    stat = client.set("/v", b"one", version=0)
    assert (stat.version, stat.dataLength, stat.czxid) == (1, 3, created.czxid)
    assert stat.mzxid > created.mzxid
    assert client.set("/v", b"two").version == 2
    with pytest.raises(BadVersionError):
        client.set("/v", b"late", version=1)
    with pytest.raises(NoNodeError):
        client.set("/none", b"")
    assert client.get("/v") == (b"two", client.exists("/v"))
    with pytest.raises(NoNodeError):
        client.get("/none")
    assert client.exists("/none") is None


def test_children_come_with_the_stat_of_their_parent(clients: Clients) -> None:
    client = clients.connect()
    client.create("/d")
    assert client.get_children("/d") == []
    for name in "bca":
        client.create(f"/d/{name}")
    client.create("/d/a/deep")
    assert sorted(client.get_children("/d")) == ["a", "b", "c"]
    children, stat = client.get_children("/d", include_data=True)
    assert (sorted(children), stat) == (["a", "b", "c"], client.exists("/d"))
    assert (stat.numChildren, stat.cversion, stat.version) == (3, 3, 0)
    assert stat.pzxid == client.exists("/d/a").czxid > stat.mzxid
    client.delete("/d/b")
    assert client.exists("/d").cversion == 4
    with pytest.raises(NoNodeError):
        client.get_children("/none")


def test_delete_checks_the_version_and_that_there_are_no_children(clients: Clients) -> None:
    client = clients.connect()
    client.create("/x/y/z", makepath=True)
    client.set("/x/y/z", b"")
    with pytest.raises(BadVersionError):
        client.delete("/x/y/z", version=0)
    with pytest.raises(NotEmptyError):
        client.delete("/x")
    with pytest.raises(NoNodeError):
        client.delete("/x/none")
    client.delete("/x/y/z", version=1)
    client.create("/x/y/w")
    client.delete("/x", recursive=True)
    assert client.exists("/x") is None


def test_sync_answers_with_the_path(clients: Clients) -> None:
    client = clients.connect()
    client.create("/s")
    assert client.sync("/s") == "/s"


# -- watches --------------------------------------------------------------------------------------


def _event(kind: str, path: str) -> WatchedEvent:
    return WatchedEvent(kind, KeeperState.CONNECTED, path)


def test_each_watch_fires_once_and_for_its_kind_of_change(clients: Clients) -> None:
    client, other = clients.connect(), clients.connect()
    heard: Heard[WatchedEvent] = Heard()
    assert client.exists("/w", watch=heard) is None
    other.create("/w", b"1")
    assert heard.next() == _event(EventType.CREATED, "/w")
    client.get("/w", watch=heard)
    other.create("/w/child")
    other.set("/w", b"2")
    assert heard.next() == _event(EventType.CHANGED, "/w")
    other.set("/w", b"3")  # nobody watches any more
    client.get_children("/w", watch=heard)
    other.set("/w", b"4")
    other.delete("/w/child")
    assert heard.next() == _event(EventType.CHILD, "/w")
    client.exists("/w", watch=heard)
    other.delete("/w")
    assert heard.next() == _event(EventType.DELETED, "/w")
    client.sync("/")
    assert heard.is_silent


def test_a_deleted_node_fires_its_data_and_its_child_watches(clients: Clients) -> None:
    client, other = clients.connect(), clients.connect()
    other.create("/parent/w", makepath=True)
    data: Heard[WatchedEvent] = Heard()
    child: Heard[WatchedEvent] = Heard()
    parent: Heard[WatchedEvent] = Heard()
    client.get("/parent/w", watch=data)
    client.get_children("/parent/w", watch=child)
    client.get_children("/parent", watch=parent)
    other.delete("/parent/w")
    assert data.next() == child.next() == _event(EventType.DELETED, "/parent/w")
    assert parent.next() == _event(EventType.CHILD, "/parent")
    with pytest.raises(NoNodeError):
        client.get("/parent/w", watch=data)
    with pytest.raises(NoNodeError):
        client.get_children("/parent/w", watch=child)
    other.create("/parent/w")
    client.sync("/")
    assert data.is_silent, "a read that failed left a watch"
    assert child.is_silent, "a read that failed left a watch"


def test_data_watch_shows_every_state_from_none_to_gone(clients: Clients) -> None:
    client = clients.connect()
    seen: Heard[object] = Heard()
    client.DataWatch(
        "/dw", lambda data, stat, event: seen((data, stat and stat.version, event and event.type))
    )
    assert seen.next() == (None, None, None)
    client.create("/dw", b"1")
    assert seen.next() == (b"1", 0, EventType.CREATED)
    client.set("/dw", b"2")
    assert seen.next() == (b"2", 1, EventType.CHANGED)
    client.delete("/dw")
    assert seen.next() == (None, None, EventType.DELETED)


def test_children_watch_shows_who_is_there(clients: Clients) -> None:
    client, other = clients.connect(), clients.connect()
    client.create("/cw")
    seen: Heard[list[str]] = Heard()
    client.ChildrenWatch("/cw", lambda children: seen(sorted(children)))
    assert seen.next() == []
    for count in range(1, 4):
        other.create(f"/cw/{count}", ephemeral=True)
        assert seen.next() == [str(each + 1) for each in range(count)]
    other.stop()
    # Three nodes go with one session, at once; kazoo looks after the first event.
    seen.until([])


# -- transactions ---------------------------------------------------------------------------------


def test_a_transaction_does_all_of_it(clients: Clients) -> None:
    client = clients.connect()
    client.create("/t")
    client.create("/t/old", b"0")
    transaction = client.transaction()
    transaction.check("/t/old", 0)
    transaction.create("/t/new", b"1")
    transaction.create("/t/seq-", b"", sequence=True)
    transaction.create("/t/mine", b"", ephemeral=True)
    transaction.set_data("/t/old", b"2", version=0)
    transaction.set_data("/t/new", b"3")
    transaction.create("/t/new/child")
    transaction.delete("/t/new/child", version=0)
    done = transaction.commit()
    assert done[:4] == [True, "/t/new", "/t/seq-0000000002", "/t/mine"]
    assert [done[4].version, done[5].version, *done[6:]] == [1, 1, "/t/new/child", True]
    new, seq = client.exists("/t/new"), client.exists("/t/seq-0000000002")
    assert new.czxid == seq.czxid == new.mzxid == client.exists("/t/old").mzxid
    assert client.exists("/t/mine").ephemeralOwner == client.client_id[0]


@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_a_transaction_that_fails_does_none_of_it(clients: Clients, fails_at: int) -> None:
    client = clients.connect()
    client.create("/t", b"before")
    transaction = client.transaction()
    for number in range(3):
        if number == fails_at:
            transaction.check("/t", 77)
        else:
            transaction.create(f"/t/{number}")
    kinds = [type(result) for result in transaction.commit()]
    assert kinds == [
        *([RolledBackError] * fails_at),
        BadVersionError,
        *([RuntimeInconsistency] * (2 - fails_at)),
    ]
    assert client.get_children("/t") == []


def test_a_transaction_fires_watches_only_if_it_is_done(clients: Clients) -> None:
    client, other = clients.connect(), clients.connect()
    client.create("/t")
    heard: Heard[WatchedEvent] = Heard()
    client.get_children("/t", watch=heard)
    failing = other.transaction()
    failing.create("/t/a")
    failing.delete("/t/none")
    failing.commit()
    client.sync("/")
    assert heard.is_silent
    with other.transaction() as passing:
        passing.create("/t/a")
    assert heard.next() == _event(EventType.CHILD, "/t")


# -- the connection -------------------------------------------------------------------------------


def test_a_chroot_is_the_clients_own_affair(clients: Clients) -> None:
    outside = clients.connect(directory="")
    inside = clients.connect()
    inside.create("/below")
    below = clients.connect(directory=f"{clients.directory}/below")
    heard: Heard[WatchedEvent] = Heard()
    inside.exists("/below/x", watch=heard)
    assert below.create("/x", b"1") == "/x"
    assert heard.next() == _event(EventType.CREATED, "/below/x")
    assert outside.get(f"{clients.directory}/below/x")[0] == b"1"
    assert below.get_children("/") == ["x"]
    assert below.create("/s-", sequence=True) == "/s-0000000001"
    with below.transaction() as transaction:
        transaction.create("/y")
    assert sorted(inside.get_children("/below")) == ["s-0000000001", "x", "y"]


def test_a_client_content_with_reading_is_given_more(clients: Clients) -> None:
    client = clients.connect(read_only=True)
    assert client.client_state == KeeperState.CONNECTED
    assert client.state == KazooState.CONNECTED
    client.create("/written")


def test_words_of_four_letters(clients: Clients) -> None:
    client = clients.connect()
    assert client.command(b"ruok") == "imok"
    assert client.server_version()[:2] >= (3, 8)
    assert "Mode: standalone" in client.command(b"srvr")


def test_several_hosts_are_tried_until_one_answers(clients: Clients) -> None:
    # Nobody listens on port 1.
    client = KazooClient(
        f"127.0.0.1:1,{clients.zookeeper.address}{clients.directory}", randomize_hosts=False, timeout=30
    )
    client.start(30)
    client.create("/there")
    client.stop()
    client.close()


def test_requests_in_flight_are_answered_in_order(clients: Clients) -> None:
    """A thousand requests before the first answer: each sees all that were sent before it."""
    client = clients.connect()
    client.create("/p", b"-1")
    rows = [
        (
            client.set_async("/p", b"%d" % number),
            client.get_async("/p"),
            client.create_async("/p/c-", sequence=True),
            client.exists_async(f"/p/c-{number:010}"),
            client.get_children_async("/p"),
        )
        for number in range(200)
    ]
    for number, (written, read, created, found, children) in enumerate(rows):
        assert written.get(timeout=WAIT_S_MAX).version == number + 1
        assert read.get(timeout=WAIT_S_MAX)[0] == b"%d" % number
        assert created.get(timeout=WAIT_S_MAX) == f"/p/c-{number:010}"
        assert found.get(timeout=WAIT_S_MAX) is not None
        assert len(children.get(timeout=WAIT_S_MAX)) == number + 1


def test_errors_among_requests_in_flight_stay_where_they_belong(clients: Clients) -> None:
    client = clients.connect()
    client.create("/p")
    results = []
    for number in range(100):
        results.append(client.create_async(f"/p/{number // 2}"))
        results.append(client.set_async("/p", b"x", version=number))
        results.append(client.get_async(f"/p/none-{number}"))
    outcomes = [type(result.exception) for result in results if result.wait(WAIT_S_MAX)]
    assert outcomes == [
        each
        for number in range(100)
        for each in (type(None) if number % 2 == 0 else NodeExistsError, type(None), NoNodeError)
    ]
