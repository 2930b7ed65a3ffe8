"""The resource that holders write to: it refuses stale tokens, and keeps what it admitted, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from quoracy.errors import StaleToken
from quoracy.fencing import MemoryGate

__all__ = ["Resource", "ResourceClient", "serve_resource"]


class _Write(msgspec.Struct):
    trial: str
    token: int


@dataclass
class Resource:
    """What the resource saw."""

    gate: MemoryGate = field(default_factory=MemoryGate)
    admitted: list[tuple[str, int]] = field(default_factory=list)
    refused: list[tuple[str, int]] = field(default_factory=list)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                write = msgspec.json.decode(line, type=_Write)
                try:
                    await self.gate.admit(write.trial, write.token)
                except StaleToken:
                    self.refused.append((write.trial, write.token))
                    writer.write(b"stale\n")
                else:
                    self.admitted.append((write.trial, write.token))
                    writer.write(b"ok\n")
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # a process that was killed
        finally:
            writer.close()


@asynccontextmanager
async def serve_resource(path: Path) -> AsyncIterator[Resource]:
    resource = Resource()
    server = await asyncio.start_unix_server(resource.handle, path)
    async with server:
        yield resource


class ResourceClient:
    """The resource, for one process; one write at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._mutex = asyncio.Lock()

    @classmethod
    async def connect(cls, path: str) -> ResourceClient:
        return cls(*await asyncio.open_unix_connection(path))

    async def write(self, trial: str, token: int) -> bool:
        """Whether it was admitted."""
        # Shielded: the answer to a write that was given up must not be taken for the next one's.
        return await asyncio.shield(asyncio.ensure_future(self._write(trial, token)))

    async def _write(self, trial: str, token: int) -> bool:
        async with self._mutex:
            self._writer.write(msgspec.json.encode(_Write(trial, token)) + b"\n")
            return await self._reader.readline() == b"ok\n"
