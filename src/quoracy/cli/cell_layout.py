"""Where the nodes of a cell on this machine are: directories and ports, counted from a first one each.

The ports are part of what etcd remembers about a cluster, so a directory that is kept keeps them too.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from quoracy.errors import InvalidRequest, Unavailable

__all__ = ["HOST", "Layout", "Ports", "control_path", "find_layout"]

HOST = "127.0.0.1"

# Each kind of port counts up from here, out of the way of what a real server uses.
_FIRST = {"etcd": 12379, "zookeeper": 12181, "http": 17070, "client": 12481, "peer": 12581}
# If one of the ports is taken, all move on by this much.
_STEP = 10
_STEPS_MAX = 40
_SUN_PATH_MAX = 103  # macOS; Linux has 107


@dataclass(frozen=True, slots=True)
class Ports:
    """Of one node: its three faces, and its etcd member's two."""

    etcd: int
    zookeeper: int
    http: int
    client: int
    peer: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes, named n1, n2 and so on."""

    directory: Path
    nodes: tuple[Ports, ...]

    @property
    def names(self) -> list[str]:
        return [f"n{number}" for number in range(1, len(self.nodes) + 1)]

    @property
    def cell(self) -> str:
        """What `quoracy serve --cell` is told."""
        return ",".join(
            f"{name}={HOST}:{ports.peer}:{ports.client}"
            for name, ports in zip(self.names, self.nodes, strict=True)
        )

    def endpoints(self, kind: str) -> str:
        return ",".join(f"{HOST}:{getattr(ports, kind)}" for ports in self.nodes)


def find_layout(
    directory: Path, nodes_count: int, *, is_free: Callable[[int], bool] | None = None
) -> Layout:
    """The layout that the directory remembers, or a new one on ports that are free now.

    Raises `InvalidRequest` if the directory has a cell of another size.
    """
    file = directory / "cell.json"
    if file.exists():
        return _remembered(file, nodes_count)
    free = is_free or _is_free
    for step in range(_STEPS_MAX):
        offset = step * _STEP
        nodes = tuple(
            Ports(**{kind: first + offset + number for kind, first in _FIRST.items()})
            for number in range(nodes_count)
        )
        if all(free(port) for ports in nodes for port in asdict(ports).values()):
            file.write_text(json.dumps([asdict(ports) for ports in nodes]), encoding="utf-8")
            return Layout(directory, nodes)
    raise Unavailable("there are no free ports for a cell. Is there another cell to stop?")


def control_path(directory: Path | None, *, environ: Mapping[str, str] = os.environ) -> Path:
    """The socket by which a cell is told what to do: of this user's cell, or of a directory's."""
    if directory is not None:
        path = directory.absolute() / "control.sock"
    else:
        runtime = environ.get("XDG_RUNTIME_DIR")
        if runtime and Path(runtime).is_dir():
            path = Path(runtime) / "quoracy-cell.sock"
        else:
            user = os.getuid() if sys.platform != "win32" else 0
            path = Path(tempfile.gettempdir()) / f"quoracy-{user}" / "cell.sock"
    if len(os.fsencode(path)) > _SUN_PATH_MAX:
        raise InvalidRequest(f"{path} is too long for a socket's name. Choose a shorter --dir.")
    return path


def _remembered(file: Path, nodes_count: int) -> Layout:
    try:
        nodes = tuple(Ports(**ports) for ports in json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise InvalidRequest(f"{file} is not what `quoracy cell up` writes: {error}.") from error
    if len(nodes) != nodes_count:
        raise InvalidRequest(
            f"the cell in {file.parent} has {len(nodes)} nodes. Give --nodes {len(nodes)}, or another "
            "--dir."
        )
    return Layout(file.parent, nodes)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
