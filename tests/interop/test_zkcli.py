"""ZooKeeper's command line client: the same commands to Quoracy and to a real ZooKeeper, compared.

Both servers are new and get the same script on standard input, one Java machine for each.  What no two
servers agree on (times, ids of sessions, ports) is replaced by a word; transaction ids by their rank,
so that which changes came first, and which came together, must agree.  Events are printed by a thread
of their own and are compared apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.interop.programs import run
from tests.interop.zookeeper_java import ZOOKEEPER_JARS, java_command
from tests.interop.zookeepers import SUPER_PASSWORD, ZooKeeper, running_side

SCRIPTS = {
    "create": """
        create /c
        create /c/data text
        create /c/words "two words"
        create /c/data again
        create /c/none/child x
        create -s /c/s- x
        create -s /c/s- x
        create -e /c/e x
        create -e -s /c/es- x
        create /c/e/child x
        create -c /c/container
        create -c -e /c/wrong
        create -c -s /c/wrong
        create -t 60000 /c/ttl x
        create -t 60000 -s /c/ttl- x
        create -t 60000 -e /c/wrong x
        create -t 0 /c/wrong x
        create /c/acl x world:anyone:r
        create /c/acl2 x world:anyone:cdrwa,ip:127.0.0.1:r
        create /c/bad x digest:broken:cdrwa
        create /c/bad x nonsense:x:cdrwa
        create relative x
        create /c//double x
        create /c/trailing/ x
        create /c/../dots x
        create / x
        create
        create /zookeeper/mine x
        ls -R /c
        ls -s /c
        stat /c/container
        stat /c/ttl
        stat /c/e
    """,
    "get and set": """
        create /g one
        create /g/empty ""
        get /g
        get -s /g
        get /g/empty
        get -s /g/empty
        get /none
        set /g two
        set -s /g three
        set -v 2 /g four
        set -v 2 /g five
        set -s -v 3 /g six
        set /none x
        set /g
        get -s /g
        stat /g
        stat /none
        stat /
        get /
        set / root
        get -s /
        stat /zookeeper
        get /zookeeper/config
    """,
    "ls": """
        create /l
        create /l/b
        create /l/a
        create /l/a/deep
        create /l/a/deep/deeper
        create /l/c
        ls /l
        ls -s /l
        ls -R /l
        ls /l/c
        ls -R /l/c
        ls /none
        ls -R /none
        ls /zookeeper
        ls -R /zookeeper
        ls relative
        ls
        getAllChildrenNumber /l
        getAllChildrenNumber /l/c
        getAllChildrenNumber /none
        getEphemerals
        create -e /l/e1
        create -e /l/a/e2
        create -e /l/a/e3
        getEphemerals
        getEphemerals /l/a
        getEphemerals /none
    """,
    "delete": """
        create /d
        create /d/a
        create /d/b
        create /d/b/c
        delete /d
        delete /none
        delete -v 1 /d/a
        set /d/a x
        delete -v 0 /d/a
        delete -v 1 /d/a
        deleteall /d/b
        ls -R /d
        stat /d
        deleteall /d -b 1
        deleteall /none
        delete /
        delete /zookeeper
        ls /zookeeper
    """,
    "who may": f"""
        create /a x
        getAcl /a
        getAcl -s /a
        whoami
        setAcl /a auth::cdrwa
        addauth digest ann:secret
        whoami
        setAcl -s /a auth::cdrwa
        getAcl /a
        create /a/child x auth:any:crdwa
        getAcl /a/child
        setAcl -v 7 /a world:anyone:r
        setAcl -v 1 /a world:anyone:ra
        get /a
        set /a y
        create /a/other x
        delete /a/child
        setAcl -R /a world:anyone:cdrwa
        getAcl /a/child
        set /a y
        setAcl /a digest:bob:broken:r
        setAcl /a nonsense
        setAcl /none world:anyone:r
        getAcl /none
        setAcl /a digest:bob:u9mBLAyMbFmRsvrq4DAPsi1Zzgc=:cdrwa
        get /a
        getAcl /a
        addauth digest super:{SUPER_PASSWORD}
        whoami
        get /a
        getAcl /a
        setAcl /a world:anyone:cdrwa
        stat /a
        connect {{address}}
        whoami
        get /a
    """,
    "watches": """
        create /w 0
        get -w /w
        set /w 1
        set /w 2
        ls -w /w
        create /w/a
        create /w/b
        stat -w /w
        set /w 3
        stat -w /w/none
        get -w /w/a
        delete /w/a
        ls -w /none
        addWatch /w
        set /w 4
        create /w/deep
        create /w/deep/er
        set /w/deep/er x
        delete /w/deep/er
        removewatches /w
        set /w 5
        removewatches /w
        addWatch -m PERSISTENT /w
        set /w 6
        create /w/c
        set /w/c x
        set /w 7
        removewatches /w -a
        addWatch -m PERSISTENT_RECURSIVE /later
        create /later
        create /later/child
        delete /later/child
        delete /later
        addWatch -m nonsense /w
        get -w /w
        removewatches /w -d
        set /w 8
        ls -w /w
        removewatches /w -c
        create /w/d
        removewatches /none
    """,
    "quotas": """
        create /q
        create /q/a 12345
        setquota -n 5 /q
        listquota /q
        create /q/b 123
        listquota /q
        set /q/b 1
        listquota /q
        setquota -b 100 /q
        listquota /q
        setquota -N 10 /q
        setquota -B 1000 /q
        listquota /q
        setquota -n 1 /q/a
        setquota -n 1 /none
        listquota /none
        ls -R /zookeeper/quota
        get /zookeeper/quota/q/zookeeper_limits
        delete /q/b
        listquota /q
        delquota -n /q
        listquota /q
        delquota -b /q
        delquota -N /q
        delquota -B /q
        listquota /q
        setquota -n 7 /q
        delquota /q
        listquota /q
        delquota /none
        ls -R /zookeeper/quota
    """,
    "the server": """
        sync /
        sync /none
        version
        config
        config -s
        config -c
        reconfig -add server.2=localhost:2888:3888;2181
        reconfig -remove 3
        reconfig
        nonsense
        create -e /ephemeral x
        close
        get /ephemeral
        connect {address}
        get /ephemeral
        connect {address}/chroot
        ls /
        quit
    """,
}


@dataclass(frozen=True)
class Transcript:
    """What the client printed: by command, and about events."""

    answers: tuple[str, ...]
    events: tuple[str, ...]


def _commands(zookeeper: ZooKeeper) -> list[str]:
    lines = [line.strip() for script in SCRIPTS.values() for line in script.strip().splitlines()]
    return [line.replace("{address}", zookeeper.address) for line in lines]


def _transcript(zookeeper: ZooKeeper) -> Transcript:
    """The whole script on one server, with a command between any two that says the same every time."""
    commands = _commands(zookeeper)
    stdin = "".join(f"printwatches\n{command}\n" for command in commands)
    client = "org.apache.zookeeper.ZooKeeperMain"
    command = java_command(
        client, "-timeout", "30000", "-server", zookeeper.address, jars=ZOOKEEPER_JARS
    )
    done = run("sh", "-c", 'exec "$@" 2>&1', "sh", *command, stdin=stdin)
    lines = _plain(done.out, zookeeper).splitlines()
    events = tuple(line for line in lines if line.startswith("WatchedEvent "))
    kept = "".join(
        f"{line}\n"
        for line in lines
        if line and not line.startswith(("WATCHER::", "WatchedEvent ", "\tat "))
    )
    answers = [_sorted_identities(answer) for answer in kept.split("printwatches is on\n")]
    return Transcript((*answers, f"code {done.code}"), events)


def _sorted_identities(answer: str) -> str:
    """What `whoami` prints is a set."""
    head, *rest = answer.splitlines(keepends=True) or [""]
    return head + "".join(sorted(rest)) if head.startswith("Auth scheme: User") else answer


def _plain(text: str, zookeeper: ZooKeeper) -> str:
    zxid = re.compile(r"\b([cmp]Zxid = )0x([0-9a-f]+)")
    ranks = {
        number: rank for rank, number in enumerate(sorted({int(m[2], 16) for m in zxid.finditer(text)}))
    }
    text = zxid.sub(lambda found: f"{found[1]}{ranks[int(found[2], 16)]}", text)
    text = re.sub(r"([cm]time = ).+", r"\1TIME", text)
    text = re.sub(r"(ephemeralOwner = )0x[1-9a-f][0-9a-f]+", r"\1SESSION", text)
    # Sets are printed as they come.
    text = re.sub(r"^\[(.+)\]$", lambda found: str(sorted(found[1].split(", "))), text, flags=re.M)
    return text.replace(str(zookeeper.port), "PORT")


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ZooKeeper, ZooKeeper]]:
    with (
        running_side("quoracy", tmp_path_factory.mktemp("quoracy")) as ours,
        running_side("real", tmp_path_factory.mktemp("real")) as theirs,
    ):
        yield ours, theirs


def test_every_command_does_what_it_does_with_zookeeper(sides: tuple[ZooKeeper, ZooKeeper]) -> None:
    with ThreadPoolExecutor(2) as pool:
        ours, theirs = pool.map(_transcript, sides)
    commands = ["(start)", *_commands(sides[0]), "(end)"]
    assert len(theirs.answers) == len(commands), theirs.answers[-3:]
    assert len(ours.answers) == len(commands), ours.answers[-3:]
    different = [
        f"{command}\n--- quoracy\n{mine}--- zookeeper\n{its}"
        for command, mine, its in zip(commands, ours.answers, theirs.answers, strict=True)
        if mine != its
    ]
    assert not different, "\n\n" + "\n".join(different)
    assert ours.events == theirs.events
    assert ours == theirs
