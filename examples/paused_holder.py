"""A lock holder that slept through the end of its lock is refused by what it writes to.

    python examples/paused_holder.py

Two processes, alice and bob, want the same account, so they take a lock.  Alice gets it and is stopped
in the middle, as a long garbage collection, a suspended virtual machine or a closed laptop would stop
her.  Her session ends, bob gets the lock and writes.  Then alice goes on, exactly where she was: behind
the last check she could have made, before the write.

The account checks the fencing token in the transaction of the write, and so hers is refused.
"""
# ruff: noqa: T201 (it tells what happens)

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sqlite3
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import quoracy
from quoracy.fencing import SQLITE_TABLE, admit_in_sqlite

SESSION_TTL_S = 2.0
TAKES_S_MAX = 60.0


# ---- what each of the two does


async def use_account(name: str, url: str, account: Path) -> None:
    """Take the lock, say so, wait for a word, write: what alice and bob run."""
    async with quoracy.connect(url, session_ttl=SESSION_TTL_S, identity=name) as q:
        try:
            async with q.lock("account") as held:
                tell(f"{name} holds the lock, with token {held.token}")
                # A blocking read: nothing else of this process runs until the word comes, no keep-alive
                # and nothing that would notice the end of the session.
                amount = int(sys.stdin.readline())
                write(account, name, amount, held.token)
        except quoracy.LockLost:
            tell(f"{name} learns that the lock is lost")


def write(account: Path, name: str, amount: int, token: int) -> None:
    """Set the balance, unless the token is stale: one transaction checks and writes."""
    connection = sqlite3.connect(account)
    try:
        with connection:
            admit_in_sqlite(connection, "account", token)
            connection.execute("UPDATE account SET balance = ?, written_by = ?", (amount, name))
        tell(f"{name} writes {amount}")
    except quoracy.StaleToken as refused:
        tell(f"{name} is REFUSED: token {refused.token} is stale, {refused.highest} was seen already")
    finally:
        connection.close()


def tell(line: str) -> None:
    print(line, flush=True)


# ---- what happens to them


async def play(directory: Path) -> None:
    account = directory / "account.db"
    make_account(account)
    async with contextlib.AsyncExitStack() as running:
        url = await running.enter_async_context(server())
        alice = await running.enter_async_context(python(__file__, "alice", url, str(account)))
        await hear(alice)

        alice.send_signal(signal.SIGSTOP)
        tell("alice is stopped, for longer than her session lives")

        bob = await running.enter_async_context(python(__file__, "bob", url, str(account)))
        await hear(bob)
        await answer(bob, 250)
        await hear(bob)

        tell("alice goes on, and does not know")
        alice.send_signal(signal.SIGCONT)
        await answer(alice, 100)
        await hear(alice)
        await hear(alice)

        for process in (alice, bob):
            await process.wait()
    show_account(account)


def make_account(account: Path) -> None:
    with contextlib.closing(sqlite3.connect(account)) as connection, connection:
        connection.execute(SQLITE_TABLE)
        connection.execute("CREATE TABLE account (balance INTEGER, written_by TEXT)")
        connection.execute("INSERT INTO account VALUES (0, 'nobody')")


def show_account(account: Path) -> None:
    with contextlib.closing(sqlite3.connect(account)) as connection:
        ((balance, name),) = connection.execute("SELECT balance, written_by FROM account").fetchall()
    tell(f"the account has {balance}, written by {name}")


@contextlib.asynccontextmanager
async def server() -> AsyncIterator[str]:
    """A Quoracy server on a free port; its URL."""
    others_off = ("--listen-http", "off", "--listen-zookeeper", "off")
    serve = (
        "-m",
        "quoracy",
        "serve",
        "--engine",
        "memory:",
        "--listen-etcd",
        "127.0.0.1:0",
        *others_off,
    )
    async with python(*serve) as process:
        greeting = ""
        while not (found := re.search(r"etcd +(127\.0\.0\.1:\d+)", greeting)):
            greeting += await read_line(process)
        yield f"quoracy://{found[1]}"


@contextlib.asynccontextmanager
async def python(*arguments: str) -> AsyncIterator[Process]:
    """A Python process, ended with the block, also if it is stopped."""
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=PIPE, stdout=PIPE)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            process.kill()
        await process.communicate()


async def hear(process: Process) -> None:
    tell((await read_line(process)).rstrip())


async def read_line(process: Process) -> str:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError("a process ended too early; what it says is above")
    return line.decode()


async def answer(process: Process, amount: int) -> None:
    assert process.stdin is not None
    process.stdin.write(b"%d\n" % amount)
    await process.stdin.drain()


async def main() -> None:
    if sys.argv[1:]:
        name, url, account = sys.argv[1:]
        await use_account(name, url, Path(account))
        return
    with tempfile.TemporaryDirectory() as directory:
        async with asyncio.timeout(TAKES_S_MAX):
            await play(Path(directory))


if __name__ == "__main__":
    asyncio.run(main())
