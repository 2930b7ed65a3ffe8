"""Where Quoracy means to differ from ZooKeeper 3.8.0: that both do what zk_intended.py says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.differential.zk_alone import Alone, alone
from tests.differential.zk_asking import (
    ANY_WATCHES,
    DATA_WATCHES,
    PERSISTENT,
    RECURSIVE,
    TTL,
    add_watch,
    ask,
    auth,
    check,
    check_watches,
    children,
    create,
    create2,
    create_ttl,
    delete,
    exists,
    get,
    get_acl,
    multi,
    multi_read,
    ping,
    remove_watches,
    set_acl,
    set_data,
    sync,
)
from tests.differential.zk_connection import Connected, EventCame, Replied
from tests.differential.zk_intended import (
    BODY_OF_ERROR,
    CHECK_WATCHES,
    CREATE2_IN_MULTI,
    EVENT_ZXID,
    EXISTS_NEEDS_READ,
    FIRST_ZXID,
    INTENDED,
    TIMEOUT_NEVER_GROWS,
)
from tests.differential.zk_jute import int32
from tests.differential.zk_lockstep import Lockstep, Server
from tests.differential.zk_requests import OPEN, Acl, Op, Request
from tests.differential.zk_sides import running_pair
from tests.differential.zk_steps import As, Connect, Step
from tests.support.zookeeper_server import digest_id, running_zookeeper, zookeeper_missing

pytestmark = pytest.mark.skipif(zookeeper_missing() is not None, reason=str(zookeeper_missing()))

_OF_A_QUOTA = ("/zookeeper_limits", "/zookeeper_stats")
_ONLY_U = (Acl(31, "digest", digest_id("u", "p")),)


@pytest.fixture(scope="module")
def shared_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lockstep]:
    with running_pair(tmp_path_factory.mktemp("intended")) as lockstep:
        yield lockstep


@pytest.fixture
def pair(shared_pair: Lockstep) -> Lockstep:
    shared_pair.begin()
    shared_pair.intended.clear()
    return shared_pair


@pytest.fixture
def zookeeper(pair: Lockstep) -> Server:
    return pair.sides[0].server


@pytest.fixture
def quoracy(pair: Lockstep) -> Server:
    return pair.sides[1].server


# -- answers that are told from mistakes -----------------------------------------------------------

_SHOWN: dict[str, list[Step]] = {
    EVENT_ZXID: [ask(0, create("/e")), ask(0, get("/e", watch=True)), ask(0, set_data("/e"))],
    CREATE2_IN_MULTI: [ask(0, multi(create("/e"), create2("/e/a"), create2("/e/s", flags=2)))],
    BODY_OF_ERROR: [ask(0, multi_read(create("/e")))],
    EXISTS_NEEDS_READ: [ask(0, create("/e", acl=_ONLY_U)), ask(0, exists("/e"))],
    CHECK_WATCHES: [
        Connect(1),
        ask(0, create("/e")),
        ask(0, get("/e", watch=True)),
        ask(1, check_watches("/e", DATA_WATCHES)),
    ],
    TIMEOUT_NEVER_GROWS: [Connect(0, As.OWN, 50_000)],
    FIRST_ZXID: [ask(0, exists("/zookeeper"))],
}


@pytest.mark.parametrize("name", INTENDED)
def test_the_two_differ_as_intended(pair: Lockstep, name: str) -> None:
    pair.take_all([Connect(0), *_SHOWN[name]])
    assert list(pair.intended) == [name]


def test_an_event_has_the_zxid_of_its_change(zookeeper: Server, quoracy: Server) -> None:
    for server, has_zxid in ((zookeeper, False), (quoracy, True)):
        with alone(server) as client:
            client.hears(create("/e"), get("/e", watch=True))
            event, changed = client.hears(set_data("/e"))
            assert isinstance(event, EventCame)
            assert isinstance(changed, Replied)
            assert event.zxid == (changed.zxid if has_zxid else -1)


def test_create2_in_a_multi_is_answered_with_a_stat(zookeeper: Server, quoracy: Server) -> None:
    request = multi(create("/e"), create2("/e/a"))
    assert _told(zookeeper, request) == ["multi (1:('/e') 1:('/e/a') .)"]
    assert _told(quoracy, request) == ["multi (1:('/e') 15:('/e/a' <v0 c0 a0 0B 0ch>) .)"]


def test_exists_needs_the_permission_to_read(zookeeper: Server, quoracy: Server) -> None:
    for server, answer in ((zookeeper, "exists (<v0 c0 a0 0B 0ch>)"), (quoracy, "exists NoAuth")):
        with alone(server) as client:
            client.hears(create("/e", acl=_ONLY_U))
            assert client.told(exists("/e")) == [answer]
            client.hears(auth("digest", b"u:p"))
            assert client.told(exists("/e")) == ["exists (<v0 c0 a0 0B 0ch>)"]


def test_a_session_that_comes_back_gets_no_longer_timeout(zookeeper: Server, quoracy: Server) -> None:
    for server, timeouts in ((zookeeper, [20_000, 50_000]), (quoracy, [20_000, 30_000])):
        with alone(server, connect=False) as client:
            session = client.connect(timeout_ms=30_000)
        for asked, given in zip((20_000, 50_000), timeouts, strict=True):
            with alone(server, connect=False) as client:
                assert _back(client, session, timeout_ms=asked).timeout_ms == given


# -- what random sequences avoid -------------------------------------------------------------------


def test_kinds_of_watches_do_not_disturb_each_other(zookeeper: Server, quoracy: Server) -> None:
    def story(server: Server) -> list[list[str]]:
        with alone(server) as client, alone(server) as other:
            client.hears(create("/e"), add_watch("/e", RECURSIVE), children("/e", watch=True))
            other.hears(create("/e/a"))
            both = client.told()
            client.hears(add_watch("/e", PERSISTENT), get("/e", watch=True))
            other.hears(set_data("/e"), set_data("/e"))
            stays = client.told()
            client.hears(remove_watches("/e", DATA_WATCHES))
            other.hears(set_data("/e"))
            without_data = client.told()
            client.hears(remove_watches("/e", ANY_WATCHES))
            other.hears(set_data("/e"))
            return [both, stays, without_data, client.told()]

    made, changed = ["< created '/e/a'", "< children of '/e'"], "< changed '/e'"
    assert story(zookeeper) == [made, [changed], [], []]
    assert story(quoracy) == [made, [changed, changed], [changed], []]


def test_a_wrong_password_throws_nobody_out(zookeeper: Server, quoracy: Server) -> None:
    for server, answer in ((zookeeper, ["hung up"]), (quoracy, ["ping"])):
        with alone(server, connect=False) as owner, alone(server, connect=False) as thief:
            session = owner.connect()
            assert thief.connect(session_id=session.session_id, password=bytes(16)).session_id == 0
            assert owner.told(ping()) == answer


def test_a_request_right_behind_a_set_acl_is_judged_by_it(quoracy: Server) -> None:
    """In ZooKeeper that is a race: a setACL in flight does not show its ACL to those behind it."""
    with alone(quoracy) as client:
        client.hears(create("/e"))
        assert client.told(set_acl("/e", _ONLY_U), create("/e/a"), set_data("/e")) == [
            "set_acl (<v0 c0 a1 0B 0ch>)",
            "create NoAuth",
            "set_data NoAuth",
        ]


def test_what_clients_write_into_the_count_of_a_quota_changes_nothing(
    tmp_path: Path, quoracy: Server
) -> None:
    quota, limits, stats = (f"/zookeeper/quota/e{end}" for end in ("", *_OF_A_QUOTA))
    requests = [
        *(create("/e", b"123"), create(quota), create(limits, b"count=9,bytes=99")),
        *(create(stats, b"count=0,bytes=0"), get(stats), set_data(stats, b"x"), get(stats)),
        create("/e/a", b"45"),
    ]
    with (
        running_zookeeper(tmp_path / "mortal") as mortal,
        alone(Server("ZooKeeper", mortal.port)) as client,
    ):
        told = client.told_one_by_one(*requests)
    assert told[4:] == [
        "get_data (b'count=1,bytes=3' <v0 c0 a0 15B 0ch>)",
        "set_data (<v1 c0 a0 1B 0ch>)",
        "get_data (b'x' <v1 c0 a0 1B 0ch>)",
        "hung up",
    ]
    assert _told(quoracy, *requests, get(stats))[-2:] == [
        "create ('/e/a')",
        "get_data (b'count=2,bytes=5' <v1 c0 a0 15B 0ch>)",
    ]
    assert _told(quoracy, delete(stats), delete(limits), delete(quota)) == ["delete"] * 3


def test_a_ttl_out_of_range_with_other_flags_ends_zookeeper(tmp_path: Path, quoracy: Server) -> None:
    request = create_ttl("/e", -1, flags=0)
    with running_zookeeper(tmp_path / "mortal") as mortal:
        assert _told(Server("ZooKeeper", mortal.port), request) == ["hung up"]
    assert _told(quoracy, request) == ["create_ttl BadArguments"]


def test_null_is_met_before_other_mistakes(zookeeper: Server, quoracy: Server) -> None:
    for request in (create(None, flags=-1), create("/e", acl=(Acl(31, "digest", None),), flags=-1)):
        assert _told(zookeeper, request) == ["create BadArguments"]
        assert _told(quoracy, request) == ["create MarshallingError"]


def test_a_watch_on_no_path_does_no_harm(quoracy: Server) -> None:
    """ZooKeeper takes it too, but answers nobody any more once that connection ends."""
    assert _told(quoracy, add_watch(None, RECURSIVE)) == ["add_watch (0)"]
    assert _told(quoracy, ping()) == ["ping"]


def test_a_multi_with_a_ttl_mode_and_no_ttl_is_not_begun(zookeeper: Server, quoracy: Server) -> None:
    reached, not_reached = (
        multi(create("/e", flags=TTL)),
        multi(check("/none"), create("/e", flags=TTL)),
    )
    assert _told(zookeeper, reached) == _told(quoracy, reached) == ["multi MarshallingError"]
    assert _told(zookeeper, not_reached) == ["multi (NoNode RuntimeInconsistency .)"]
    assert _told(quoracy, not_reached) == ["multi MarshallingError"]


def test_check_alone_is_answered(zookeeper: Server, quoracy: Server) -> None:
    """ZooKeeper fails to write its answer, and says nothing; a fence shows that it goes on."""
    assert _told(zookeeper, create("/e"), check("/e")) == ["create ('/e')"]
    assert _told(quoracy, create("/e"), check("/e")) == ["create ('/e')", "check"]


def test_clients_cannot_create_sessions_by_request(zookeeper: Server, quoracy: Server) -> None:
    """ZooKeeper answers as if the client had just connected."""
    request = Request(Op.CREATE_SESSION, (int32(30_000),))
    with alone(zookeeper) as client:
        (answer,) = client.hears(request)
        assert isinstance(answer, Replied)
        assert answer.request is None
    assert _told(quoracy, request) == ["create_session Unimplemented", "hung up"]


def test_sync_gives_back_what_it_got(zookeeper: Server, quoracy: Server) -> None:
    assert _told(zookeeper, sync(b"/\xff")) == ["sync ('/\\ufffd')"]
    assert _told(quoracy, sync(b"/\xff")) == ["sync ('/\\udcff')"]


def test_an_acl_may_name_an_ipv6_address(zookeeper: Server, quoracy: Server) -> None:
    acl = (Acl(31, "ip", "::1"), *OPEN)
    assert _told(zookeeper, create("/e", acl=acl)) == ["create InvalidACL"]
    assert _told(quoracy, create("/e", acl=acl), get_acl("/e")) == [
        "create ('/e')",
        "get_acl (((31 'ip' '::1') (31 'world' 'anyone')) <v0 c0 a0 0B 0ch>)",
    ]


def test_a_path_is_no_longer_than_a_key(zookeeper: Server, quoracy: Server) -> None:
    path = "/" + "e" * 70_000
    (answer,) = _told(zookeeper, create(path))
    assert answer.startswith("create ('/eee")
    assert _told(quoracy, create(path)) == ["create BadArguments"]


def _told(server: Server, *requests: Request) -> list[str]:
    with alone(server) as client:
        return client.told(*requests)


def _back(client: Alone, session: Connected, *, timeout_ms: int) -> Connected:
    return client.connect(
        session_id=session.session_id, password=session.password or b"", timeout_ms=timeout_ms
    )
