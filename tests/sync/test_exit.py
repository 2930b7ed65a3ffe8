"""The end of a program: prompt, silent, and with the session ended if that is possible."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import quoracy.sync
from tests.faults.scale import LONG

pytestmark = pytest.mark.faults

# Far more than any of them needs; less than the time to live of a session that nobody ended.
ENDS_S = 20.0

CONNECT = """
import sys, threading, time
import quoracy, quoracy.sync
q = quoracy.sync.connect(sys.argv[1], namespace=sys.argv[2], session_ttl=60)
"""


def run(body: str, *arguments: str, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *flags, "-c", CONNECT + body, *arguments],
        capture_output=True,
        text=True,
        timeout=ENDS_S,
        check=False,
    )


FORGETFUL = {
    "a lock": "held = q.lock('left').acquire()",
    "a block": "block = q.lock('blocked').hold(); block.__enter__()",
    "an iterator": "q.value('v', int).set(1); changes = q.value('v', int).changes(); next(changes)",
    "a listener": "q.on_state(lambda state: time.sleep(1000))",
    "a cache": "cache = q.cache('c', str); cache.__enter__()",
    "two connections": "other = quoracy.sync.connect(sys.argv[1]); other.lock('right').acquire()",
    # As a name server that does not answer: asyncio looks host names up in its executor.
    "a look-up that hangs": (
        "portal = q._portal; portal.call(lambda: portal.loop.run_in_executor(None, time.sleep, 1000))"
    ),
    "waiting daemons": """
def wait(what):
    started.release()
    what()
started = threading.Semaphore(0)
lock = q.lock('waited-for')
lock.acquire()
for what in (lock.acquire, lambda: next(q.value('never', int).changes()), lock.__enter__):
    threading.Thread(target=wait, args=(what,), daemon=True).start()
    started.acquire()
while len(lock.contenders()) < 3:
    time.sleep(0.001)
""",
    "busy daemons": """
def work():
    while True:
        q.value('n', int, default=0).update(lambda n: n + 1)
        working.set()
working = threading.Event()
threading.Thread(target=work, daemon=True).start()
working.wait()
""",
}
STRICT = ("-X", "dev", "-W", "error")
# One by one when there is time; otherwise all in one program.
PROGRAMS = FORGETFUL if LONG else {"everything": "\n".join(FORGETFUL.values())}


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What a program printed, but for what asyncio in its debug mode says of slow machines."""
    lines = (done.stdout + done.stderr).splitlines()
    return [line for line in lines if not line.startswith("Executing <")]


@pytest.mark.parametrize("flags", [(), STRICT], ids=["plain", "strict"])
@pytest.mark.parametrize("what", PROGRAMS)
def test_program_that_forgets_to_close_ends_silently_and_ends_its_session(
    what: str, flags: tuple[str, ...], server_url: str, namespace: str
) -> None:
    done = run(PROGRAMS[what], server_url, namespace, flags=flags)
    assert (done.returncode, said(done)) == (0, [])
    with quoracy.sync.connect(server_url, namespace=namespace) as q:
        # The session of the program had a minute to live.
        with q.lock("left").hold(timeout=ENDS_S), q.lock("waited-for").hold(timeout=ENDS_S):
            pass


@pytest.mark.parametrize("url", ["memory:", "sqlite:{}/forgotten.db"])
def test_store_in_the_process_is_closed_at_its_end(url: str, tmp_path: Path, namespace: str) -> None:
    url = url.format(tmp_path)
    body = "q.value('kept', int).set(7); q.lock('left').acquire()"
    done = run(body, url, namespace, flags=STRICT)
    assert (done.returncode, said(done)) == (0, [])
    if url.startswith("sqlite"):
        # Closed in the ordinary way: nothing is left to be taken into the file.
        wal = Path(f"{tmp_path}/forgotten.db-wal")
        assert not wal.exists() or wal.stat().st_size == 0
        with quoracy.sync.connect(url, namespace=namespace) as q:
            found = q.value("kept", int).get()
            assert found is not None
            assert found.value == 7


def test_error_of_the_program_is_all_that_is_printed(server_url: str, namespace: str) -> None:
    done = run("q.lock('left').acquire(); 1 / 0", server_url, namespace)
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_handlers_of_the_program_may_still_use_it(server_url: str, namespace: str) -> None:
    body = "import atexit; atexit.register(lambda: print(q.value('v', int).set(1) > 0))"
    done = run(body, server_url, namespace)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_handlers_that_come_later_find_it_closed(server_url: str, namespace: str) -> None:
    script = f"""
import atexit, sys
def late():
    q.close()
    try:
        q.lock("x")
    except quoracy.StoreClosed:
        print("closed")
atexit.register(late)
{CONNECT}
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, server_url, namespace],
        capture_output=True,
        text=True,
        timeout=ENDS_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\n", "")


def test_program_ends_although_its_server_is_silent(namespace: str, server_url: str) -> None:
    """The way to the server is stopped: the end of the session cannot be told to anybody."""
    relay = subprocess.Popen(
        [sys.executable, "-c", RELAY, server_url.rpartition(":")[2]], stdout=subprocess.PIPE, text=True
    )
    try:
        assert relay.stdout is not None
        port = relay.stdout.readline().strip()
        body = f"import os, signal; q.lock('left').acquire(); os.kill({relay.pid}, signal.SIGSTOP)"
        done = run(body, f"quoracy://127.0.0.1:{port}", namespace)
        assert (done.returncode, said(done)) == (0, [])
    finally:
        relay.send_signal(signal.SIGCONT)
        relay.kill()
        relay.wait()
        assert relay.stdout is not None
        relay.stdout.close()


RELAY = """
import asyncio, sys
async def pump(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def relay(reader, writer):
    there = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))
async def main():
    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""


def test_interrupted_program_ends_its_session(server_url: str, namespace: str) -> None:
    body = "q.lock('left').acquire(); print('waiting', flush=True); q.lock('left').acquire()"
    program = subprocess.Popen(
        [sys.executable, "-c", CONNECT + body, server_url, namespace],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "waiting\n"
    os.kill(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=ENDS_S)
    assert errors.strip().endswith("KeyboardInterrupt")
    with quoracy.sync.connect(server_url, namespace=namespace) as q:
        with q.lock("left").hold(timeout=ENDS_S):
            pass
