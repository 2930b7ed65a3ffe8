"""etcdctl's commands for operators, on Quoracy alone: backups, members, and what is not offered."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.faults.scale import LONG
from tests.interop.programs import Etcdctl, QuoracyServer, run, running_quoracy


def test_snapshot_becomes_a_store_again(
    etcdctl: Etcdctl, server: QuoracyServer, tmp_path: Path
) -> None:
    etcdctl.ok(server.port, "put", "saved/a", "1")
    lease = etcdctl.ok(server.port, "lease", "grant", "1000").split()[1]
    etcdctl.ok(server.port, "put", "saved/b", "2", "--lease", lease)
    backup = tmp_path / "backup"
    assert etcdctl.ok(server.port, "snapshot", "save", backup) == f"Snapshot saved at {backup}\n"
    etcdctl.ok(server.port, "put", "saved/a", "later")

    (tmp_path / "new").mkdir()
    restored = tmp_path / "new" / "quoracy.db"
    done = run(sys.executable, "-m", "quoracy", "restore", backup, restored)
    assert done.code == 0, done
    with running_quoracy(tmp_path / "new") as again:
        assert etcdctl.ok(again.port, "get", "saved/", "--prefix").split() == [
            "saved/a", "1", "saved/b", "2"
        ]  # fmt: skip
        assert "attached keys([saved/b])" in etcdctl.ok(
            again.port, "lease", "timetolive", "--keys", lease
        )


def test_cluster_has_one_member_which_leads(etcdctl: Etcdctl, server: QuoracyServer) -> None:
    listed = json.loads(etcdctl.ok(server.port, "member", "list", "-w", "json"))
    (member,) = listed["members"]
    assert member["clientURLs"] == [f"http://{server.address}"]
    (status,) = json.loads(etcdctl.ok(server.port, "endpoint", "status", "--cluster", "-w", "json"))
    assert status["Status"]["leader"] == member["ID"] == listed["header"]["member_id"]
    assert etcdctl(server.port, "move-leader", f"{member['ID']:x}").code == 0


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("member add other --peer-urls=http://127.0.0.1:1", "cluster of one"),
        ("member remove 1", "member not found"),
        ("member update 1 --peer-urls=http://127.0.0.1:1", "member not found"),
        ("member promote 1", "member not found"),
        ("auth enable", "keeps no users"),
        ("user add ada:secret", "keeps no users"),
        ("user get ada", "keeps no users"),
        ("user list", "keeps no users"),
        ("user delete ada", "keeps no users"),
        ("user passwd ada --interactive=false", "keeps no users"),
        ("user grant-role ada admin", "keeps no users"),
        ("user revoke-role ada admin", "keeps no users"),
        ("role add admin", "keeps no users"),
        ("role get admin", "keeps no users"),
        ("role list", "keeps no users"),
        ("role delete admin", "keeps no users"),
        ("role grant-permission admin readwrite key", "keeps no users"),
        ("role revoke-permission admin key", "keeps no users"),
    ],
)
def test_what_is_not_offered_says_so(
    etcdctl: Etcdctl, server: QuoracyServer, command: str, said: str
) -> None:
    done = etcdctl(server.port, *command.split(), stdin="secret\n")
    assert done.code == 1, done
    assert said in done.err


def test_auth_is_off(etcdctl: Etcdctl, server: QuoracyServer) -> None:
    if etcdctl.version == "3.4":
        pytest.skip("etcdctl 3.4 has no `auth status`")
    assert "Authentication Status: false" in etcdctl.ok(server.port, "auth", "status")


@pytest.mark.skipif(not LONG, reason="a minute each; QUORACY_FAULTS=long runs it")
@pytest.mark.timeout(600)
def test_etcdctl_finds_it_fast_enough(etcdctl: Etcdctl, server: QuoracyServer) -> None:
    for command in (["check", "perf", "--load", "s"], ["check", "datascale", "--load", "s"]):
        with etcdctl.start(server.port, *command) as check:
            code = check.process.wait(300)
            said = check.ended()[1]
        assert code == 0, said
        assert any("PASS" in line for line in said), said
