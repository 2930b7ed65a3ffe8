"""etcdctl's commands that go on: watches, locks, elections, leases kept alive, mirrors."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.programs import Etcdctl, QuoracyServer, Running, running_quoracy, until


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuoracyServer]:
    with running_quoracy(tmp_path_factory.mktemp("elsewhere")) as running:
        yield running


def next_revision(etcdctl: Etcdctl, port: int) -> str:
    fields = etcdctl.ok(port, "get", "any", "-w", "fields")
    return str(int(fields.partition('"Revision" : ')[2].partition("\n")[0]) + 1)


# -- watches

CHANGES = [
    ["put", "w/a", "1"],
    ["put", "w/b", "1"],
    ["put", "w/a", "2"],
    ["del", "w/a"],
    ["put", "w/end", "."],
]


@pytest.mark.parametrize(
    "flags",
    [
        ["w/", "--prefix"],
        ["w/", "--prefix", "--prev-kv"],
        ["w/", "w/zzz", "--hex"],
        ["w/", "--prefix", "--", "sh", "-c", "env | grep '^ETCD_WATCH_[EKV]' | sort"],
    ],
    ids=" ".join,
)
def test_watch_tells_what_etcd_tells(
    etcdctl: Etcdctl, server: QuoracyServer, etcd: int, flags: list[str]
) -> None:
    said = []
    for port in (server.port, etcd):
        etcdctl.ok(port, "del", "w/", "--prefix")
        start = next_revision(etcdctl, port)
        for change in CHANGES[:2]:  # seen from history
            etcdctl.ok(port, *change)
        with etcdctl.start(port, "watch", "--rev", start, *flags) as watch:
            for change in CHANGES[2:]:  # seen as they happen
                etcdctl.ok(port, *change)
            last = 'ETCD_WATCH_VALUE="."' if "--" in flags else r"\x2e" if "--hex" in flags else "."
            lines = [watch.line()]
            while lines[-1] != last:
                lines.append(watch.line())
            if "--" in flags:
                # How many events come before their commands run is the server's choice.
                lines = [line for line in lines if line.startswith("ETCD_")]
        said.append(lines)
    assert said[0] == said[1]


def test_watch_without_a_revision_sees_what_comes_next(etcdctl: Etcdctl, server: QuoracyServer) -> None:
    with etcdctl.start(server.port, "watch", "next/", "--prefix") as watch:
        # Nothing says when it has begun, so the first change is made until it is seen.
        until(lambda: _put_and_heard(etcdctl, server, watch), "the watch to begin")
        etcdctl.ok(server.port, "put", "next/b", "2")
        assert watch.line_with("next/b") == "next/b"
        assert watch.line() == "2"


def _put_and_heard(etcdctl: Etcdctl, server: QuoracyServer, watch: Running) -> bool:
    etcdctl.ok(server.port, "put", "next/a", "1")
    return not watch.is_silent


def test_watch_in_json_has_the_revisions(etcdctl: Etcdctl, server: QuoracyServer) -> None:
    etcdctl.ok(server.port, "del", "json")
    start = next_revision(etcdctl, server.port)
    with etcdctl.start(
        server.port, "watch", "json", "--rev", start, "-w", "json", "--prev-kv"
    ) as watch:
        etcdctl.ok(server.port, "put", "json", "1")
        etcdctl.ok(server.port, "put", "json", "2")
        events: list[dict[str, Any]] = []
        while len(events) < 2:
            events += json.loads(watch.line())["Events"]
    assert [event["kv"]["mod_revision"] for event in events] == [int(start), int(start) + 1]
    assert [event.get("prev_kv", {}).get("mod_revision") for event in events] == [None, int(start)]


def test_watch_of_a_compacted_revision_is_refused(etcdctl: Etcdctl, server: QuoracyServer) -> None:
    etcdctl.ok(server.port, "put", "compacted", "1")
    revision = next_revision(etcdctl, server.port)
    etcdctl.ok(server.port, "put", "compacted", "2")
    etcdctl.ok(server.port, "compaction", revision)
    done = etcdctl(server.port, "watch", "compacted", "--rev", str(int(revision) - 1))
    assert done.code == 5  # etcdctl's for a server that ended what it asked for
    assert "required revision has been compacted" in done.out + done.err


def test_several_watches_on_one_stream_and_their_progress(
    etcdctl: Etcdctl, server: QuoracyServer
) -> None:
    start = next_revision(etcdctl, server.port)
    with etcdctl.start(server.port, "watch", "-i") as watch:
        watch.say(f"watch i/a --rev {start}\nwatch i/b --rev {start}\nnonsense\n")
        for key in ("i/a", "i/b"):
            etcdctl.ok(server.port, "put", key, "1")
        seen = {watch.line_with("i/"), watch.line_with("i/")}
        assert seen == {"i/a", "i/b"}
        watch.say("progress\n")
        assert watch.line_with("progress notify:") == f"progress notify: {int(start) + 1}"


# -- locks and elections


def contenders(etcdctl: Etcdctl, server: QuoracyServer, name: str) -> int:
    return len(etcdctl.ok(server.port, "get", f"{name}/", "--prefix", "--keys-only").split())


def test_lock_goes_from_one_holder_to_the_next(etcdctl: Etcdctl, server: QuoracyServer) -> None:
    name = f"lock{etcdctl.version}"
    with etcdctl.start(server.port, "lock", name) as first:
        first_key = first.line()
        assert first_key.startswith(f"{name}/")
        with etcdctl.start(server.port, "lock", name) as second:
            until(lambda: contenders(etcdctl, server, name) == 2, "the second to queue")
            assert second.is_silent
            assert first.end()[0] == 0
            assert second.line() != first_key
            assert second.end(signal.SIGTERM)[0] == 0
    assert contenders(etcdctl, server, name) == 0


def test_lock_of_a_holder_that_died_is_freed_by_its_lease(
    etcdctl: Etcdctl, server: QuoracyServer
) -> None:
    name = f"died{etcdctl.version}"
    with etcdctl.start(server.port, "lock", "--ttl", "1", name) as first:
        first_key = first.line()
        with etcdctl.start(server.port, "lock", name) as second:
            until(lambda: contenders(etcdctl, server, name) == 2, "the second to queue")
            first.process.kill()
            assert second.line() != first_key
            assert second.end()[0] == 0


def test_command_runs_while_the_lock_is_held(etcdctl: Etcdctl, server: QuoracyServer) -> None:
    name = f"command{etcdctl.version}"
    script = 'echo "$ETCD_LOCK_KEY $ETCD_LOCK_REV"'
    done = etcdctl(server.port, "lock", name, "--", "sh", "-c", script)
    assert done.code == 0, done
    key, revision = done.out.split()
    assert key.startswith(f"{name}/")
    assert int(revision) < int(next_revision(etcdctl, server.port))
    assert etcdctl(server.port, "lock", name, "false").code == 1
    assert contenders(etcdctl, server, name) == 0


def test_election_has_one_leader_and_tells_those_who_listen(
    etcdctl: Etcdctl, server: QuoracyServer
) -> None:
    name = f"election{etcdctl.version}"
    with etcdctl.start(server.port, "elect", name, "ada") as ada:
        ada_key = ada.line()
        assert ada.line() == "ada"
        with (
            etcdctl.start(server.port, "elect", name, "grace") as grace,
            etcdctl.start(server.port, "elect", "--listen", name) as listener,
        ):
            assert listener.lines(2) == [ada_key, "ada"]
            until(lambda: contenders(etcdctl, server, name) == 2, "the second to stand")
            assert grace.is_silent
            assert ada.end()[0] == 0
            grace_key, proposal = grace.lines(2)
            assert (grace_key != ada_key, proposal) == (True, "grace")
            assert listener.lines(2) == [grace_key, "grace"]
            assert (grace.end()[0], listener.end()[0]) == (0, 0)


# -- leases


def test_lease_is_kept_alive_until_it_is_revoked(etcdctl: Etcdctl, server: QuoracyServer) -> None:
    lease = etcdctl.ok(server.port, "lease", "grant", "2").split()[1]
    etcdctl.ok(server.port, "put", "kept", "x", "--lease", lease)
    with etcdctl.start(server.port, "lease", "keep-alive", lease) as keeper:
        for _ in range(2):
            assert keeper.line().endswith("keepalived with TTL(2)")
        etcdctl.ok(server.port, "lease", "revoke", lease)
        code, rest = keeper.ended()
        assert (code, rest[-1]) == (0, f"lease {int(lease, 16):016x} expired or revoked.")
    assert etcdctl.ok(server.port, "get", "kept") == ""


def test_lapsed_lease_takes_its_keys_along(etcdctl: Etcdctl, server: QuoracyServer) -> None:
    start = next_revision(etcdctl, server.port)
    lease = etcdctl.ok(server.port, "lease", "grant", "1").split()[1]
    etcdctl.ok(server.port, "put", "lapses", "x", "--lease", lease)
    with etcdctl.start(server.port, "watch", "lapses", "--rev", start) as watch:
        assert watch.lines(5) == ["PUT", "lapses", "x", "DELETE", "lapses"]
    assert "already expired" in etcdctl.ok(server.port, "lease", "timetolive", lease)


# -- mirrors


@pytest.mark.parametrize("to_etcd", [False, True], ids=["to Quoracy", "to etcd"])
def test_mirror_copies_and_follows(
    etcdctl: Etcdctl, server: QuoracyServer, elsewhere: QuoracyServer, etcd: int, to_etcd: bool
) -> None:
    goal = etcd if to_etcd else elsewhere.port
    prefix = f"mirror{etcdctl.version}/"

    def copied() -> list[str]:
        return etcdctl.ok(goal, "get", "to/", "--prefix").split()

    etcdctl.ok(goal, "del", "to/", "--prefix")
    etcdctl.ok(server.port, "del", prefix, "--prefix")
    etcdctl.ok(server.port, "put", f"{prefix}before", "1")
    command = ["make-mirror", "--prefix", prefix, "--dest-prefix", "to/", f"127.0.0.1:{goal}"]
    with etcdctl.start(server.port, *command):
        until(lambda: copied() == ["to/before", "1"], "the copy")
        etcdctl.ok(server.port, "put", f"{prefix}after", "2")
        until(lambda: copied() == ["to/after", "2", "to/before", "1"], "a later put")
        etcdctl.ok(server.port, "del", f"{prefix}before")
        until(lambda: copied() == ["to/after", "2"], "a later delete")
