"""The control socket of a running cell: JSON lines; only its user can open it.

`{"do": "kill", "node": 2, "only": "member"}` is answered with `{"said": "..."}` or `{"error": "..."}`;
`{"do": "status"}` with what the table shows.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from quoracy.errors import InvalidRequest, QuoracyError, Unavailable

__all__ = ["ask", "control_path", "listening"]


Request = dict[str, Any]
Handler = Callable[[Request], Awaitable[Request]]

_LINE_BYTES_MAX = 64 * 1024
_REQUEST_S_MAX = 5.0
_ANSWER_S_MAX = 60.0
_SUN_PATH_MAX = 103  # macOS; Linux has 107


@asynccontextmanager
async def listening(path: Path, handle: Handler) -> AsyncIterator[None]:
    """Carry out requests at `path`.  Raises `Unavailable` if another cell listens there."""
    made = _claim(path)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_S_MAX):
                line = await reader.readline()
            writer.write(json.dumps(await _carry_out(line, handle)).encode() + b"\n")
            await writer.drain()
        except (OSError, TimeoutError, ValueError):
            return  # the peer is gone, or sent something else
        finally:
            writer.close()

    server = await asyncio.start_unix_server(serve, path, limit=_LINE_BYTES_MAX)
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()
        _release(path, made)


def ask(path: Path, request: Request) -> Request:
    """Have a running cell carry out a request; raises `Unavailable` if there is none."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_S_MAX)
        try:
            connection.connect(str(path))
        except OSError as error:
            raise Unavailable(
                f"no cell is up here ({path}). `quoracy cell up` starts one; one with a directory of "
                "its own is found with --dir."
            ) from error
        connection.sendall(json.dumps(request).encode() + b"\n")
        line = connection.makefile("rb").readline()
    if not line:
        raise Unavailable("the cell went away before it answered.")
    answer = json.loads(line)
    assert isinstance(answer, dict)
    if "error" in answer:
        raise InvalidRequest(str(answer["error"]))
    return answer


def control_path(directory: Path | None, *, environ: Mapping[str, str] = os.environ) -> Path:
    """The socket of this user's cell, or of the cell in a directory."""
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


async def _carry_out(line: bytes, handle: Handler) -> Request:
    try:
        request = json.loads(line)
        if not isinstance(request, dict):
            raise InvalidRequest("a request is a JSON object.")
        return await handle(request)
    except (QuoracyError, ValueError) as error:
        return {"error": str(error)}


def _claim(path: Path) -> bool:
    """Prepare the place of the socket; whether its directory had to be made."""
    directory = path.parent
    made = not directory.exists()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.stat()
    # Anybody who may write there may connect, or could have put a socket there first.
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise Unavailable(
            f"others than you can write to {directory}. Remove it, or choose a --dir of your own."
        )
    if path.exists():
        if _is_alive(path):
            raise Unavailable(
                f"a cell is up already ({path}). `quoracy cell status` shows it; --dir makes another."
            )
        path.unlink()
    return made


def _release(path: Path, made: bool) -> None:
    path.unlink(missing_ok=True)
    if made and not any(path.parent.iterdir()):
        path.parent.rmdir()


def _is_alive(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
