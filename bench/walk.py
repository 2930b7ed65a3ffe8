"""The walk of a write through the source: which of our functions are called, and in which order.

    python -m bench.walk etcd          a put
    python -m bench.walk zookeeper     a create

One server in this process, on SQLite; one client in a thread, with one write at a time.  The calls on
the server's loop are recorded from the bytes of one request to those of the next, and the walk that was
made most often is printed, a line for each call.  Comprehensions are not counted.

Hot modules run from their source, since of compiled ones nothing is seen.  The sync thread in C is used
if it was built (`make compile`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import os
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import FrameType

_SOURCE = f"{Path(__file__).parent.parent / 'src' / 'quoracy'}{os.sep}"
_WRITES_COUNT = 200
# Between writes: the sync thread replies before the loop runs, and the walk of a write must be over
# when the next one arrives.
_PAUSE_S = 0.02

Walk = tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the calls that one write makes, in order.")
    parser.add_argument("face", choices=("etcd", "zookeeper"))
    # Imported first, or it would be left out with the compiled modules.
    with contextlib.suppress(ImportError):
        importlib.import_module("quoracy.engines.embedded.disk._sync_thread")
    from quoracy.compiled import use_source

    use_source()
    from quoracy.server.runtime import run

    walk = run(_walk(parser.parse_args().face))
    files = {call.split()[0] for call in walk}
    for number, call in enumerate(walk, 1):
        print(f"{number:3} {call}")
    print(f"{len(walk)} calls in {len(files)} files")


async def _walk(face: str) -> Walk:
    from quoracy.engines.opening import open_embedded
    from quoracy.faces.etcd.services.member import Identity
    from quoracy.faces.etcd.serving.server import serve_etcd
    from quoracy.faces.zookeeper.serving.server import serve_zookeeper

    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        store = await stack.enter_async_context(open_embedded(f"sqlite:{directory}/walk.db"))
        listener = stack.enter_context(
            socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        )
        listener.bind(("127.0.0.1", 0))
        write: Callable[[int], None]
        if face == "etcd":
            identity = Identity(cluster_id=1, member_id=1)
            await stack.enter_async_context(
                serve_etcd(store, listener, host="127.0.0.1", identity=identity)
            )
            write = _put
        else:
            await stack.enter_async_context(serve_zookeeper(store, listener))
            write = _create
        recorder = Recorder()
        sys.setprofile(recorder)
        try:
            await asyncio.to_thread(write, listener.getsockname()[1])
        finally:
            sys.setprofile(None)
    return Counter(recorder.walks).most_common(1)[0][0]


class Recorder:
    """A profile function that cuts what is called into walks."""

    def __init__(self) -> None:
        self.walks: list[Walk] = []
        self._calls: list[str] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        del argument
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(_SOURCE) or code.co_name[0] == "<":
            return
        if code.co_name == "data_received":
            self.walks.append(tuple(self._calls))
            self._calls = []
        self._calls.append(f"{code.co_filename.removeprefix(_SOURCE)} {code.co_qualname}")


def _put(port: int) -> None:
    asyncio.run(_puts(port))


async def _puts(port: int) -> None:
    from quoracy import open_store

    async with open_store(f"quoracy://127.0.0.1:{port}") as store:
        for number in range(_WRITES_COUNT):
            await store.put(b"walk/%d" % number, b"x")
            await asyncio.sleep(_PAUSE_S)


def _create(port: int) -> None:
    from bench.zookeeper_frames import Op, Session, create

    with Session.open(("127.0.0.1", port)) as session:
        for number in range(_WRITES_COUNT):
            session.calls([(Op.CREATE, create(b"/walk-%d" % number, b"x"))])
            time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main()
