"""A forked child: what it inherited says so at once, what it opens works; the parent notices nothing.

Each test is a program of its own, which forks: the process that runs the tests must not.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.faults.scale import LONG

pytestmark = pytest.mark.faults

FORKING = """
import asyncio, gc, os, signal, sys, threading, time, traceback
import quoracy, quoracy.sync
URL, NAMESPACE = sys.argv[1:]

def connect():
    return quoracy.sync.connect(URL, namespace=NAMESPACE, session_ttl=2)

def in_child(function):
    '''Run it in a forked child; what it raises is the child's exit status, and shown.'''
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            function()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return pid

def wait(*pids):
    for pid in pids:
        _, status = os.waitpid(pid, 0)
        assert status == 0, f"child {pid}: {status}"

def raises_forked(*uses):
    for use in uses:
        began = time.monotonic()
        try:
            use()
        except quoracy.Forked as error:
            assert str(os.getpid()) in str(error)
        else:
            raise AssertionError(use)
        assert time.monotonic() - began < 1
"""


def run(body: str, url: str, namespace: str, *flags: str) -> str:
    # From 3.12 on, Python warns of every fork of a process with threads; here they are the point.
    quiet = ("-W", "ignore::DeprecationWarning")
    done = subprocess.run(
        [sys.executable, *flags, *quiet, "-c", FORKING + body, url, namespace],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(params=["memory", "server", *(["sqlite"] if LONG else [])])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "server":
        return str(request.getfixturevalue("server_url"))
    if request.param == "memory":
        return "memory:"
    return f"sqlite:{request.getfixturevalue('tmp_path')}/forked.db"


def test_inherited_connection_raises_at_once_in_the_child(url: str, namespace: str) -> None:
    run(
        """
q = connect()
lock = q.lock("x")
held = lock.acquire()
block = q.lock("y").hold()
block.__enter__()
value = q.value("v", int)
value.set(1)
changes = value.changes()
next(changes)

def child():
    raises_forked(
        lambda: q.lock("z"), lambda: q.state, lock.acquire, lock.__enter__, held.release, held.check,
        lambda: held.is_held, lambda: held.lost.wait(), lambda: block.__exit__(None, None, None),
        lambda: next(changes), lambda: value.update(lambda n: 2), lambda: q.store.put(b"k"),
        lambda: q.on_state(print), changes.close,
    )
    assert block.__exit__(SystemExit, SystemExit(), None) is None
    q.close()      # it is the parent's: nothing happens
    # Nor does anything when it is forgotten.
    for name in ("q", "lock", "held", "block", "value", "changes"):
        del globals()[name]
    gc.collect()

wait(in_child(child))
assert held.is_held and q.state is quoracy.SessionState.CONNECTED
held.release()
value.set(2)
assert next(changes).value == 2
block.__exit__(None, None, None)
q.close()
print("fine")
""",
        url,
        namespace,
    )


def test_prefork_server_works_with_a_connection_per_worker(server_url: str, namespace: str) -> None:
    """As gunicorn and celery do it: the parent imports and connects, then forks, and forks again."""
    printed = run(
        """
q = connect()
boot = q.lock("boot").acquire()
q.value("ready", int).set(1)
counter = q.counter("jobs")

def worker():
    raises_forked(lambda: q.lock("x"), lambda: counter.add(1))
    with connect() as mine:
        threads = [threading.Thread(target=work, args=(mine,)) for _ in range(2)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert mine.lock("boot").try_acquire() is None

def work(mine):
    for _ in range(3):
        with mine.lock("shared").hold(timeout=20) as held:
            n = mine.value("n", int, default=0).get().value
            mine.value("n", int).set(n + 1)
            held.check()

for generation in range(2):
    wait(*[in_child(worker) for _ in range(3)])
    # The ends of children are no business of the parent's session.
    assert boot.is_held and q.state is quoracy.SessionState.CONNECTED
    assert counter.add(1) == generation + 1
print(q.value("n", int).get().value)
assert boot.is_held
q.close()
""",
        server_url,
        namespace,
    )
    assert printed == "36\n"


def test_fork_while_the_loop_is_busy_harms_neither_side(server_url: str, namespace: str) -> None:
    run(
        """
q = connect()
stop = threading.Event()
def work():
    while not stop.is_set():
        with q.lock("busy"):
            pass
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()

def child():
    raises_forked(lambda: q.lock("x"))
    with connect() as mine:
        mine.counter("children").add(1)

for _ in range(5):
    wait(*[in_child(child) for _ in range(2)])
stop.set()
for thread in threads: thread.join()
assert q.counter("children").get() == 10
q.close()
""",
        server_url,
        namespace,
    )


def test_child_that_ends_by_itself_ends_what_is_its_own(server_url: str, namespace: str) -> None:
    """Not by os._exit: its interpreter runs its exit handlers, those it inherited among them."""
    run(
        """
q = connect()
held = q.lock("parent").acquire()
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    mine = connect()
    mine.lock("child").acquire()
    sys.exit(0)
wait(pid)
# The child ended its session; it did not touch ours.
with q.lock("child").hold(timeout=0):
    pass
time.sleep(0.1)
assert held.is_held
held.txn(quoracy.Put(b"proof", b"1"))
q.close()
""",
        server_url,
        namespace,
        "-X",
        "dev",
    )


@pytest.mark.parametrize("method", ["fork", "forkserver", *(["spawn"] if LONG else [])])
def test_workers_of_multiprocessing_connect_by_themselves(
    method: str, server_url: str, namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    program = tmp_path_factory.mktemp("program") / "workers.py"
    program.write_text(
        """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
import quoracy, quoracy.sync

def work(url, namespace, number):
    with quoracy.sync.connect(url, namespace=namespace) as q:
        with q.lock("pool").hold(timeout=20):
            return q.counter("runs").add(1)

def inherited(_):
    try:
        q.lock("x")
    except quoracy.Forked:
        return "forked"
    except NameError:
        return "not inherited"

if __name__ == "__main__":
    url, namespace, method = sys.argv[1:]
    context = multiprocessing.get_context(method)
    q = quoracy.sync.connect(url, namespace=namespace)
    held = q.lock("main").acquire()
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        runs = sorted(pool.map(work, [url] * 4, [namespace] * 4, range(4)))
        assert runs == [1, 2, 3, 4], runs
        answers = set(pool.map(inherited, range(2)))
    with context.Pool(1) as pool:
        assert pool.apply(work, (url, namespace, 5)) == 5
    assert answers == ({"forked"} if method == "fork" else {"not inherited"}), answers
    assert held.is_held
    q.close()
""",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program), server_url, namespace, method],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_inherited_asynchronous_connection_raises_at_once(url: str, namespace: str) -> None:
    run(
        """
async def main():
    async with quoracy.connect(URL, namespace=NAMESPACE, session_ttl=2) as q:
        lock = q.lock("x")
        held = await lock.acquire()
        election = q.election("e")

        def child():
            raises_forked(lambda: q.lock("y"), lambda: q.on_state(print))
            # The loop that runs here is the parent's, stopped in the middle of a step: coroutines are
            # driven by hand as far as they get.
            coroutines = (
                lambda: lock.acquire(), lambda: lock.try_acquire(), lambda: election.leader(),
                lambda: q.wait_state(quoracy.SessionState.CONNECTED),
            )
            for coroutine in coroutines:
                raises_forked(lambda: coroutine().send(None))

        wait(in_child(child))
        await asyncio.sleep(0.1)
        assert held.is_held
        await held.release()

        def fresh():
            asyncio.events._set_running_loop(None)      # as a framework does that forks under a loop
            async def anew():
                async with quoracy.connect(URL, namespace=NAMESPACE) as mine:
                    async with mine.lock("x").hold(timeout=20) as held:
                        return held.token
            assert asyncio.run(anew()) > 0

        if URL.startswith("quoracy:"):
            wait(in_child(fresh))
            async with q.lock("x").hold(timeout=20) as again:
                assert again.token > held.token

asyncio.run(main())
""",
        url,
        namespace,
    )
