"""Memory that only starting needed is given back, and the process is none the worse for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from quorate.compiled import is_compiled
from quorate.server.resident import give_back_what_starting_took

pytestmark = pytest.mark.skipif(
    not is_compiled() or sys.platform != "linux", reason="only where it is compiled, on Linux"
)

# What every program below begins with.
_PRELUDE = """
import asyncio, ctypes, decimal, hashlib, json, mmap, sqlite3, ssl, threading
from quorate.server._resident import give_back

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


def test_the_process_is_smaller_and_works() -> None:
    run(
        """
works()
before = resident_kb()
given = give_back()
after = resident_kb()
assert given > 2 << 20, given
assert after < before - (1 << 10), (before, after)
works()
"""
    )


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
    give_back()
ended.set()
for thread in threads:
    thread.join()
assert not failures
"""
    )


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
assert give_back() > 0
assert padding.value == 7
works()
"""
    )


def test_what_is_compiled_is_used() -> None:
    assert give_back_what_starting_took() > 0
