"""The runtime of a server: the collector comes seldom, memory that is not needed is given back."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

from quoracy.clock import ManualClock
from quoracy.server.runtime import MemoryTrimmer

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux gives pages back")

# The beginning of every program below.
_PRELUDE = """
import asyncio, ctypes, decimal, hashlib, json, mmap, sqlite3, ssl, threading
from quoracy.server.runtime import trim_memory

def resident_kb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))

def works():
    assert hashlib.sha256(b"abc").hexdigest().startswith("ba7816bf")
    assert json.loads(json.dumps({"a": [1.5, None]})) == {"a": [1.5, None]}
    assert sqlite3.connect(":memory:").execute("SELECT upper('a') || 1").fetchall() == [("A1",)]
    assert str(decimal.Decimal("1.10") + 1) == "2.10"
    assert ssl.create_default_context().minimum_version
    assert asyncio.run(asyncio.sleep(0, "slept")) == "slept"

"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _PRELUDE + program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@linux
def test_the_process_is_smaller_and_works() -> None:
    run(
        """
works()
before = resident_kb()
given = trim_memory()
after = resident_kb()
assert given > 2 << 20, given
assert after < before - (1 << 10), (before, after)
works()
"""
    )


@linux
def test_it_can_be_done_any_number_of_times_while_threads_run() -> None:
    run(
        """
ended = threading.Event()
failures = []

def work():
    while not ended.is_set():
        try:
            works()
        except BaseException as error:
            failures.append(error)
            raise

threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(200):
    trim_memory()
ended.set()
for thread in threads:
    thread.join()
assert not failures
"""
    )


@linux
def test_a_page_of_code_that_somebody_changed_stays_as_it_is() -> None:
    """As a debugger does: the page is a copy, and the file knows nothing of it."""
    run(
        """
import _decimal
with open("/proc/self/maps") as maps:
    line = next(line for line in maps if "_decimal" in line)
start = int(line.split("-")[0], 16)
assert line.split()[1] == "r--p"
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
padding = ctypes.c_ubyte.from_address(start + 15)  # of e_ident: it means nothing
assert padding.value == 0
assert libc.mprotect(start, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0
padding.value = 7
assert libc.mprotect(start, mmap.PAGESIZE, mmap.PROT_READ) == 0
assert trim_memory() > 0
assert padding.value == 7
works()
"""
    )


class Server:
    """A clock, and a processor that is as busy as the test says."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.processor_s = 0.0
        self.trimmed_at: list[float] = []
        self.trimmer = MemoryTrimmer(
            clock=self.clock,
            processor_s=lambda: self.processor_s,
            trim=lambda: self.trimmed_at.append(self.clock.now()),
        )

    async def pass_time(self, seconds: float, *, busy: float) -> None:
        """So much of a processor is used meanwhile."""
        for _ in range(round(seconds / 0.5)):
            self.processor_s += busy * 0.5
            await self.clock.advance(0.5)


async def test_it_is_given_back_when_all_is_up_and_once_more_when_it_is_quiet() -> None:
    server = Server()
    assert len(server.trimmed_at) == 1
    await server.pass_time(1, busy=0.5)  # the first clients
    await server.pass_time(300, busy=0.002)
    assert len(server.trimmed_at) == 2


async def test_a_server_that_has_something_to_do_keeps_what_it_uses() -> None:
    server = Server()
    await server.pass_time(300, busy=0.05)
    assert len(server.trimmed_at) == 1


async def test_it_is_given_back_after_every_time_that_was_busy_but_not_all_the_time() -> None:
    server = Server()
    for _ in range(40):
        await server.pass_time(5, busy=0.5)
        await server.pass_time(5, busy=0.0)
    between = [later - earlier for earlier, later in itertools.pairwise(server.trimmed_at[1:])]
    assert len(between) >= 4
    assert min(between) >= 60


async def test_what_it_takes_to_give_back_does_not_count_as_being_busy() -> None:
    server = Server()

    def dear() -> None:
        server.trimmed_at.append(server.clock.now())
        server.processor_s += 0.5

    server.trimmer.close()
    server.trimmer = MemoryTrimmer(
        clock=server.clock, processor_s=lambda: server.processor_s, trim=dear
    )
    trimmed_before = len(server.trimmed_at)
    await server.pass_time(300, busy=0.0)
    assert len(server.trimmed_at) == trimmed_before + 1


async def test_nothing_is_looked_at_when_the_server_has_ended() -> None:
    server = Server()
    server.trimmer.close()
    await server.pass_time(300, busy=0.0)
    assert len(server.trimmed_at) == 1


# In a process of its own, as the collector is everybody's.
_COLLECTOR = """
import gc, weakref
from quoracy.server.runtime import freeze_loaded, run

class Cycle:
    def __init__(self):
        self.itself = self

async def main():
    loaded = [[number] for number in range(100_000)]
    freeze_loaded()
    frozen = gc.get_freeze_count()
    assert frozen > 100_000
    alive = weakref.WeakSet()
    most = 0
    for _ in range(200_000):
        alive.add(Cycle())
        most = max(most, len(alive.data))
    kept = [[number] for number in range(50_000)]  # survives, and is not frozen
    gc.collect()
    assert gc.get_freeze_count() <= frozen
    print(most, len(alive), len(loaded), len(kept))

run(main())
"""


def test_cycles_that_nobody_holds_do_not_pile_up_behind_what_was_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _COLLECTOR], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    most, left, _, _ = map(int, done.stdout.split())
    assert most < 20_000
    assert left == 0
