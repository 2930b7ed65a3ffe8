"""Syncs off the loop: in C where it was compiled, in Python anywhere."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quorate.compiled import is_compiled
from quorate.engines.embedded.syncing import FileSync, NativeSync, OnSynced, ThreadSync, file_sync
from quorate.store.replies import Reply

_SOON_S = 10.0

Kind = Callable[[int, asyncio.AbstractEventLoop, OnSynced], FileSync]


native = pytest.mark.skipif(not is_compiled(), reason="it is not compiled")


@pytest.fixture(params=[ThreadSync, pytest.param(NativeSync, marks=native)])
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


@native
async def test_what_is_expected_may_come_at_once_late_or_never(file: int) -> None:
    told: asyncio.Queue[OSError | None] = asyncio.Queue()
    sync = NativeSync(file, asyncio.get_running_loop(), told.put_nowait)
    rng = random.Random(3)
    for _ in range(500):
        for _ in range(rng.randrange(4)):  # asleep, awake, or just going back to sleep
            sync.expect()
            await asyncio.sleep(rng.choice([0, 0, 0.0001, 0.0002]))
        sync.begin(b"data", 0)
        sync.expect()  # of no use now, and no harm
        assert await asyncio.wait_for(told.get(), _SOON_S) is None
    sync.expect()
    sync.close()


# -- replies ------------------------------------------------------------------------------------


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def _received(end: socket.socket) -> bytes:
    try:
        return end.recv(1 << 20)
    except BlockingIOError:
        return b""


async def _synced(kind: Kind, file: int, reply: Reply) -> OSError | None:
    told: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    sync = kind(file, asyncio.get_running_loop(), told.set_result)
    sync.begin(b"data", 0)
    sync.attach(reply)
    error = await asyncio.wait_for(told, _SOON_S)
    sync.close()
    return error


async def test_a_reply_is_sent_or_left_to_the_loop(
    kind: Kind, file: int, ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = ends
    reply = Reply(ours.fileno(), b"durable")
    assert await _synced(kind, file, reply) is None
    assert _received(theirs) == b"durable"[: reply.sent_bytes]
    assert reply.sent_bytes in (0, len(b"durable"))


async def test_no_reply_is_sent_for_what_failed(
    kind: Kind, tmp_path: Path, ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = ends
    (tmp_path / "file").touch()
    read_only = os.open(tmp_path / "file", os.O_RDONLY)
    reply = Reply(ours.fileno(), b"durable")
    error = await _synced(kind, read_only, reply)
    os.close(read_only)
    assert error is not None
    assert (reply.sent_bytes, _received(theirs)) == (0, b"")


@native
async def test_of_a_reply_that_does_not_fit_it_is_known_how_much_was_sent(
    file: int, ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = ends
    data = bytes(range(256)) * 8192
    reply = Reply(ours.fileno(), data)
    while reply.sent_bytes == 0:  # the sync was over before the reply was there: it is left to the loop
        reply = Reply(ours.fileno(), data)
        assert await _synced(NativeSync, file, reply) is None
    assert reply.sent_bytes < len(data)
    received = b""
    while chunk := _received(theirs):
        received += chunk
    assert received == data[: reply.sent_bytes]


@native
async def test_what_is_received_are_the_replies_that_were_not_taken_back(
    file: int, ends: tuple[socket.socket, socket.socket]
) -> None:
    """And each only once its own sync was told of, or a moment before."""
    ours, theirs = ends
    told: asyncio.Queue[OSError | None] = asyncio.Queue()
    sync = NativeSync(file, asyncio.get_running_loop(), told.put_nowait)
    rng = random.Random(7)
    expected = b""
    for number in range(2000):
        reply = Reply(ours.fileno(), b"%d," % number)
        sync.begin(b"data", 0)
        sync.attach(reply)
        match rng.randrange(4):
            case 0:
                reply.take_back()
            case 1:
                for _ in range(rng.randrange(3)):
                    await asyncio.sleep(0)
                reply.take_back()
            case 2:
                sync.catch_up()
        assert await asyncio.wait_for(told.get(), _SOON_S) is None
        expected += reply.data[: reply.sent_bytes]
    sync.close()
    received = b""
    while chunk := _received(theirs):
        received += chunk
    assert received == expected
    assert expected


@native
async def test_whoever_has_seen_a_reply_finds_its_sync_told_of(
    file: int, ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = ends
    told: asyncio.Queue[OSError | None] = asyncio.Queue()
    sync = NativeSync(file, asyncio.get_running_loop(), told.put_nowait)
    theirs.settimeout(_SOON_S)
    seen = 0
    while seen < 300:
        sync.begin(b"data", 0)
        sync.attach(Reply(ours.fileno(), b"!"))
        if sync._reply is not None:  # or the sync was over by then
            assert theirs.recv(1) == b"!"  # (the loop stands still meanwhile, so it was not told)
            assert told.empty()
            sync.catch_up()
            assert told.qsize() == 1
            seen += 1
        assert await asyncio.wait_for(told.get(), _SOON_S) is None
    sync.close()
