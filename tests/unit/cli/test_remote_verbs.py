"""The verbs against servers: ours and a real etcd answer alike."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.support.certificates import Authority
from tests.unit.cli.asking import Ask
from tests.unit.cli.conftest import QUORACY, ServerProcess
from tests.unit.cli.servers import KINDS, running


class Running:
    """A `quoracy` that goes on until it is told to end; iterate for its lines."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen([*QUORACY, *arguments], stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def __next__(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "it ended"
        return line

    def end(self, number: signal.Signals) -> int:
        self._process.send_signal(number)
        return self._process.wait(60)


@pytest.fixture(scope="module", params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(request.param, tmp_path_factory.mktemp("server")) as url:
        yield url


@pytest.fixture
def empty(url: str, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUORACY_ENDPOINT", url)
    ask("del", "", "--prefix", "--yes")


@pytest.mark.usefixtures("empty")
class TestOnEveryServer:
    def test_put_get_delete(self, ask: Ask) -> None:
        assert ask("put", "a/b", "-", stdin=b"\xff\n").code == 0
        assert ask("get", "a/b", "-o", "raw").out == b"\xff\n"
        assert ask("get", "nothing").code == 3
        assert ask("del", "a/b").out == b"1\n"

    def test_compare_and_set(self, ask: Ask) -> None:
        revision = ask("put", "k", "1", "-o", "json").json["revision"]
        assert ask("put", "k", "2", "--if-mod", str(revision)).code == 0
        assert ask("put", "k", "3", "--if-mod", str(revision)).code == 3
        assert ask("get", "k").out == b"2\n"

    def test_history_and_compaction(self, ask: Ask) -> None:
        for value in ("one", "two"):
            ask("put", "h", value)
        ask("del", "h")
        assert [row[3] for row in ask("history", "h").rows][:3] == ["(deleted)", "two", "one"]
        ask("put", "h", "three")
        assert ask("compact", "--keep", "0").code == 0
        assert [row[3] for row in ask("history", "h").rows] == ["three"]
        lost = ask("get", "h", "--at", "1")
        assert lost.code == 1
        assert "compacted" in lost.err

    def test_ls_reads_more_keys_than_fit_into_a_page(
        self, ask: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("quoracy.cli.read._PAGE_KEYS", 3)
        for number in range(8):
            ask("put", f"p/{number}", "v")
        assert len(ask("ls", "p/").lines) == 8

    def test_leases(self, ask: Ask) -> None:
        lease = ask("lease", "grant", "60").lines[0]
        ask("put", "l", "v", "--lease", lease)
        assert ask("lease", "ttl", lease, "--keys").lines[1:] == ["l"]
        assert ask("lease", "keep-alive", lease, "--once").lines == [f"{lease} renewed for 60 s"]
        assert lease in [row[0] for row in ask("lease", "list").rows]
        assert ask("lease", "revoke", lease).code == 0
        assert ask("get", "l").code == 3
        assert ask("lease", "revoke", lease).code == 3

    def test_txn(self, ask: Ask) -> None:
        script = b"if\nmissing(t)\nthen\nput t 1\nelse\nget t\n"
        assert [ask("txn", stdin=script).code for _ in range(2)] == [0, 3]

    def test_status_has_one_row_for_each_endpoint(self, ask: Ask, url: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            free_port = taken.getsockname()[1]
        said = ask("status", "-e", f"{url},127.0.0.1:{free_port}", "-o", "json")
        up, down = said.json["endpoints"]
        assert said.code == 1
        assert (up["reachable"], up["role"], up["alarms"]) == (True, "leader", [])
        assert (down["reachable"], down["endpoint"]) == (False, f"127.0.0.1:{free_port}")
        assert ask("status").code == 0

    def test_snapshot(self, ask: Ask, tmp_path: Path, url: str) -> None:
        ask("put", "s", "v")
        size = int(ask("snapshot", "save", tmp_path / "copy").out)
        assert (tmp_path / "copy").stat().st_size == size
        again = ask("snapshot", "save", tmp_path / "copy")
        assert (again.code, again.err.count("\n")) == (1, 1)
        if url.startswith("quoracy:"):
            assert ask("restore", tmp_path / "copy", tmp_path / "restored.db").code == 0
            assert ask("get", "s", "-e", f"sqlite:{tmp_path}/restored.db").out == b"v\n"

    def test_bench(self, ask: Ask) -> None:
        said = ask("bench", "--seconds", "0.3", "--clients", "4", "--connections", "2", "-o", "json")
        assert (said.code, said.json["errors"]) == (0, {})
        assert ask("get", "quoracy-bench/", "--prefix").lines == []

    def test_election_is_seen_by_others(self, ask: Ask) -> None:
        assert ask("elect", "e", "--leader").code == 3
        with Running("elect", "e", "ada") as ada, Running("elect", "e", "--observe") as seen:
            key, token = next(ada).split()
            leader = ask("elect", "e", "--leader", "-o", "json").json["leader"]
            assert (leader["key"], str(leader["token"]), leader["value"]) == (key, token, "ada")
            assert next(seen).split() == ["ada", key, token]
            with Running("elect", "e", "grace") as grace:
                assert ada.end(signal.SIGTERM) == 128 + signal.SIGTERM
                key, token = next(grace).split()
                # She stays until she was seen: who comes and goes between two looks may be missed.
                assert next(seen).split() == ["grace", key, token]
                assert grace.end(signal.SIGINT) == 130
            assert seen.end(signal.SIGINT) == 130
        assert ask("elect", "e", "--leader").code == 3

    def test_watch_follows_until_ctrl_c(self, ask: Ask) -> None:
        revision = ask("put", "w", "0", "-o", "json").json["revision"]
        with subprocess.Popen(
            [*QUORACY, "watch", "w", "--after", str(revision), "-o", "json", "--prev"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as watch:
            assert watch.stdout is not None
            for number in range(1, 4):
                ask("put", "w", str(number))
                event = json.loads(watch.stdout.readline())
                assert event["kv"]["value"] == str(number)
                assert event["prev_kv"]["value"] == str(number - 1)
            watch.send_signal(signal.SIGINT)
            _, err = watch.communicate(timeout=60)
            assert (watch.returncode, err) == (130, b"")

    def test_etcdctl_sees_the_same(self, ask: Ask, url: str) -> None:
        etcdctl = shutil.which("etcdctl")
        if etcdctl is None:
            pytest.skip("there is no etcdctl here")
        endpoint = url.partition("://")[2]

        def etcd(*arguments: str) -> str:
            environment = os.environ | {"ETCDCTL_API": "3", "ETCDCTL_ENDPOINTS": endpoint}
            done = subprocess.run(
                [etcdctl, *arguments],
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        ask("put", "theirs", "ours")
        assert etcd("get", "theirs") == "theirs\nours\n"
        lease = etcd("lease", "grant", "60").split()[1]
        assert lease in [row[0] for row in ask("lease", "list").rows]
        assert ask("lease", "ttl", lease).code == 0
        assert etcd("lease", "revoke", ask("lease", "grant", "60").lines[0]).endswith("revoked\n")


def test_unreachable_server_is_one_line(ask: Ask) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free_port = taken.getsockname()[1]
    for verb in (["get", "k"], ["put", "k", "v"], ["watch", "k"], ["lock", "k", "--", "true"], ["ls"]):
        said = ask(*verb[:1], "-e", f"quoracy://127.0.0.1:{free_port}", *verb[1:])
        assert (said.code, said.out, said.err.count("\n")) == (1, b"", 1)
        assert f"127.0.0.1:{free_port}" in said.err


def test_silent_server_is_a_timeout(ask: Ask) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"quoracy://127.0.0.1:{silent.getsockname()[1]}"
        said = ask("get", "k", "-e", url, "--timeout", "0.3")
    assert (said.code, said.out, said.err.count("\n")) == (124, b"", 1)


def test_watch_survives_its_server(
    ask: Ask, serve: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    data = f"sqlite:{tmp_path}/server.db"
    first = serve("--engine", data)
    host, port = first.etcd
    url = f"quoracy://{host}:{port}"
    ask("put", "w", "0", "-e", url)
    with subprocess.Popen(
        [*QUORACY, "watch", "w", "--after", "1", "-e", url], stdout=subprocess.PIPE
    ) as watch:
        assert watch.stdout is not None
        assert watch.stdout.readline() == b"put\tw\t0\t2\n"
        first.end(signal.SIGKILL)
        serve("--engine", data, "--listen-etcd", f"{host}:{port}")
        ask("put", "w", "1", "-e", url)
        assert watch.stdout.readline() == b"put\tw\t1\t3\n"
        watch.send_signal(signal.SIGINT)
        assert watch.wait(60) == 130


def test_tls_and_a_client_certificate(
    ask: Ask, serve: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    ca = Authority(tmp_path)
    pair, client = ca.server(), ca.client()
    server = serve(
        "--engine", "memory:", "--tls-cert", str(pair.cert), "--tls-key", str(pair.key),
        "--tls-client-ca", str(ca.cert),
    )  # fmt: skip
    url = "quoracy://{}:{}".format(*server.etcd)
    shown = ["--cacert", ca.cert, "--cert", client.cert, "--key", client.key]
    assert ask("put", "k", "v", "-e", url, *shown).code == 0
    assert ask("get", "k", "-e", f"{url}?ca={ca.cert}&cert={client.cert}&key={client.key}").code == 0
    for wrong in ([], ["--cacert", ca.cert], ["--cacert", client.cert, *shown[2:]]):
        refused = ask("get", "k", "-e", url, *wrong)
        assert (refused.code, refused.out, refused.err.count("\n")) == (1, b"", 1)
    half = ask("get", "k", "-e", url, "--cert", client.cert)
    assert (half.code, half.err.count("\n")) == (2, 1)


def test_user_and_password(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    etcdctl = shutil.which("etcdctl")
    if etcdctl is None:
        pytest.skip("there is no etcdctl here")
    with running("etcd", tmp_path) as url:
        environment = os.environ | {"ETCDCTL_API": "3", "ETCDCTL_ENDPOINTS": url.partition("://")[2]}
        for words in ("user add root:se:cret", "user grant-role root root", "auth enable"):
            subprocess.run(
                [etcdctl, *words.split()], env=environment, capture_output=True, check=True, timeout=60
            )
        refused = ask("put", "k", "v", "-e", url)
        assert (refused.code, refused.err.count("\n")) == (1, 1)
        assert ask("put", "k", "v", "-e", url, "--user", "root:wrong").code == 1
        assert ask("put", "k", "v", "-e", url, "--user", "root:se:cret").code == 0
        monkeypatch.setenv("QUORACY_USER", "root:se:cret")
        assert ask("get", "k", "-e", url).out == b"v\n"
        assert ask("lock", "l", "-e", url, "--", "true").code == 0
