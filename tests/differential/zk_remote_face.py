"""A program: the ZooKeeper face on a store that is a server elsewhere, a real etcd for instance.

    python -m tests.differential.zk_remote_face PORT NAME=VALUE...

NAMEs are fields of ZooKeeperSettings.  It says on which port it listens, and runs until it is ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

import msgspec

from quoracy.faces.zookeeper.serving.server import serve_zookeeper
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.remote.store import open_remote
from quoracy.remote.urls import Address, Target


async def _serve(target: Target, settings: ZooKeeperSettings) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with open_remote(target) as store, serve_zookeeper(store, listener, settings=settings):
            sys.stdout.write(f"zookeeper  127.0.0.1:{listener.getsockname()[1]}\n")
            sys.stdout.flush()
            await ended.wait()


def main() -> None:
    port, *pairs = sys.argv[1:]
    target = Target((Address("127.0.0.1", int(port)),))
    fields = dict(pair.split("=", 1) for pair in pairs)
    fields["super_digest"] = os.environ["QUORACY_ZOOKEEPER_SUPER_DIGEST"]
    asyncio.run(_serve(target, msgspec.convert(fields, ZooKeeperSettings, strict=False)))


if __name__ == "__main__":
    main()
