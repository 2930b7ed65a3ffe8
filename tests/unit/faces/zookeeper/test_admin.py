"""ZooKeeper's admin commands over HTTP: names, shapes, errors, and who is kept away."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from quoracy.clock import ManualClock
from quoracy.engines.opening import open_embedded
from quoracy.faces.common.asgi import AsgiApp
from quoracy.faces.zookeeper.admin.commands import COMMANDS, make_admin_app
from quoracy.faces.zookeeper.admin.report import FULL_VERSION
from quoracy.store.api import Store
from tests.unit.faces.etcd.asgi_client import Answer, ask
from tests.unit.faces.zookeeper.server_views import SESSION, FixedView, busy_view


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[Store]:
    async with open_embedded("memory:", clock=clock) as store:
        yield store


@pytest.fixture
async def view(store: Store, clock: ManualClock) -> FixedView:
    return await busy_view(store, clock)


@pytest.fixture
def app(view: FixedView) -> AsgiApp:
    return make_admin_app(view, host="127.0.0.1")


async def get(app: AsgiApp, path: str, **headers: str) -> Answer:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return await ask(app, path, method="GET", headers=named)


@pytest.mark.parametrize("name", COMMANDS)
async def test_every_command_names_itself_and_its_error(app: AsgiApp, name: str) -> None:
    answer = await get(app, f"/commands/{name}")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json["command"] == name
    errors = {
        "leader": "server is not initialized",
        "set_trace_mask": "setTraceMask requires long traceMask argument",
    }
    assert answer.json["error"] == errors.get(name)


async def test_other_names_do_as_well(app: AsgiApp) -> None:
    for primary, (others, _) in COMMANDS.items():
        for name in others:
            assert (await get(app, f"/commands/{name}")).json["command"] == primary


async def test_unknown_command_is_an_error_in_json(app: AsgiApp) -> None:
    for name in ("nope", "RUOK", "ruok/", "<b>"):
        answer = await get(app, f"/commands/{name}")
        assert answer.status == 200
        assert answer.json == {"command": name, "error": f"Unknown command: {name}"}
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_server_that_does_not_serve_says_so(app: AsgiApp, view: FixedView) -> None:
    view.running = False
    refused = {"command": "srvr", "error": "This ZooKeeper instance is not currently serving requests"}
    assert (await get(app, "/commands/srvr")).json == refused
    assert (await get(app, "/commands/envi")).json["error"] is None


@pytest.mark.parametrize("path", ["/commands", "/commands/"])
async def test_list_of_commands(app: AsgiApp, path: str) -> None:
    lines = (await get(app, path)).text.splitlines()
    assert lines[:2] == ['<a href="/commands/configuration">configuration</a>', "<br/>"]
    assert len(lines) == 2 * len(COMMANDS)


async def test_other_paths_and_methods(app: AsgiApp) -> None:
    assert (await get(app, "/")).status == 404
    assert (await get(app, "/commandsruok")).status == 404
    refused = await ask(app, "/commands/srst", method="POST")
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
    assert (await ask(app, "/commands/ruok", method="HEAD")).status == 200


async def test_web_pages_are_kept_away(app: AsgiApp, view: FixedView) -> None:
    assert (await get(app, "/commands/srst", host="evil.example")).status == 421
    assert (await get(app, "/commands/srst", origin="http://evil.example")).status == 403
    assert (await get(app, "/commands/srst", sec_fetch_site="cross-site")).status == 403
    assert view.stats.packets_sent == 3
    assert (await get(app, "/commands/srst", sec_fetch_site="none")).status == 200
    assert view.stats.packets_sent == 0


# -- what they show


async def test_connections_are_listed_by_port(app: AsgiApp, view: FixedView) -> None:
    view.connect(9, "::1", secure=True)
    shown = (await get(app, "/commands/connections")).json
    assert shown["connections"] == [
        {
            "remote_socket_address": "127.0.0.1:51772",
            "interest_ops": 1,
            "outstanding_requests": 0,
            "packets_received": 3,
            "packets_sent": 3,
            "session_id": SESSION,
            "last_operation": "EXIS",
            "established": 1_700_000_000_000,
            "session_timeout": 10_000,
            "last_cxid": 3,
            "last_zxid": 4,
            "last_response_time": 101_001,
            "last_latency": 1,
            "min_latency": 1,
            "avg_latency": 3,
            "max_latency": 9,
        }
    ]
    (secure,) = shown["secure_connections"]
    assert secure["remote_socket_address"] == "[0:0:0:0:0:0:0:1]:9"
    assert secure["last_operation"] == "NA"


async def test_stats_are_those_of_the_server_with_brief_connections(app: AsgiApp) -> None:
    shown = (await get(app, "/commands/stats")).json
    assert (shown["version"], shown["node_count"]) == (FULL_VERSION, 5)
    assert shown["server_stats"]["last_processed_zxid"] == 4
    assert shown["server_stats"]["avg_latency"] == 3.8333
    assert shown["client_response"] == {
        "last_buffer_size": 83,
        "min_buffer_size": 81,
        "max_buffer_size": 83,
    }
    assert [list(each) for each in shown["connections"]] == [
        [
            "remote_socket_address",
            "interest_ops",
            "outstanding_requests",
            "packets_received",
            "packets_sent",
        ]
    ]


async def test_dump_and_watches(app: AsgiApp) -> None:
    assert (await get(app, "/commands/dump")).json == {
        "expiry_time_to_session_ids": {"112000": [SESSION]},
        "session_id_to_ephemeral_paths": {str(SESSION): ["/a", "/b/c"]},
        "command": "dump",
        "error": None,
    }
    summary = (await get(app, "/commands/wchs")).json
    assert [summary[key] for key in ("num_connections", "num_paths", "num_total_watches")] == [1, 2, 2]
    by_session = (await get(app, "/commands/watches")).json["session_id_to_watched_paths"]
    assert by_session == {str(SESSION): ["/a", "/b"]}
    by_path = (await get(app, "/commands/watches_by_path")).json["path_to_session_ids"]
    assert by_path == {"/a": [SESSION], "/b": [SESSION]}


async def test_monitor_is_mntr(app: AsgiApp) -> None:
    shown = (await get(app, "/commands/monitor")).json
    assert (shown["znode_count"], shown["watch_count"], shown["avg_latency"]) == (5, 3, 3.8333)


async def test_trace_mask_must_be_a_number(app: AsgiApp) -> None:
    for wrong in ("x", "", "-+5", str(2**63), "1_0"):
        answer = await get(app, f"/commands/stmk?traceMask={wrong.replace('+', '%2B')}")
        assert answer.json["error"] == f"setTraceMask requires long traceMask argument, got {wrong}"
    assert (await get(app, "/commands/stmk?traceMask=-7")).json["tracemask"] == -7
    assert (await get(app, "/commands/gtmk")).json["tracemask"] == -7


async def test_super_digest_is_in_no_answer(app: AsgiApp, view: FixedView) -> None:
    secret = "super:qwertyuiopasdfghjklzxcvbnm1="
    view.settings = msgspec.structs.replace(view.settings, super_digest=secret)
    for name in COMMANDS:
        assert secret not in (await get(app, f"/commands/{name}")).text
