"""What really happened: etcd's own history, read from a member by its JSON gateway, by no code of ours.

History that is about to be thrown away, by a compaction that a schedule asks for, is read first, so
that the truth goes back to the first revision in any case.

Invariants
    * Revisions grow by one: nobody but the cell writes to this etcd, and etcd leaves none out.
    * Keys are those that clients of the cell know: without the prefix that the engine puts before them.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.cells.cell import Cell, Host
from tests.checkers.watching import Batch, Change

__all__ = ["PREFIX", "Truth"]

PREFIX = b"/quoracy/"
_ANSWER_S_MAX = 10.0


class Truth:
    """All that was changed, up to where it was read."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._prefix = b"" if cell.setup.plain else PREFIX
        self.batches: list[Batch] = []
        self.revision = 1
        self.compacted = 1  # etcd was asked to throw away what is before

    async def read_on(self) -> int:
        """Up to now; the revision that was the newest.  Raises LookupError if no member answers."""
        for host in self._cell.hosts.values():
            try:
                await asyncio.to_thread(self._read_on, host)
            except (OSError, http.client.HTTPException, KeyError):
                continue  # down, stopped or cut off; or it says so, and that is no answer
            return self.revision
        raise LookupError("no member of etcd answers")

    async def compact(self) -> None:
        """Throw away all history up to now, having read it."""
        revision = await self.read_on()
        if revision > self.compacted:
            self.compacted = revision  # also if the answer is lost
            await self._cell.etcdctl("compact", str(revision))

    def values(self) -> dict[str, list[tuple[int, bytes | None]]]:
        """By key: from which revision on it had which value."""
        values: dict[str, list[tuple[int, bytes | None]]] = {}
        for revision, changes in self.batches:
            for change in changes:
                _, key, value = change
                values.setdefault(key, []).append((revision, value))
        return values

    def _read_on(self, host: Host) -> None:
        newest = self._newest(host)
        if newest <= self.revision:
            return
        for revision, events in self._history(host, self.revision + 1):
            # One message may have several revisions, in order; a revision is never torn.
            assert revision > self.revision, f"etcd told of {revision} after {self.revision}"
            assert revision == self.revision + 1, f"etcd left out what is before {revision}"
            self.revision = revision
            changes = tuple(self._change(event) for event in events)
            self.batches.append(Batch(revision, tuple(c for c in changes if c is not None)))
            if revision >= newest:
                return

    def _history(self, host: Host, start: int) -> Iterator[tuple[int, list[Any]]]:
        everything = base64.b64encode(b"\0").decode()
        create = {"key": everything, "range_end": everything, "start_revision": start}
        connection = _connect(host)
        try:
            connection.request("POST", "/v3/watch", json.dumps({"create_request": create}))
            stream = connection.getresponse()
            while True:
                line = stream.readline()
                assert line, "etcd ended a watch"
                result = json.loads(line)["result"]
                assert "compact_revision" not in result, f"history is gone: {result}"
                yield from _by_revision(result.get("events", []))
        finally:
            connection.close()

    def _newest(self, host: Host) -> int:
        """By a linearizable read, so that this member has all of it."""
        connection = _connect(host)
        try:
            key = base64.b64encode(b"\0").decode()
            connection.request("POST", "/v3/kv/range", json.dumps({"key": key}))
            return int(json.loads(connection.getresponse().read())["header"]["revision"])
        finally:
            connection.close()

    def _change(self, event: Mapping[str, Any]) -> Change | None:
        kv = event["kv"]
        key = base64.b64decode(kv["key"])
        if not key.startswith(self._prefix) or key == self._prefix:
            return None
        name = key[len(self._prefix) :].decode("latin-1")
        if event.get("type") == "DELETE":
            return Change("delete", name)
        return Change("put", name, base64.b64decode(kv.get("value", "")))


def _connect(host: Host) -> http.client.HTTPConnection:
    address = host.member_address
    return http.client.HTTPConnection(address.host, address.port, timeout=_ANSWER_S_MAX)


def _by_revision(events: list[Any]) -> Iterator[tuple[int, list[Any]]]:
    revision = 0
    together: list[Any] = []
    for event in events:
        of_event = int(event["kv"]["mod_revision"])
        if together and of_event != revision:
            yield revision, together
            together = []
        revision = of_event
        together.append(event)
    if together:
        yield revision, together
