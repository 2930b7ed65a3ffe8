"""curl and h2load: the JSON gateway and the pages, over HTTP/1.1, HTTP/2 and TLS."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.interop.conftest import program
from tests.interop.programs import Done, QuoracyServer, Running, run, running_quoracy
from tests.support.certificates import Authority

HTTP1, HTTP2 = "--http1.1", "--http2-prior-knowledge"


@dataclass(frozen=True, slots=True)
class Curl:
    """curl with the flags that reach one server."""

    base: str
    flags: tuple[str, ...]

    def __call__(self, path: str, *flags: str) -> Done:
        return run(*self._command(path, *flags))

    def post(self, path: str, **body: object) -> Any:
        done = self(path, "--fail-with-body", "--data", json.dumps(body))
        assert done.code == 0, done
        return json.loads(done.out)

    def start(self, path: str, *flags: str) -> Running:
        return Running(self._command(path, "-N", *flags))

    @property
    def is_http2(self) -> bool:
        return any(flag.startswith("--http2") for flag in self.flags)

    def may_give_up(self, done: Done) -> bool:
        """Answered and then reset before it has sent everything, curl 7.88 does not show the answer."""
        return self.is_http2 and done.code == 92

    def _command(self, path: str, *flags: str) -> list[str]:
        return [
            program("curl", "curl"),
            "-sS",
            "--max-time",
            "30",
            *self.flags,
            *flags,
            self.base + path,
        ]


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def tls_server(ca: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuoracyServer]:
    pair = ca.server()
    flags = ["--tls-cert", str(pair.cert), "--tls-key", str(pair.key), "--tls-client-ca", str(ca.cert)]
    with running_quoracy(tmp_path_factory.mktemp("tls"), *flags) as running:
        yield running


@pytest.fixture(params=["http/1.1", "h2c", "tls http/1.1", "tls h2"])
def curl(
    request: pytest.FixtureRequest, server: QuoracyServer, tls_server: QuoracyServer, ca: Authority
) -> Curl:
    version = HTTP1 if request.param.endswith("1.1") else HTTP2
    if request.param in ("http/1.1", "h2c"):
        return Curl(f"http://{server.address}", (version,))
    client = ca.client()
    version = HTTP1 if version == HTTP1 else "--http2"
    flags = (version, "--cacert", str(ca.cert), "--cert", str(client.cert), "--key", str(client.key))
    return Curl(f"https://{tls_server.address}", flags)


def test_gateway_puts_and_reads(curl: Curl) -> None:
    put = curl.post("/v3/kv/put", key=b64(b"curl"), value=b64(b"1"))
    answer = curl.post("/v3/kv/range", key=b64(b"curl"))
    assert answer["kvs"][0]["value"] == b64(b"1")
    assert answer["kvs"][0]["mod_revision"] == put["header"]["revision"]


def test_version_of_http_is_the_one_asked_for(curl: Curl) -> None:
    expected = "2" if curl.is_http2 else "1.1"
    assert (
        curl("/version", "-o", "/dev/null", "-w", "%{http_version} %{http_code}").out
        == f"{expected} 200"
    )


def test_pages_for_operators(curl: Curl) -> None:
    assert json.loads(curl("/health").out)["health"] == "true"
    assert curl("/livez").out == curl("/readyz").out == "ok\n"
    assert json.loads(curl("/version").out)["etcdserver"].startswith("3.")
    assert re.search(r"^grpc_server_handled_total", curl("/metrics").out, re.MULTILINE)
    assert curl("/nothing", "-o", "/dev/null", "-w", "%{http_code}").out == "404"


def test_error_has_its_code_and_status(curl: Curl) -> None:
    done = curl("/v3/kv/range", "--data", '{"key": ""}', "-w", "\n%{http_code}")
    body, _, status = done.out.rpartition("\n")
    assert (status, json.loads(body)["code"]) == ("400", 3)


def test_watch_streams_lines(curl: Curl) -> None:
    body = json.dumps({"create_request": {"key": b64(b"curl/watched")}})
    with curl.start("/v3/watch", "--data", body) as watch:
        assert json.loads(watch.line())["result"]["created"] is True
        for number in range(3):
            curl.post("/v3/kv/put", key=b64(b"curl/watched"), value=b64(b"%d" % number))
            (event,) = json.loads(watch.line())["result"]["events"]
            assert event["kv"]["value"] == b64(b"%d" % number)


def test_large_body_goes_in_and_comes_out(curl: Curl, tmp_path: Path) -> None:
    value = b64(bytes(1_400_000))
    body = tmp_path / "body"
    body.write_text(json.dumps({"key": b64(b"curl/large"), "value": value}))
    done = curl("/v3/kv/put", "--fail-with-body", "--data-binary", f"@{body}")
    assert done.code == 0, done
    assert curl.post("/v3/kv/range", key=b64(b"curl/large"))["kvs"][0]["value"] == value


def test_too_large_body_is_refused(curl: Curl, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_text(json.dumps({"key": b64(b"curl/too-large"), "value": b64(bytes(8_000_000))}))
    done = curl("/v3/kv/put", "--data-binary", f"@{body}", "-o", "/dev/null", "-w", "%{http_code}")
    assert done.out == "429" or curl.may_give_up(done), done
    assert "kvs" not in curl.post("/v3/kv/range", key=b64(b"curl/too-large"))


def test_web_pages_of_others_are_refused(curl: Curl) -> None:
    code = ("-o", "/dev/null", "-w", "%{http_code}")
    assert curl("/health", "-H", "Host: evil.example", *code).out == "421"
    done = curl("/v3/kv/range", "-H", "Origin: http://evil.example", "--data", "{}", *code)
    assert done.out == "403" or curl.may_give_up(done)


def test_upgrade_to_http2_is_not_taken(server: QuoracyServer) -> None:
    """curl's --http2 asks for h2c by an Upgrade header, which RFC 9113 dropped: it stays at 1.1."""
    curl = Curl(f"http://{server.address}", ("--http2",))
    assert curl("/version", "-o", "/dev/null", "-w", "%{http_version} %{http_code}").out == "1.1 200"


@pytest.mark.parametrize("flags", [["--h1"], ["-m", "20"]], ids=["http/1.1", "http/2"])
def test_h2load_has_no_failure(server: QuoracyServer, flags: list[str], tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_text(json.dumps({"key": b64(b"h2load"), "value": b64(b"x")}))
    done = run(
        program("h2load", "nghttp2-client"), "-n", "2000", "-c", "10", *flags, "-d", body,
        f"http://{server.address}/v3/kv/put",
    )  # fmt: skip
    assert done.code == 0, done
    assert "2000 succeeded, 0 failed, 0 errored, 0 timeout" in done.out
    assert "2000 2xx, 0 3xx, 0 4xx, 0 5xx" in done.out


def test_h2load_calls_grpc(server: QuoracyServer, tmp_path: Path) -> None:
    body = tmp_path / "body"
    payload = b"\x0a\x06h2load\x12\x01y"  # a PutRequest
    body.write_bytes(b"\0" + len(payload).to_bytes(4, "big") + payload)
    done = run(
        program("h2load", "nghttp2-client"), "-n", "3000", "-c", "5", "-m", "50", "-d", body,
        "-H", "content-type: application/grpc", "-H", "te: trailers",
        f"http://{server.address}/etcdserverpb.KV/Put",
    )  # fmt: skip
    assert "3000 succeeded, 0 failed, 0 errored, 0 timeout" in done.out, done
    read = Curl(f"http://{server.address}", ()).post("/v3/kv/range", key=b64(b"h2load"))
    assert read["kvs"][0]["value"] == b64(b"y")
