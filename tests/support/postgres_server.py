"""A real PostgreSQL in a directory of its own, reached by a Unix socket only."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

__all__ = ["running_postgres"]

_START_S_MAX = 30.0
_STOP_S_MAX = 10.0


@contextlib.contextmanager
def running_postgres() -> Iterator[str]:
    """A server with an empty database; where it is, as `psycopg.connect` takes it."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    user = _unprivileged_user()
    # Not in tmp_path: the path of a Unix socket has 107 bytes, and root's directories keep others out.
    directory = Path(tempfile.mkdtemp(prefix="quoracy-postgres-"))
    try:
        if user is not None:
            os.chown(directory, user.pw_uid, user.pw_gid)
        environment = {**os.environ, "LC_ALL": "C"}
        data = directory / "data"
        subprocess.run(
            [
                programs / "initdb",
                "-D",
                data,
                "-U",
                "quoracy",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-sync",
            ],
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            cwd=directory,
            env=environment,
            user=None if user is None else user.pw_uid,
            group=None if user is None else user.pw_gid,
            extra_groups=None if user is None else [],
        )
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                # Only processes end here, not machines, so nothing needs to be on the disk.
                [programs / "postgres", "-D", data, "-k", directory, "-h", "", "-F"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env=environment,
                user=None if user is None else user.pw_uid,
                group=None if user is None else user.pw_gid,
                extra_groups=None if user is None else [],
            )
        try:
            where = f"host={directory} user=quoracy dbname=postgres"
            _wait_ready(where, process, directory / "log")
            yield where
        finally:
            process.send_signal(signal.SIGQUIT)  # its immediate shutdown: no checkpoint, no waiting
            process.wait(_STOP_S_MAX)
    finally:
        shutil.rmtree(directory)


def _programs() -> Path | None:
    """Where initdb and postgres are."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for directory in (*map(Path, os.get_exec_path()), *debian):
        if (directory / "initdb").exists() and (directory / "postgres").exists():
            return directory
    return None


def _unprivileged_user() -> pwd.struct_passwd | None:
    """Who is to run it: PostgreSQL refuses to run as root.  None means ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    pytest.skip("PostgreSQL refuses to run as root, and there is no other user here")


def _wait_ready(where: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S_MAX
    while True:
        try:
            psycopg.connect(where, connect_timeout=2).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                text = log.read_text("utf-8", "replace")
                raise RuntimeError(
                    f"postgres did not start; its log ends with\n{text[-2000:]}"
                ) from None
            time.sleep(0.02)  # a poll with a deadline
