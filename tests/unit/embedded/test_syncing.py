"""Syncs off the loop: in C where it was compiled, in Python anywhere."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quorate.compiled import is_compiled
from quorate.engines.embedded.syncing import FileSync, NativeSync, OnSynced, ThreadSync, file_sync

_SOON_S = 10.0

Kind = Callable[[int, asyncio.AbstractEventLoop, OnSynced], FileSync]


@pytest.fixture(
    params=[
        ThreadSync,
        pytest.param(
            NativeSync, marks=pytest.mark.skipif(not is_compiled(), reason="it is not compiled")
        ),
    ]
)
def kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


async def test_each_sync_is_told_once_on_the_loop(kind: Kind, file: int) -> None:
    told: asyncio.Queue[OSError | None] = asyncio.Queue()
    threads: set[int] = set()

    def on_synced(error: OSError | None) -> None:
        threads.add(threading.get_ident())
        told.put_nowait(error)

    sync = kind(file, asyncio.get_running_loop(), on_synced)
    for number in range(100):
        sync.begin(b"%02d" % number, 2 * number)
        assert await asyncio.wait_for(told.get(), _SOON_S) is None
        assert told.empty()
        assert os.pread(file, 10, 2 * number) == b"%02d" % number
    sync.close()
    assert threads == {threading.get_ident()}
    assert os.pread(file, 1000, 0) == b"".join(b"%02d" % number for number in range(100))


async def test_a_write_that_fails_says_why(kind: Kind, tmp_path: Path) -> None:
    told: asyncio.Queue[OSError | None] = asyncio.Queue()
    path = tmp_path / "read only"
    path.touch()
    file = os.open(path, os.O_RDONLY)
    sync = kind(file, asyncio.get_running_loop(), told.put_nowait)
    sync.begin(b"x", 0)
    error = await asyncio.wait_for(told.get(), _SOON_S)
    assert error is not None
    assert error.errno == errno.EBADF
    sync.close()
    os.close(file)


async def test_a_sync_that_fails_says_why(kind: Kind) -> None:
    told: asyncio.Queue[OSError | None] = asyncio.Queue()
    reading_end, writing_end = os.pipe()
    sync = kind(writing_end, asyncio.get_running_loop(), told.put_nowait)
    sync.begin(b"", 0)
    error = await asyncio.wait_for(told.get(), _SOON_S)
    assert error is not None
    assert error.errno in {
        errno.EINVAL,
        errno.ESPIPE,
    }  # nobody can sync a pipe, nor go to a place in it
    sync.close()
    os.close(reading_end)
    os.close(writing_end)


async def test_a_write_is_whole_however_long(kind: Kind, file: int) -> None:
    told: asyncio.Queue[OSError | None] = asyncio.Queue()
    sync = kind(file, asyncio.get_running_loop(), told.put_nowait)
    data = os.urandom(5_000_000)
    sync.begin(data, 7)
    assert await asyncio.wait_for(told.get(), _SOON_S) is None
    assert os.pread(file, len(data) + 1, 7) == data
    sync.close()


async def test_closed_it_leaves_no_thread_and_no_descriptor_and_tells_nothing(
    kind: Kind, file: int
) -> None:
    told: list[OSError | None] = []
    threads, files = _threads_count(kind), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        sync = kind(file, asyncio.get_running_loop(), told.append)
        sync.begin(b"x", 0)
        sync.close()
        sync.close()
    await asyncio.sleep(0)
    assert told == []
    assert _threads_count(kind) <= threads
    assert len(os.listdir("/proc/self/fd")) == files


def _threads_count(kind: Kind) -> int:
    # The system may show a thread of Python's for a moment after it was joined; one in C it does not.
    return threading.active_count() if kind is ThreadSync else len(os.listdir("/proc/self/task"))


async def test_what_is_compiled_is_used(file: int) -> None:
    sync = file_sync(file, asyncio.get_running_loop(), lambda error: None)
    assert isinstance(sync, NativeSync) == is_compiled()
    sync.close()


@pytest.mark.skipif(not is_compiled(), reason="it is not compiled")
def test_the_thread_in_c_refuses_what_makes_no_sense(file: int) -> None:
    from quorate.engines.embedded._sync_thread import SyncThread

    thread = SyncThread(file, file)
    with pytest.raises(RuntimeError, match="runs already"):
        thread.__init__(file, file)  # type: ignore[misc]
    thread.close()
    with pytest.raises(RuntimeError, match="has ended"):
        thread.begin(b"", 0)
    for wrong in ((), (b"x",), ("x", 0), (b"x", "0")):
        with pytest.raises(TypeError):
            thread.begin(*wrong)
    with pytest.raises(TypeError):
        SyncThread("file", file)  # type: ignore[arg-type]


_FORK = """
import os, sys
from quorate.engines.embedded._sync_thread import SyncThread

thread = SyncThread(2, 2)
child = os.fork()
if not child:
    try:
        thread.begin(b"", 0)
    except RuntimeError as error:
        print(error)
    del thread
    sys.exit(0)
_, status = os.waitpid(child, 0)
thread.close()
print(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not is_compiled(), reason="it is not compiled")
def test_a_process_that_was_forked_does_not_wait_for_a_thread_it_has_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORK], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[0].endswith("forked from")
    assert done.stdout.splitlines()[-1] == "0"
