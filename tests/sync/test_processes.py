"""Threads of several processes want the same lock and the same office; a fenced resource judges."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import quoracy
import quoracy.sync
from tests.faults.scale import LONG, rounds

pytestmark = pytest.mark.faults

WORKER = """
import json, sys, threading
import quoracy, quoracy.sync

url, namespace, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
out = threading.Lock()

def tell(kind, **what):
    with out:
        print(json.dumps({"kind": kind, **what}), flush=True)

def locked(q):
    lock = q.lock("resource")
    for _ in range(rounds):
        with lock.hold(timeout=60) as held:
            # The resource refuses whoever comes late: each write says who it is by its token.
            before = q.value("resource", int, default=0).get()
            held.txn(quoracy.Put(f"{namespace}/resource-value".encode(), str(held.token).encode()))
            q.value("resource", int).set(before.value + 1)
            tell("held", token=held.token, saw=before.value)

def led(q, name):
    with q.election("chief").lead(name, timeout=60) as term:
        term.proclaim(name + "!")
        tell("led", token=term.token, name=name)

with quoracy.sync.connect(url, namespace=namespace, session_ttl=5) as q:
    threads = [threading.Thread(target=locked, args=(q,)) for _ in range(3)]
    threads += [threading.Thread(target=led, args=(q, f"{q.identity}-{n}")) for n in range(2)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_threads_of_processes_exclude_each_other(server_url: str, namespace: str) -> None:
    each = rounds(4, 100)
    workers = [start(WORKER, server_url, namespace, str(each)) for _ in range(3)]
    told = []
    for worker in workers:
        out, errors = worker.communicate(timeout=100)
        assert (worker.returncode, errors) == (0, "")
        told += [json.loads(line) for line in out.splitlines()]
    held = sorted((line["token"], line["saw"]) for line in told if line["kind"] == "held")
    assert [saw for _, saw in held] == list(range(3 * 3 * each))
    assert len({token for token, _ in held}) == len(held)
    led = [line["token"] for line in told if line["kind"] == "led"]
    assert len(set(led)) == 6
    with quoracy.sync.connect(server_url, namespace=namespace) as q:
        assert q.lock("resource").contenders() == ()
        assert q.election("chief").candidates() == ()


HOLDER = """
import sys
import quoracy, quoracy.sync
q = quoracy.sync.connect(sys.argv[1], namespace=sys.argv[2], session_ttl=2)
with q.lock("held") as held:
    print(held.token, flush=True)
    if held.lost.wait(60):
        print("lost", held.is_held, flush=True)
        held.check()
"""


@pytest.mark.skipif(not LONG, reason="it takes seconds: QUORACY_FAULTS=long")
def test_killed_holder_is_followed_by_the_next(server_url: str, namespace: str) -> None:
    holder = start(HOLDER, server_url, namespace)
    assert holder.stdout is not None
    token = int(holder.stdout.readline())
    with quoracy.sync.connect(server_url, namespace=namespace) as q:
        assert q.lock("held").try_acquire() is None
        holder.kill()
        with q.lock("held").hold(timeout=60) as held:
            assert held.token > token
    holder.communicate()


def test_stopped_holder_learns_that_it_lost_the_lock(server_url: str, namespace: str) -> None:
    holder = start(HOLDER, server_url, namespace)
    assert holder.stdout is not None
    token = int(holder.stdout.readline())
    holder.send_signal(signal.SIGSTOP)
    with quoracy.sync.connect(server_url, namespace=namespace) as q:
        with q.lock("held").hold(timeout=60) as held:
            assert held.token > token
            holder.send_signal(signal.SIGCONT)
            out, errors = holder.communicate(timeout=60)
            assert out == "lost False\n"
            assert errors.strip().splitlines()[-1].startswith("quoracy.errors.LockLost")
            held.check()


def test_store_in_one_file_serves_the_threads_of_its_process(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/one.db"
    with quoracy.sync.connect(url) as q, quoracy.sync.connect(q.store, identity="second") as other:
        held = other.lock("x").acquire()
        assert [each.identity for each in q.lock("x").contenders()] == ["second"]
        held.release()
        other.close()
        with q.lock("x").hold(timeout=30):
            pass
