"""Health, version, metrics and who is let in, over a store that says what it is told to."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from quoracy.errors import StoreClosed
from quoracy.faces.common.asgi import AsgiApp
from quoracy.faces.etcd.methods import Streaming, awaited
from quoracy.faces.etcd.serving import http_endpoints
from quoracy.faces.etcd.serving.calls import CallCounts
from quoracy.faces.etcd.serving.http_endpoints import make_http_app
from quoracy.store.api import Store
from quoracy.store.model import Alarm, RangeResult, Revision, StoreStatus
from quoracy.wire.etcd.rpc import PutRequest, PutResponse, WatchRequest, WatchResponse
from quoracy.wire.grpc import StatusCode
from tests.unit.faces.etcd.asgi_client import Answer, ask

WELL = StoreStatus(
    engine="memory",
    revision=Revision(7),
    compact_revision=2,
    keys_count=3,
    leases_count=1,
    watchers_count=4,
    size_bytes=640,
    size_bytes_max=1000,
)


class FakeStore:
    """Only as much of a store as these pages ask for."""

    cluster = None

    def __init__(self, status: StoreStatus | Exception = WELL, read: Exception | None = None) -> None:
        self._status, self._read = status, read
        self.hangs = False

    async def status(self) -> StoreStatus:
        if isinstance(self._status, Exception):
            raise self._status
        return self._status

    async def range(self, *_: Any, serializable: bool = False, **__: Any) -> RangeResult:
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        if self._read is not None and not serializable:
            raise self._read
        return RangeResult(Revision(7), (), 0)


async def put(_: PutRequest) -> PutResponse:
    return PutResponse()


async def watch(*_: Any) -> None:
    return


METHODS = {
    method.path: method
    for method in (
        awaited("/etcdserverpb.KV/Put", PutRequest, PutResponse, put, routes=("/v3/kv/put",)),
        Streaming(
            "/etcdserverpb.Watch/Watch", WatchRequest, WatchResponse, watch, True, ("/v3/watch",)
        ),
    )
}


def app(
    store: FakeStore | None = None, *, host: str = "127.0.0.1", counts: CallCounts | None = None
) -> AsgiApp:
    return make_http_app(
        METHODS, cast(Store, store or FakeStore()), host=host, counts=counts or CallCounts()
    )


async def get(path: str, store: FakeStore | None = None, **options: Any) -> Answer:
    return await ask(app(store), path, method="GET", **options)


def with_alarm(alarm: Alarm) -> FakeStore:
    return FakeStore(msgspec.structs.replace(WELL, alarms=frozenset({alarm})))


# -- health


@pytest.mark.parametrize("path", ["/health", "/health?serializable=true", "/health?exclude=NOSPACE"])
async def test_healthy_store_is_called_that_in_etcds_words(path: str) -> None:
    answer = await get(path)
    assert (answer.status, answer.body) == (200, b'{"health":"true","reason":""}')


@pytest.mark.parametrize(
    ("alarm", "name"), [(Alarm.NO_SPACE, "NOSPACE"), (Alarm.STORAGE_FAILED, "STORAGE_FAILED")]
)
async def test_alarm_is_503_unless_excluded(alarm: Alarm, name: str) -> None:
    answer = await get("/health", with_alarm(alarm))
    assert (answer.status, answer.json) == (503, {"health": "false", "reason": f"ALARM {name}"})
    assert (await get(f"/health?exclude={name}", with_alarm(alarm))).status == 200
    assert (await get("/health?exclude=CORRUPT", with_alarm(alarm))).status == 503


async def test_store_that_cannot_say_how_it_is_is_not_well() -> None:
    answer = await get("/health", FakeStore(StoreClosed()))
    assert (answer.status, answer.json["reason"]) == (503, str(StoreClosed()))


async def test_failing_reads_are_503_unless_serializable_ones_are_enough() -> None:
    store = FakeStore(read=StoreClosed())
    answer = await get("/health", store)
    assert (answer.status, answer.json["reason"]) == (503, f"RANGE ERROR:{StoreClosed()}")
    assert (await get("/health?serializable=true", store)).status == 200


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_endpoints, "CHECK_S_MAX", 0.0)


@pytest.mark.usefixtures("impatience")
@pytest.mark.parametrize("path", ["/health", "/readyz", "/livez"])
async def test_store_that_does_not_answer_is_not_well(path: str) -> None:
    store = FakeStore()
    store.hangs = True
    answer = await get(path, store)
    assert answer.status == 503
    assert "did not answer" in answer.text


@pytest.mark.parametrize(
    "path", ["/livez", "/readyz", "/readyz/linearizable_read", "/livez/serializable_read"]
)
async def test_well_is_ok(path: str) -> None:
    answer = await get(path)
    assert (answer.status, answer.text) == (200, "ok\n")


async def test_verbose_lists_the_checks() -> None:
    assert (await get("/livez?verbose")).text == "[+]serializable_read ok\nok\n"
    assert (await get("/readyz?verbose=")).text == (
        "[+]data_corruption ok\n[+]serializable_read ok\n[+]linearizable_read ok\n[+]non_learner ok\n"
        "ok\n"
    )


async def test_failed_check_is_503_and_named() -> None:
    store = FakeStore(read=StoreClosed())
    answer = await get("/readyz", store)
    assert answer.status == 503
    assert f"[-]linearizable_read failed: {StoreClosed()}\n" in answer.text
    assert "[+]serializable_read ok\n" in answer.text
    assert (await get("/readyz/linearizable_read", store)).status == 503
    assert (await get("/readyz/serializable_read", store)).status == 200
    assert (await get("/readyz?exclude=linearizable_read&exclude=unheard_of", store)).status == 200
    assert (await get("/livez", store)).status == 200


async def test_store_that_cannot_write_is_not_ready_but_alive() -> None:
    store = with_alarm(Alarm.STORAGE_FAILED)
    assert (await get("/readyz", store)).text.startswith("[-]data_corruption failed: alarm activated")
    assert (await get("/livez", store)).status == 200
    assert (await get("/readyz", with_alarm(Alarm.NO_SPACE))).status == 200


# -- other pages


async def test_version_is_an_etcds() -> None:
    answer = await get("/version")
    assert answer.status == 200
    assert answer.json["etcdserver"].startswith("3.5.")
    assert answer.json["etcdcluster"] == "3.5.0"


@pytest.mark.parametrize("path", ["/", "/nonsense", "/health/", "/v3", "/readyz/nonsense", "/<script>"])
async def test_unknown_path_is_404_and_never_echoed(path: str) -> None:
    answer = await get(path)
    assert (answer.status, answer.text) == (404, "404 page not found\n")


@pytest.mark.parametrize(
    "path", ["/health", "/version", "/metrics", "/readyz", "/livez/serializable_read"]
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD"])
async def test_pages_are_only_read(path: str, method: str) -> None:
    answer = await ask(app(), path, method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET")


async def test_gateway_is_part_of_it() -> None:
    assert (await ask(app(), "/v3/kv/put", b"{}")).json == {}
    assert (await ask(app(), "/v3/nonsense", b"{}")).text == "Not Found\n"


async def test_preflight_is_granted_nothing() -> None:
    answer = await ask(app(), "/v3/kv/put", method="OPTIONS")
    assert answer.status == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


# -- metrics


async def scrape(application: AsgiApp) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = await ask(application, "/metrics", method="GET")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def called(service: str, method: str, kind: str) -> tuple[tuple[str, str], ...]:
    return (("grpc_method", method), ("grpc_service", service), ("grpc_type", kind))


async def test_metrics_tell_of_the_store() -> None:
    samples = await scrape(app(with_alarm(Alarm.NO_SPACE)))
    plain = {name: value for (name, labels), value in samples.items() if not labels}
    assert plain["etcd_server_has_leader"] == 1
    assert plain["etcd_mvcc_db_total_size_in_bytes"] == 640
    assert plain["etcd_debugging_mvcc_keys_total"] == 3
    assert plain["etcd_debugging_mvcc_watcher_total"] == 4
    assert plain["quoracy_store_revision"] == 7
    assert plain["quoracy_store_compact_revision"] == 2
    assert plain["quoracy_store_leases"] == 1
    assert plain["process_resident_memory_bytes"] > 0
    assert samples[("quoracy_store_alarm", (("alarm", "no_space"),))] == 1
    assert samples[("quoracy_store_alarm", (("alarm", "storage_failed"),))] == 0
    assert samples[("etcd_cluster_version", (("cluster_version", "3.5"),))] == 1


async def test_store_that_cannot_say_how_it_is_has_no_leader() -> None:
    samples = await scrape(app(FakeStore(StoreClosed())))
    assert samples[("etcd_server_has_leader", ())] == 0
    assert ("quoracy_store_revision", ()) not in samples


async def test_metrics_count_calls_of_methods_that_exist() -> None:
    counts = CallCounts()
    application = app(counts=counts)
    await ask(application, "/v3/kv/put", b"{}")
    await ask(application, "/v3/kv/put", b"{")
    counts.handled("/made.Up/Name", StatusCode.UNIMPLEMENTED)
    samples = await scrape(application)
    put = called("etcdserverpb.KV", "Put", "unary")
    bad, ok = (("grpc_code", "InvalidArgument"), *put), (("grpc_code", "OK"), *put)
    assert samples[("grpc_server_started_total", put)] == 2
    assert samples[("grpc_server_handled_total", ok)] == 1
    assert samples[("grpc_server_handled_total", bad)] == 1
    watch = (
        ("grpc_method", "Watch"),
        ("grpc_service", "etcdserverpb.Watch"),
        ("grpc_type", "bidi_stream"),
    )
    assert samples[("grpc_server_started_total", watch)] == 0
    assert not [labels for _, labels in samples if ("grpc_method", "Name") in labels]


async def test_two_servers_in_one_process_count_for_themselves() -> None:
    one, other = app(), app()
    await ask(one, "/v3/kv/put", b"{}")
    put = called("etcdserverpb.KV", "Put", "unary")
    assert (await scrape(one))[("grpc_server_started_total", put)] == 1
    assert (await scrape(other))[("grpc_server_started_total", put)] == 0


# -- who is let in


@pytest.mark.parametrize("path", ["/v3/kv/put", "/health", "/metrics"])
@pytest.mark.parametrize("host", ["evil.example", "evil.example:2379", ""])
async def test_loopback_server_refuses_names_a_web_page_could_have(path: str, host: str) -> None:
    assert (await ask(app(), path, b"{}", headers={"host": host})).status == 421


async def test_server_on_a_network_answers_every_name() -> None:
    headers = {"host": "etcd.example:2379"}
    assert (await ask(app(host="0.0.0.0"), "/v3/kv/put", b"{}", headers=headers)).status == 200


@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "",
        "localhost:2379",
        "http://localhost",
        "http://localhost:8080",
        "http://localhost:2379.evil.example",
        "http://evil.example/://localhost:2379",
    ],
)
async def test_page_of_another_origin_is_refused(bound: str, origin: str) -> None:
    answer = await ask(app(host=bound), "/v3/kv/put", b"{}", headers={"origin": origin})
    assert answer.status == 403
    assert "evil" not in answer.text


@pytest.mark.parametrize("origin", ["http://localhost:2379", "https://LOCALHOST:2379"])
async def test_page_of_the_servers_own_origin_is_served(origin: str) -> None:
    assert (await ask(app(), "/v3/kv/put", b"{}", headers={"origin": origin})).status == 200
