"""Syncs off the loop: in C where it was compiled, in Python anywhere."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import random
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quoracy.compiled import is_compiled
from quoracy.engines.embedded.disk.file_sync import (
    FileSync,
    FileSyncs,
    NativeSync,
    OnSynced,
    ThreadSync,
    let_others_go_first,
    start_writing,
)
from quoracy.store.completion import Reply
from tests.support.asking import until

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


async def test_what_was_begun_is_done_when_it_is_closed(kind: Kind, file: int) -> None:
    for number in range(100):
        sync = kind(file, asyncio.get_running_loop(), lambda error: None)
        sync.begin(b"%02d" % number, 0)
        sync.close()
        assert os.pread(file, 10, 0) == b"%02d" % number


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
        sync.catch_up()
    await asyncio.sleep(0)
    assert told == []
    assert _threads_count(kind) <= threads
    assert len(os.listdir("/proc/self/fd")) == files


def _threads_count(kind: Kind) -> int:
    # The system may show a thread of Python's for a moment after it was joined; one in C it does not.
    return threading.active_count() if kind is ThreadSync else len(os.listdir("/proc/self/task"))


async def test_what_is_compiled_is_used(file: int) -> None:
    syncs = FileSyncs(asyncio.get_running_loop())
    sync = syncs.make(file, lambda error: None)
    assert isinstance(sync, NativeSync) == is_compiled() == syncs.sends_replies
    sync.close()


@native
def test_the_thread_in_c_refuses_what_makes_no_sense(file: int) -> None:
    from quoracy.engines.embedded.disk._sync_thread import Sending, SyncOrder, SyncThread, make_sending

    order = SyncOrder()
    thread = SyncThread(file, file, order)
    with pytest.raises(RuntimeError, match="runs already"):
        thread.__init__(file, file, order)  # type: ignore[misc]
    wrongs: list[tuple[Any, ...]] = [(), (b"x",), ("x", 0), (b"x", "0"), (b"x", 0, [], 0)]
    for wrong in (*wrongs, (b"x", 0, ()), (b"x", 0, [None])):
        with pytest.raises(TypeError):
            thread.begin(*wrong)
    with pytest.raises(TypeError):
        thread.attach(None)  # type: ignore[arg-type]
    thread.close()
    with pytest.raises(RuntimeError, match="has ended"):
        thread.begin(b"", 0)
    sending = make_sending(file, b"x")
    assert not thread.attach(sending)
    assert sending.take_back() == 0
    with pytest.raises(TypeError, match="cannot create"):
        Sending()
    wrong_sendings: list[tuple[Any, ...]] = [(), (file,), (file, "x"), ("file", b"x"), (file, b"x", 0)]
    for wrong in wrong_sendings:
        with pytest.raises(TypeError):
            make_sending(*wrong)
    for descriptor in (-1, 2**31):
        with pytest.raises(ValueError, match="no descriptor"):
            make_sending(descriptor, b"x")
    with pytest.raises(TypeError):
        SyncThread("file", file, order)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="SyncOrder"):
        SyncThread(file, file, None)  # type: ignore[arg-type]


_FORK = """
import os, sys
from quoracy.engines.embedded.disk._sync_thread import SyncOrder, SyncThread

thread = SyncThread(2, 2, SyncOrder())
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


@native
def test_a_process_that_was_forked_does_not_wait_for_a_thread_it_has_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORK], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[0].endswith("forked from")
    assert done.stdout.splitlines()[-1] == "0"


def _sleeps(thread: str) -> int:
    """How often a thread of ours has gone to sleep."""
    status = Path("/proc/self/task", thread, "status").read_text(encoding="ascii")
    return int(status.partition("voluntary_ctxt_switches:")[2].split()[0])


def _is_asleep(thread: str) -> bool:
    return ") S " in Path("/proc/self/task", thread, "stat").read_text(encoding="ascii")


@native
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
async def test_on_the_processor_of_who_expects_something_nobody_wakes_up_early(file: int) -> None:
    told: asyncio.Queue[OSError | None] = asyncio.Queue()
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    try:
        before = set(os.listdir("/proc/self/task"))
        sync = NativeSync(file, asyncio.get_running_loop(), told.put_nowait)
        (thread,) = set(os.listdir("/proc/self/task")) - before
        sync.begin(b"x", 0)
        assert await asyncio.wait_for(told.get(), _SOON_S) is None
        await until(lambda: _is_asleep(thread))
        sleeps = _sleeps(thread)
        for _ in range(20):
            sync.expect()
            await asyncio.sleep(0.001)
        assert _sleeps(thread) == sleeps
        sync.begin(b"y", 1)
        assert await asyncio.wait_for(told.get(), _SOON_S) is None
        sync.close()
    finally:
        os.sched_setaffinity(0, processors)
    assert os.pread(file, 2, 0) == b"xy"


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
    reply.take_back()
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
        reply.take_back()
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
    for _ in range(300):
        sync.begin(b"data", 0, [Reply(ours.fileno(), b"!")])
        assert theirs.recv(1) == b"!"  # (the loop stands still meanwhile, so it was not told)
        assert told.empty()
        sync.catch_up()
        assert told.qsize() == 1
        assert told.get_nowait() is None
    sync.close()


@pytest.fixture
def many_ends() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    with contextlib.ExitStack() as opened:
        ends = [socket.socketpair() for _ in range(40)]
        for ours, theirs in ends:
            opened.enter_context(ours)
            opened.enter_context(theirs)
            theirs.setblocking(False)
        yield ends


@native
async def test_all_replies_of_a_write_are_sent_and_each_once(
    file: int, many_ends: list[tuple[socket.socket, socket.socket]]
) -> None:
    told: asyncio.Queue[OSError | None] = asyncio.Queue()
    sync = NativeSync(file, asyncio.get_running_loop(), told.put_nowait)
    for number in range(50):
        replies = [Reply(ours.fileno(), b"%d," % number) for ours, _ in many_ends]
        sync.begin(b"data", 0, replies)
        for _, theirs in many_ends:  # the loop stands still: nobody but the thread sends them
            theirs.settimeout(_SOON_S)
            assert theirs.recv(100) == b"%d," % number
            theirs.setblocking(False)
        assert await asyncio.wait_for(told.get(), _SOON_S) is None
        for reply in replies:
            reply.take_back()
        assert [reply.sent_bytes for reply in replies] == [len(reply.data) for reply in replies]
    sync.close()
    assert [_received(theirs) for _, theirs in many_ends] == [b""] * len(many_ends)


@native
async def test_a_reply_that_was_taken_back_before_it_left_is_not_sent(
    file: int, ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = ends
    told: asyncio.Queue[OSError | None] = asyncio.Queue()
    sync = NativeSync(file, asyncio.get_running_loop(), told.put_nowait)
    early, late = Reply(ours.fileno(), b"early"), Reply(ours.fileno(), b"late")
    early.take_back()
    late.take_back()
    sync.begin(b"data", 0, [early])
    sync.attach(late)
    assert await asyncio.wait_for(told.get(), _SOON_S) is None
    sync.close()
    assert _received(theirs) == b""
    assert early.sent_bytes == late.sent_bytes == 0


@native
def test_a_thread_that_lets_others_go_first_has_longer_turns_and_interrupts_nobody() -> None:
    """As far as the system tells; it does since Linux 6.12."""
    seen: list[tuple[bool, str, str]] = []
    policies: list[int] = []

    def work() -> None:
        before = _turns()
        seen.append((let_others_go_first(), before, _turns()))
        policies.append(os.sched_getscheduler(threading.get_native_id()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    ((took, before, after),) = seen
    assert policies == [os.SCHED_BATCH if took else os.SCHED_OTHER]
    if not took or not before:
        pytest.skip("this system tells nothing of turns")
    assert float(after) > float(before)
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_a_file_that_is_begun_to_be_written_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb", buffering=0) as file:
        file.write(b"x" * 100_000)
        start_writing(file.fileno())
        os.fdatasync(file.fileno())
    assert path.read_bytes() == b"x" * 100_000


@native
def test_what_cannot_be_written_to_is_not_begun() -> None:
    from quoracy.engines.embedded.disk import _sync_thread

    with pytest.raises(ValueError, match="negative"):
        _sync_thread.start_writing(-1)
    with pytest.raises(TypeError):
        _sync_thread.start_writing("file")  # type: ignore[arg-type]


def _turns() -> str:
    """How long those of this thread are, if it can be known."""
    try:
        lines = Path(f"/proc/self/task/{threading.get_native_id()}/sched").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split()[-1] for line in lines if line.startswith("se.slice")), "")


# -- the order of several threads


@native
def test_what_is_synced_is_not_answered_before_what_was_begun_before_it(
    file: int, tmp_path: Path, ends: tuple[socket.socket, socket.socket]
) -> None:
    from quoracy.engines.embedded.disk._sync_thread import SyncOrder, SyncThread, make_sending

    ours, theirs = ends
    order = SyncOrder()
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    with _pipe() as (slow_rings, slow_bell), _pipe() as (rings, bell):
        slow, quick = SyncThread(other, slow_bell, order), SyncThread(file, bell, order)
        to_ours = functools.partial(make_sending, ours.fileno())
        slow.begin(
            bytes(64 << 20), 0, [to_ours(b"1,"), to_ours(b"2,")]
        )  # for which a disk takes its time
        quick.begin(b"2", 1, [to_ours(b"3,")])
        assert os.read(rings, 1)
        assert quick.outcome() == 0
        assert quick.attach(to_ours(b"4,"))
        quick.begin(b"3", 2)
        assert os.read(rings, 1)  # it has done all that it does after the one before
        assert _received(theirs) == b""
        assert slow.outcome() is None, "a test of nothing: the slow one was as quick"
        theirs.settimeout(_SOON_S)
        received = b""
        while len(received) < 8:
            received += theirs.recv(100)
        assert os.read(slow_rings, 1)
        slow.close()
        quick.close()
        theirs.setblocking(False)
        assert received + _received(theirs) == b"1,2,3,4,"
    os.close(other)


@native
@pytest.mark.parametrize("told_first", [True, False])
async def test_behind_a_write_that_failed_nothing_is_answered_whichever_ends_first(
    file: int, ends: tuple[socket.socket, socket.socket], told_first: bool
) -> None:
    from quoracy.engines.embedded.disk._sync_thread import SyncOrder, SyncThread, make_sending

    ours, theirs = ends
    read_only = os.open(os.devnull, os.O_RDONLY)
    order = SyncOrder()
    with _pipe() as (failing_rings, failing_bell), _pipe() as (rings, bell):
        failing, thread = SyncThread(read_only, failing_bell, order), SyncThread(file, bell, order)
        failing.begin(b"1", 0, [make_sending(ours.fileno(), b"1,")])
        if told_first:
            assert os.read(failing_rings, 1)
            assert failing.outcome() == errno.EBADF
            assert failing.outcome() is None
        begun = 1
        with pytest.raises(RuntimeError, match="has failed"):
            for number in range(2, 100):
                thread.begin(b"data", 0, [make_sending(ours.fileno(), b"%d," % number)])
                begun = number
                assert os.read(rings, 1)
                assert thread.outcome() == 0
        assert begun == 8  # it is bounded what is kept for them
        failing.close()
        thread.close()
    os.close(read_only)
    assert _received(theirs) == b""


@native
async def test_a_bell_that_rings_for_what_was_told_is_no_harm(file: int) -> None:
    told: asyncio.Queue[OSError | None] = asyncio.Queue()
    sync = NativeSync(file, asyncio.get_running_loop(), told.put_nowait)
    for number in range(200):
        sync.begin(b"%03d" % number, 0)
        while told.empty():
            sync.catch_up()  # before the bell, or while it rings
        assert told.get_nowait() is None
        if number % 3 == 0:
            await asyncio.sleep(0)
    os.write(sync._bell, bytes(100))
    for _ in range(5):  # more turns than it takes to read them
        await asyncio.sleep(0)
    assert not select.select([sync._rings], [], [], 0)[0]
    assert told.empty()
    sync.begin(b"end", 0)
    assert await asyncio.wait_for(told.get(), _SOON_S) is None
    assert os.pread(file, 10, 0) == b"end"
    sync.close()


@native
async def test_who_saw_a_reply_finds_its_outcome_there(
    file: int, ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = ends
    theirs.settimeout(_SOON_S)
    told: list[OSError | None] = []
    sync = NativeSync(file, asyncio.get_running_loop(), told.append)
    for count in (1, 2, 5) * 50:
        told.clear()
        sync.begin(b"data", 0, [Reply(ours.fileno(), b"x") for _ in range(count)])
        assert theirs.recv(1) == b"x"
        sync.catch_up()
        assert told == [None]
        received = 1
        while received < count:
            received += len(theirs.recv(count))
    sync.close()


@native
async def test_those_that_were_made_together_have_one_order(
    file: int, ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = ends
    syncs = FileSyncs(asyncio.get_running_loop())
    read_only = os.open(os.devnull, os.O_RDONLY)
    failing = syncs.make(read_only, lambda error: None)
    sync = syncs.make(file, lambda error: None)
    failing.begin(b"lost", 0, [Reply(ours.fileno(), b"1,")])
    sync.begin(b"data", 0, [Reply(ours.fileno(), b"2,")])
    for each in (failing, sync):
        assert isinstance(each, NativeSync)
        assert select.select([each._rings], [], [], _SOON_S)[0]
        each.close()  # when it has sent what it had to; and the loop was told nothing
    os.close(read_only)
    assert _received(theirs) == b""


@native
async def test_of_two_threads_everything_is_received_that_was_not_taken_back(
    tmp_path: Path, many_ends: list[tuple[socket.socket, socket.socket]]
) -> None:
    """Each reply once, and those of one socket in order, as long as one at a time is on its way."""
    from quoracy.engines.embedded.disk._sync_thread import SyncOrder

    order, loop = SyncOrder(), asyncio.get_running_loop()
    synced: list[asyncio.Queue[OSError | None]] = [asyncio.Queue(), asyncio.Queue()]
    files = [os.open(tmp_path / f"{number}", os.O_RDWR | os.O_CREAT) for number in range(2)]
    syncs = [
        NativeSync(file, loop, told.put_nowait, order) for file, told in zip(files, synced, strict=True)
    ]
    rng = random.Random(11)
    waiting: dict[int, Reply] = {}
    expected = [b""] * len(many_ends)
    sent_whole = taken_back = 0

    def settle(socket_number: int) -> None:
        nonlocal sent_whole, taken_back
        reply = waiting.pop(socket_number)
        reply.take_back()
        assert reply.sent_bytes in (0, len(reply.data))
        sent_whole += reply.sent_bytes > 0
        taken_back += reply.sent_bytes == 0
        expected[socket_number] += reply.data[: reply.sent_bytes]

    for frame in range(3000):
        at = frame % 2
        if frame >= 2:
            assert await asyncio.wait_for(synced[at].get(), _SOON_S) is None
        for socket_number in list(waiting):
            if rng.random() < 0.5:
                settle(socket_number)
        replies = []
        for socket_number in rng.sample(range(len(many_ends)), rng.randrange(8)):
            if socket_number not in waiting:
                data = b"%d.%d," % (frame, socket_number)
                waiting[socket_number] = reply = Reply(many_ends[socket_number][0].fileno(), data)
                replies.append(reply)
        attached = replies.pop() if replies and rng.random() < 0.3 else None
        syncs[at].begin(b"data", 0, replies)
        if attached is not None:
            syncs[at].attach(attached)
        match rng.randrange(4):
            case 0:
                await asyncio.sleep(0)
            case 1:
                syncs[1 - at].catch_up()
            case 2 if waiting:
                settle(rng.choice(list(waiting)))
    for told in synced:
        assert await asyncio.wait_for(told.get(), _SOON_S) is None
    for socket_number in list(waiting):
        settle(socket_number)
    for sync, file in zip(syncs, files, strict=True):
        sync.close()
        os.close(file)
    assert [_received(theirs) for _, theirs in many_ends] == expected
    assert sent_whole
    assert taken_back


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    reading_end, writing_end = os.pipe()
    yield reading_end, writing_end
    os.close(reading_end)
    os.close(writing_end)
