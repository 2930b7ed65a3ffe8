"""A process that holds something by kazoo, says so, and then only waits to be killed or stopped.

Arguments: hosts with chroot, session timeout in seconds, what, path.  A line is printed once it holds,
and one for each state of its connection after that; it ends by itself when its standard input does.
"""

from __future__ import annotations

import sys
from typing import Any

from kazoo.client import KazooClient


def main(hosts: str, timeout_s: str, what: str, path: str) -> None:
    client = KazooClient(hosts, timeout=float(timeout_s))
    client.start(30)
    _hold(client, what, path)
    say(f"holds {client.client_id[0]}")
    client.add_listener(say)
    sys.stdin.read()
    client.stop()


def _hold(client: Any, what: str, path: str) -> None:
    match what:
        case "node":
            client.create(path, b"", ephemeral=True)
        case "lock":
            assert client.Lock(path, "killed").acquire()
        case "read lock":
            assert client.ReadLock(path, "killed").acquire()
        case "semaphore":
            assert client.Semaphore(path, "killed").acquire()
        case "party":
            client.Party(path, "killed").join()
        case "entry":
            assert client.LockingQueue(path).get(timeout=30) is not None
        case _:
            raise ValueError(what)


def say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
