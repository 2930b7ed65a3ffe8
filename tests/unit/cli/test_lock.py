"""`quoracy lock` with real processes: one at a time, with growing tokens, never without the lock."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.unit.cli.asking import Ask
from tests.unit.cli.conftest import QUORACY, ServerProcess
from tests.unit.cli.servers import KINDS, running

CONTENDERS = 5
ROUNDS = 3


@pytest.fixture(scope="module", params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(request.param, tmp_path_factory.mktemp("server")) as url:
        yield url


@pytest.fixture(autouse=True)
def endpoint(url: str, monkeypatch: pytest.MonkeyPatch, ask: Ask) -> None:
    monkeypatch.setenv("QUORACY_ENDPOINT", url)


class Holder:
    """`quoracy lock NAME -- sh -c SCRIPT`, whose script says `ready` when it runs."""

    def __init__(self, name: str, script: str, *options: str) -> None:
        self.process = subprocess.Popen(
            [*QUORACY, "lock", name, *options, "--", "sh", "-c", script],
            stdin=subprocess.PIPE,  # so that `read` waits until the holder is ended
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def next_line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return line.rstrip("\n")

    def end(self) -> tuple[int, str, str]:
        """The exit code, and the rest of what was written."""
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def hold() -> Iterator[Callable[..., Holder]]:
    started: list[Holder] = []

    def start(name: str, script: str, *options: str) -> Holder:
        started.append(Holder(name, script, *options))
        return started[-1]

    yield start
    for holder in started:
        if holder.process.poll() is None:
            holder.process.kill()
        holder.process.communicate()


def test_one_at_a_time_and_the_token_grows(hold: Callable[..., Holder], tmp_path: Path) -> None:
    counter, tokens = tmp_path / "counter", tmp_path / "tokens"
    counter.write_text("0")
    # Reading, waiting and writing back loses increments wherever two do it at the same time.
    script = (
        f"n=$(cat {counter}); sleep 0.02; echo $((n + 1)) > {counter}; "
        f"echo $QUORACY_FENCING_TOKEN >> {tokens}"
    )
    for _ in range(ROUNDS):
        holders = [hold("counter", script) for _ in range(CONTENDERS)]
        assert [holder.end()[0] for holder in holders] == [0] * CONTENDERS
    assert int(counter.read_text()) == CONTENDERS * ROUNDS
    given = [int(token) for token in tokens.read_text().split()]
    assert given == sorted(set(given))
    assert len(given) == CONTENDERS * ROUNDS


def test_command_knows_its_lock(hold: Callable[..., Holder], ask: Ask) -> None:
    holder = hold("jobs/nightly", "env | grep ^QUORACY_ | sort; echo done; read line")
    names = {}
    while (line := holder.next_line()) != "done":
        name, _, value = line.partition("=")
        names[name] = value
    assert names["QUORACY_LOCK_NAME"] == "jobs/nightly"
    assert names["QUORACY_LOCK_KEY"] == f"jobs/nightly/{int(names['QUORACY_LEASE'], 16):x}"
    (kv,) = ask("get", names["QUORACY_LOCK_KEY"], "-o", "json").json["kvs"]
    assert (str(kv["create_revision"]), kv["lease"]) == (
        names["QUORACY_FENCING_TOKEN"],
        names["QUORACY_LEASE"],
    )


@pytest.mark.parametrize("code", [0, 3, 77])
def test_exit_code_is_the_commands(hold: Callable[..., Holder], ask: Ask, code: int) -> None:
    assert hold("code", f"exit {code}").end()[0] == code
    assert ask("get", "code/", "--prefix").lines == []


def test_killed_command_is_128_and_the_signal(hold: Callable[..., Holder]) -> None:
    assert hold("killed", "kill -9 $$").end()[0] == 128 + signal.SIGKILL


def test_command_that_does_not_exist_is_127_and_takes_no_lock(ask: Ask) -> None:
    said = ask("lock", "l", "--", "no-such-command-anywhere")
    assert (said.code, said.err.count("\n")) == (127, 1)


def test_revoked_lease_stops_the_command(hold: Callable[..., Holder], ask: Ask, tmp_path: Path) -> None:
    script = "trap 'echo stopped; exit 0' TERM; echo $QUORACY_LEASE; while :; do sleep 0.1; done"
    holder = hold("revoked", script, "--ttl", "60")
    assert ask("lease", "revoke", holder.next_line()).code == 0
    code, out, err = holder.end()
    assert (code, out) == (5, "stopped\n")
    # The shell may have a word to say about its own child first.
    assert err.splitlines()[-1].startswith("quoracy: the lock revoked was lost: ")


def test_deleted_key_stops_a_command_that_ignores_it_with_all_it_started(
    hold: Callable[..., Holder], ask: Ask
) -> None:
    script = "trap '' TERM; sleep 600 & echo $!; echo $QUORACY_LOCK_KEY; while :; do sleep 0.1; done"
    holder = hold("deleted", script, "--grace", "0.2")
    child = psutil.Process(int(holder.next_line()))
    assert ask("del", holder.next_line()).out == b"1\n"
    code, _, err = holder.end()
    assert code == 5
    assert "was deleted" in err
    assert child.wait(60) is None or not child.is_running()


def test_signals_are_passed_on(hold: Callable[..., Holder], ask: Ask) -> None:
    holder = hold(
        "signals", "trap 'echo usr1' USR1; trap 'exit 42' TERM; echo ready; while :; do sleep 0.1; done"
    )
    holder.next_line()
    holder.process.send_signal(signal.SIGUSR1)
    assert holder.next_line() == "usr1"
    holder.process.send_signal(signal.SIGTERM)
    assert holder.end()[0] == 42
    assert ask("get", "signals/", "--prefix").lines == []


def test_waiting_ends_with_a_signal_and_leaves_the_queue(hold: Callable[..., Holder], ask: Ask) -> None:
    first = hold("queue", "echo ready; read line")
    first.next_line()
    waiter = hold("queue", "echo never")
    while len(ask("get", "queue/", "--prefix").lines) < 2:
        assert waiter.process.poll() is None
    waiter.process.send_signal(signal.SIGTERM)
    assert waiter.end() == (128 + signal.SIGTERM, "", "")
    assert len(ask("get", "queue/", "--prefix").lines) == 1


def test_lock_that_is_not_free_in_time_is_exit_code_3(hold: Callable[..., Holder], ask: Ask) -> None:
    assert hold("busy", "exit 0", "--timeout", "0").end()[0] == 0
    hold("busy", "echo ready; read line").next_line()
    for timeout in ("0", "0.2"):
        code, out, err = hold("busy", "echo never", "--timeout", timeout).end()
        assert (code, out, err.count("\n")) == (3, "", 1)
    assert len(ask("get", "busy/", "--prefix").lines) == 1


def test_lock_without_a_command_says_what_it_holds(ask: Ask) -> None:
    with subprocess.Popen([*QUORACY, "lock", "bare"], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        key, token = holder.stdout.readline().decode().split()
        (kv,) = ask("get", key, "-o", "json").json["kvs"]
        assert str(kv["create_revision"]) == token
        holder.send_signal(signal.SIGINT)
        assert holder.wait(60) == 130
    assert ask("get", key).code == 3


def test_lock_of_a_dead_holder_is_free_after_its_time_to_live(hold: Callable[..., Holder]) -> None:
    script = "trap 'exit 0' TERM; echo $QUORACY_FENCING_TOKEN $$; while :; do sleep 0.1; done"
    dead = hold("dead", script, "--ttl", "2")
    token, pid = map(int, dead.next_line().split())
    command = psutil.Process(pid)
    dead.process.kill()
    next_one = hold("dead", "echo $QUORACY_FENCING_TOKEN")
    assert int(next_one.next_line()) > token
    if sys.platform == "linux":  # elsewhere nobody tells it
        command.wait(60)


def test_etcdctl_waits_in_the_same_queue(hold: Callable[..., Holder], url: str) -> None:
    etcdctl = shutil.which("etcdctl")
    if etcdctl is None:
        pytest.skip("there is no etcdctl here")
    endpoints = url.partition("://")[2]
    environment = os.environ | {"ETCDCTL_API": "3", "ETCDCTL_ENDPOINTS": endpoints}
    with subprocess.Popen(
        [etcdctl, "lock", "shared"], env=environment, stdout=subprocess.PIPE, text=True
    ) as theirs:
        assert theirs.stdout is not None
        assert re.fullmatch(r"shared/[0-9a-f]+\n", theirs.stdout.readline())
        assert hold("shared", "echo never", "--timeout", "0").end()[0] == 3
        waiting = hold("shared", "echo ours; read line")
        theirs.send_signal(signal.SIGINT)
        assert waiting.next_line() == "ours"


def test_silent_server_stops_the_command_before_it_could_free_the_lock(
    hold: Callable[..., Holder], serve: Callable[..., ServerProcess], url: str
) -> None:
    if not url.startswith("quoracy:"):
        pytest.skip("once is enough")
    server = serve("--engine", "memory:")
    own = "quoracy://{}:{}".format(*server.etcd)
    holder = hold("silent", "echo $$; while :; do sleep 0.1; done", "--ttl", "3", "-e", own)
    command = int(holder.next_line())
    server.process.send_signal(signal.SIGSTOP)
    try:
        code, _, err = holder.end()
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert code == 5
    assert not psutil.pid_exists(command)
    assert "could not be renewed in time" in err
    assert "the server frees it within 3 s" in err
