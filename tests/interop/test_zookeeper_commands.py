"""What a server says about itself, in ZooKeeper's words: a real one and Quoracy asked the same.

Values differ, of course.  What must not differ is what a script or a monitor looks for: the lines and
their form, the names in them, the keys of JSON, and how a refusal looks.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from quoracy.faces.zookeeper.admin.commands import COMMANDS
from quoracy.faces.zookeeper.admin.four_letter import WORDS
from tests.interop.programs import running_quoracy
from tests.support.ports import free_port
from tests.support.zookeeper_server import running_zookeeper

ANSWER_S_MAX = 20.0

# What tools that watch over ZooKeeper (Telegraf, Datadog, the Prometheus exporters) ask `mntr` for.
MONITORED = {
    "zk_version", "zk_server_state", "zk_avg_latency", "zk_max_latency", "zk_min_latency",
    "zk_packets_received", "zk_packets_sent", "zk_num_alive_connections", "zk_outstanding_requests",
    "zk_znode_count", "zk_watch_count", "zk_ephemerals_count", "zk_approximate_data_size",
    "zk_open_file_descriptor_count", "zk_max_file_descriptor_count", "zk_uptime", "zk_global_sessions",
    "zk_connection_rejected", "zk_auth_failed_count",
    "zk_bytes_received_count", "zk_avg_readlatency", "zk_p99_readlatency", "zk_avg_updatelatency",
    "zk_p99_updatelatency",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """One of the two servers, with a client that is connected to it."""

    port: int
    admin_port: int

    def say(self, word: bytes) -> bytes:
        """The answer, up to the end of the connection."""
        with socket.create_connection(("127.0.0.1", self.port), ANSWER_S_MAX) as connection:
            connection.sendall(word)
            answer = bytearray()
            try:
                while part := connection.recv(65536):
                    answer += part
            except ConnectionResetError:
                pass  # it hung up with something of ours unread
        return bytes(answer)

    def get(self, path: str, method: str = "GET") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=ANSWER_S_MAX)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def command(self, name: str) -> Any:
        status, body = self.get(f"/commands/{name}")
        assert status == 200
        return json.loads(body)


@contextmanager
def running_both(directory: Path, whitelist: str) -> Iterator[tuple[Asked, Asked]]:
    """A real ZooKeeper and a Quoracy that were told the same."""
    with ExitStack() as running:
        admin_port = free_port()
        real = running.enter_context(
            running_zookeeper(
                directory / "real",
                settings={
                    "4lw.commands.whitelist": whitelist,
                    "admin.enableServer": "true",
                    "admin.serverAddress": "127.0.0.1",
                    "admin.serverPort": admin_port,
                },
            )
        )
        (directory / "quoracy").mkdir()
        ours_admin = free_port()
        ours = running.enter_context(
            running_quoracy(
                directory / "quoracy",
                *("--listen-zookeeper", "127.0.0.1:0"),
                *("--listen-zookeeper-admin", f"127.0.0.1:{ours_admin}"),
                *("--zookeeper-4lw-commands-whitelist", whitelist),
                *("--zookeeper-max-client-cnxns", "0"),
            )
        )
        yield Asked(real.port, admin_port), Asked(ours.zookeeper_port, ours_admin)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Asked, Asked]]:
    """Every word allowed; to each a client is connected that has ephemerals and watches."""
    with ExitStack() as running:
        pair = running.enter_context(running_both(tmp_path_factory.mktemp("commands"), "*"))
        for each in pair:
            client = KazooClient(f"127.0.0.1:{each.port}")
            client.start(timeout=ANSWER_S_MAX)
            running.callback(client.close)
            running.callback(client.stop)
            client.create("/a", b"x", ephemeral=True)
            client.create("/b", b"y")
            client.create("/b/c", b"z", ephemeral=True)
            client.get("/a", watch=print)
            client.get_children("/b", watch=print)
            client.exists("/b", watch=print)
        yield pair


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Asked, Asked]]:
    """Only `ruok` allowed, besides what always is."""
    with running_both(tmp_path_factory.mktemp("strict"), "ruok") as pair:
        yield pair


# -- four-letter words


def form(answer: bytes) -> list[str]:
    """The different lines of an answer, in order, with every value taken out."""
    text = answer.decode()
    text = re.sub(r"(?m)^(Zookeeper version: ).*", r"\1V", text)
    text = re.sub(r"(?m)^(dataDir|dataLogDir)=.*", r"\1=D", text)
    text = re.sub(r"expire at \w{3} \w{3} \d\d \d\d:\d\d:\d\d UTC \d{4}:", "expire at T:", text)
    text = re.sub(r"0x[0-9a-f]+", "0xH", text)
    text = re.sub(r"\d+(\.\d+){1,3}|-?\d+", "N", text)
    return sorted(set(text.split("\n")))


@pytest.mark.parametrize(
    "word",
    ["ruok", "srvr", "stat", "conf", "cons", "dirs", "dump", "wchs", "wchc", "wchp", "isro", "gtmk",
     "crst", "srst", "hash"],
)  # fmt: skip
def test_answer_has_the_same_form(both: tuple[Asked, Asked], word: str) -> None:
    real, ours = both
    assert form(ours.say(word.encode())) == form(real.say(word.encode()))


def test_answer_to_a_word_that_sets_something_is_the_same(both: tuple[Asked, Asked]) -> None:
    real, ours = both
    for said in (
        b"stmk" + (5).to_bytes(8, "big"),
        b"gtmk",
        b"stmk" + (306).to_bytes(8, "big"),
        b"stmk",
    ):
        assert ours.say(said) == real.say(said)


def test_watches_are_counted_alike(both: tuple[Asked, Asked]) -> None:
    real, ours = both
    assert ours.say(b"wchs") == real.say(b"wchs")
    counts = [re.search(rb"zk_watch_count\t(\d+)", each.say(b"mntr")) for each in both]
    assert counts[0] is not None
    assert counts[1] is not None
    assert counts[0][1] == counts[1][1]


def test_mntr_has_what_monitors_ask_for_and_no_name_of_its_own(both: tuple[Asked, Asked]) -> None:
    real, ours = (_figures(each.say(b"mntr")) for each in both)
    assert set(ours) - set(real) == set()
    assert MONITORED - set(ours) == set()
    assert {name: "." in text for name, text in ours.items() if "version" not in name} == {
        name: "." in real[name] for name in ours if "version" not in name
    }


def _figures(answer: bytes) -> dict[str, str]:
    return dict(line.split("\t") for line in answer.decode().splitlines())


def test_envi_has_no_name_of_its_own_but_the_language(both: tuple[Asked, Asked]) -> None:
    names = [
        {line.partition("=")[0] for line in each.say(b"envi").decode().splitlines()} for each in both
    ]
    assert names[1] - names[0] == {"python.version"}
    assert names[1] >= {"Environment:", "zookeeper.version", "host.name", "os.name", "user.dir"}


def test_clients_find_the_version_in_it(both: tuple[Asked, Asked]) -> None:
    _, ours = both
    client = KazooClient(f"127.0.0.1:{ours.port}")
    client.start(timeout=ANSWER_S_MAX)
    try:
        assert client.server_version()[:2] == (3, 8)
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("word", sorted(WORDS - {b"srvr", b"ruok"}))
def test_word_that_is_not_listed_is_refused_alike(strict: tuple[Asked, Asked], word: bytes) -> None:
    real, ours = strict
    refusal = real.say(word)
    assert refusal.endswith(b" is not executed because it is not in the whitelist.\n")
    assert ours.say(word) == refusal


@pytest.mark.parametrize("word", [b"srvr", b"ruok"])
def test_word_that_is_listed_is_answered(strict: tuple[Asked, Asked], word: bytes) -> None:
    real, ours = strict
    assert form(ours.say(word)) == form(real.say(word))


@pytest.mark.parametrize("sent", [b"nope", b"RUOK", b"ruok\n", b"ruokextra"])
def test_what_is_almost_a_word_is_treated_alike(strict: tuple[Asked, Asked], sent: bytes) -> None:
    real, ours = strict
    assert ours.say(sent) == real.say(sent)


def test_word_may_come_byte_by_byte(strict: tuple[Asked, Asked]) -> None:
    for each in strict:
        with socket.create_connection(("127.0.0.1", each.port), ANSWER_S_MAX) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in b"ruok":
                connection.sendall(bytes((byte,)))
            assert connection.recv(100) == b"imok"
            assert connection.recv(100) == b""


# -- admin commands


def shape(value: Any) -> Any:
    """The keys of JSON, at every level; ids and paths that are keys are taken out."""
    if isinstance(value, dict):
        return {re.sub(r"^(\d+|/.*)$", "K", key): shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


# Those whose keys are names of things that only a Java server has, or not all of which are here.
OPEN_ENDED = {"monitor", "environment", "system_properties"}


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - OPEN_ENDED))
def test_command_has_the_same_keys(both: tuple[Asked, Asked], name: str) -> None:
    real, ours = both
    assert shape(ours.command(name)) == shape(real.command(name))


@pytest.mark.parametrize("name", sorted(OPEN_ENDED))
def test_command_has_no_key_of_its_own_but_the_language(both: tuple[Asked, Asked], name: str) -> None:
    real, ours = (shape(each.command(name)) for each in both)
    assert set(ours) - set(real) <= {"python.version"}
    assert {key: kind for key, kind in ours.items() if key != "python.version"}.items() <= real.items()


def test_every_name_of_every_command_is_known_to_both(both: tuple[Asked, Asked]) -> None:
    for primary, (others, _) in COMMANDS.items():
        for name in others:
            answers = [each.command(name) for each in both]
            assert [answer["command"] for answer in answers] == [primary, primary]


@pytest.mark.parametrize("path", ["/commands", "/commands/", "/commands/nope", "/commands/ruok/"])
def test_list_and_unknown_commands_are_answered_alike(both: tuple[Asked, Asked], path: str) -> None:
    (real_status, real), (ours_status, ours) = (each.get(path) for each in both)
    assert ours_status == real_status == 200
    if real.startswith(b"{"):
        assert json.loads(ours) == json.loads(real)
    else:
        assert ours == real


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/"), ("GET", "/nope"), ("HEAD", "/commands/ruok"), ("POST", "/commands/ruok"),
     ("PUT", "/commands/ruok"), ("DELETE", "/commands/ruok")],
)  # fmt: skip
def test_other_requests_get_the_same_status(both: tuple[Asked, Asked], method: str, path: str) -> None:
    real, ours = both
    assert ours.get(path, method)[0] == real.get(path, method)[0]


@pytest.mark.parametrize("query", ["", "?traceMask=10", "?traceMask=x", "?traceMask="])
def test_trace_mask_is_set_and_refused_alike(both: tuple[Asked, Asked], query: str) -> None:
    real, ours = both
    assert ours.command(f"set_trace_mask{query}") == real.command(f"set_trace_mask{query}")
    assert ours.command("get_trace_mask") == real.command("get_trace_mask")
