"""Four-letter words: who may ask, and what each answers, to the letter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from quoracy.clock import ManualClock
from quoracy.engines.opening import open_embedded
from quoracy.faces.zookeeper.admin.four_letter import WORDS, answer, is_word
from quoracy.faces.zookeeper.admin.report import FULL_VERSION
from quoracy.store.api import Store
from tests.unit.faces.zookeeper.server_views import SESSION, FixedSession, FixedView, busy_view

SESSION_HEX = f"0x{SESSION:x}"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0, wall=1_794_800_440.0)


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[Store]:
    async with open_embedded("memory:", clock=clock) as store:
        yield store


@pytest.fixture
async def view(store: Store, clock: ManualClock) -> FixedView:
    return await busy_view(store, clock)


async def said(word: str, view: FixedView, rest: bytes = b"") -> str:
    return (await answer(word.encode("latin-1"), view, rest)).decode()


def with_whitelist(view: FixedView, *words: str) -> None:
    view.settings = msgspec.structs.replace(view.settings, commands_whitelist=frozenset(words))


# -- who may ask


@pytest.mark.parametrize("head", [b"RUOK", b"nope", b"\0\0\0\x2c", b"ruo", b"ruoks", b"GET "])
def test_what_is_no_word_is_none(head: bytes) -> None:
    assert not is_word(head)


async def test_only_listed_words_are_carried_out_and_srvr_always(view: FixedView) -> None:
    with_whitelist(view, "ruok", "isro")
    carried_out = set()
    for word in WORDS:
        name = "telnet close" if word == b"\xff\xf4\xff\xfd" else word.decode()
        refusal = f"{name} is not executed because it is not in the whitelist.\n"
        if await answer(word, view) != refusal.encode():
            carried_out.add(name)
    assert carried_out == {"srvr", "ruok", "isro"}


async def test_refused_reset_resets_nothing(view: FixedView) -> None:
    with_whitelist(view)
    await said("srst", view)
    await said("crst", view)
    assert view.stats.packets_sent == 3
    assert next(iter(view.stats.connections)).sent_count == 3


async def test_star_is_every_word_and_telnet_gets_no_answer(view: FixedView) -> None:
    for word in WORDS - {b"\xff\xf4\xff\xfd", b"stmk", b"hash"}:
        assert b"whitelist" not in await answer(word, view)
        assert await answer(word, view)
    assert await answer(b"\xff\xf4\xff\xfd", view) == b""


async def test_server_that_does_not_serve_says_so(view: FixedView) -> None:
    view.running = False
    for word in ("srvr", "stat", "mntr", "conf", "cons", "dump", "dirs", "wchs", "srst"):
        assert await said(word, view) == ("This ZooKeeper instance is not currently serving requests\n")
    assert await said("ruok", view) == "imok"
    assert await said("isro", view) == "null"


# -- what each says


async def test_ruok_and_isro_have_no_end_of_line(view: FixedView) -> None:
    assert (await said("ruok", view), await said("isro", view)) == ("imok", "rw")


SERVER = """\
Latency min/avg/max: 1/3.8333/9
Received: 3
Sent: 3
Connections: 1
Outstanding: 0
Zxid: 0x4
Mode: standalone
Node count: 5
"""


async def test_srvr(view: FixedView) -> None:
    assert await said("srvr", view) == f"Zookeeper version: {FULL_VERSION}\n{SERVER}"


async def test_stat_is_srvr_with_the_clients(view: FixedView) -> None:
    view.connect(7, "::1")
    assert await said("stat", view) == (
        f"Zookeeper version: {FULL_VERSION}\nClients:\n"
        " /127.0.0.1:51772[1](queued=0,recved=3,sent=3)\n"
        " /[0:0:0:0:0:0:0:1]:7[1](queued=0,recved=0,sent=0)\n\n"
        + SERVER.replace("Connections: 1", "Connections: 2")
    )


async def test_cons_has_details_of_connections_that_have_a_session(view: FixedView) -> None:
    view.connect(60_000)
    assert await said("cons", view) == (
        f" /127.0.0.1:51772[1](queued=0,recved=3,sent=3,sid={SESSION_HEX},lop=EXIS,"
        "est=1794800440000,to=10000,lcxid=0x3,lzxid=0x4,lresp=101001,llat=1,minlat=1,avglat=3,maxlat=9)\n"
        " /127.0.0.1:60000[1](queued=0,recved=0,sent=0)\n\n"
    )


async def test_session_id_below_zero_is_written_as_java_does(view: FixedView) -> None:
    stats = next(iter(view.stats.connections))
    stats.session_id = -2
    assert "sid=0xfffffffffffffffe," in await said("cons", view)


async def test_conf(view: FixedView) -> None:
    size_bytes = (await view.store.status()).size_bytes
    assert await said("conf", view) == (
        f"clientPort=2181\nsecureClientPort=-1\ndataDir=memory\ndataDirSize={size_bytes}\n"
        f"dataLogDir=memory\ndataLogSize={size_bytes}\ntickTime=2000\nmaxClientCnxns=60\n"
        "minSessionTimeout=4000\nmaxSessionTimeout=40000\nclientPortListenBacklog=-1\nserverId=0\n"
    )


async def test_dirs(view: FixedView) -> None:
    await view.store.put(b"key", b"x" * 1000)
    size_bytes = (await view.store.status()).size_bytes
    assert size_bytes >= 1000
    assert await said("dirs", view) == f"datadir_size: {size_bytes}\nlogdir_size: {size_bytes}\n"


async def test_dump_shows_when_sessions_end_and_what_goes_with_them(view: FixedView) -> None:
    assert await said("dump", view) == (
        "SessionTracker dump:\nSession Sets (1)/(1):\n"
        f"1 expire at Mon Nov 16 03:40:52 UTC 2026:\n\t{SESSION_HEX}\n"
        "ephemeral nodes dump:\nSessions with Ephemerals (1):\n"
        f"{SESSION_HEX}:\n\t/a\n\t/b/c\n"
        "Connections dump:\nConnections Sets (1)/(1):\n"
        "1 expire at Mon Nov 16 03:40:52 UTC 2026:\n"
        f"\tip: /127.0.0.1:51772 sessionId: {SESSION_HEX}\n"
    )


async def test_dump_leaves_out_a_session_whose_lease_ended_meanwhile(view: FixedView) -> None:
    view.tree.sessions[99] = FixedSession()
    assert "Session Sets (1)/(1):\n" in await said("dump", view)


async def test_watches_by_session_by_path_and_in_sum(view: FixedView) -> None:
    assert await said("wchs", view) == "1 connections watching 2 paths\nTotal watches:2\n"
    assert await said("wchc", view) == f"{SESSION_HEX}\n\t/a\n\t/b\n\n"
    assert await said("wchp", view) == f"/a\n\t{SESSION_HEX}\n/b\n\t{SESSION_HEX}\n\n"


async def test_no_watches_at_all(store: Store, clock: ManualClock) -> None:
    view = FixedView(store, clock)
    assert await said("wchs", view) == "0 connections watching 0 paths\nTotal watches:0\n"
    assert (await said("wchc", view), await said("wchp", view)) == ("\n", "\n")


async def test_mntr_is_names_and_values_between_tabs(view: FixedView) -> None:
    lines = (await said("mntr", view)).splitlines()
    figures = dict(line.split("\t") for line in lines)
    assert all(name.startswith("zk_") for name in figures)
    expected = {
        "zk_version": FULL_VERSION,
        "zk_server_state": "standalone",
        "zk_znode_count": "5",
        "zk_ephemerals_count": "2",
        "zk_watch_count": "3",
        "zk_global_sessions": "1",
        "zk_approximate_data_size": str(3 + len("//a/b/b/c/zookeeper")),
        "zk_avg_latency": "3.8333",
        "zk_packets_received": "3",
        "zk_uptime": "1000",
        "zk_last_client_response_size": "83",
        "zk_cnt_readlatency": "2",
        "zk_p99_updatelatency": "9",
    }
    assert {name: figures.get(name) for name in expected} == expected


async def test_envi_tells_the_version_clients_look_for(view: FixedView) -> None:
    text = await said("envi", view)
    assert text.startswith(f"Environment:\nzookeeper.version={FULL_VERSION}\nhost.name=")


async def test_envi_does_without_what_the_system_does_not_tell(
    view: FixedView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "\nuser.dir=?\n" in await said("envi", view)


async def test_resets_are_of_the_server_and_of_connections(view: FixedView) -> None:
    stats = next(iter(view.stats.connections))
    assert await said("srst", view) == "Server stats reset.\n"
    assert (view.stats.packets_sent, stats.sent_count) == (0, 3)
    assert await said("crst", view) == "Connection stats reset.\n"
    assert stats.sent_count == 0


async def test_trace_mask_is_kept(view: FixedView) -> None:
    assert await said("gtmk", view) == "306"
    assert await said("stmk", view, (5).to_bytes(8, "big")) == "5"
    assert await said("stmk", view, b"short") == ""
    assert await said("gtmk", view) == "5"
