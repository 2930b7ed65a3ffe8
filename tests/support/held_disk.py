"""A disk that takes nothing while it is held: commits are on their way for as long as a test likes."""

from __future__ import annotations

import asyncio

import pytest

from quorate.engines.embedded.syncing import FileSync, OnSynced, file_sync
from quorate.store.replies import Reply

__all__ = ["HeldDisk"]


class HeldDisk:
    """Of the stores that are opened from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("quorate.engines.embedded.jobs.file_sync", self.file_sync)
        self.is_held = False
        self.begun: list[_HeldSync] = []

    def file_sync(self, file: int, loop: asyncio.AbstractEventLoop, on_synced: OnSynced) -> FileSync:
        return _HeldSync(self, file_sync(file, loop, on_synced))

    def hold(self) -> None:
        self.is_held = True

    def release(self, *, last_first: bool = False) -> None:
        self.is_held = False
        begun, self.begun = self.begun, []
        for sync in reversed(begun) if last_first else begun:
            sync.go_on()


class _HeldSync:
    """One of the disk's."""

    def __init__(self, disk: HeldDisk, sync: FileSync) -> None:
        self._disk, self._sync = disk, sync
        self._wish = (b"", 0)
        self.reply: Reply | None = None

    def begin(self, data: bytes, offset: int, /) -> None:
        if self._disk.is_held:
            self._wish = (data, offset)
            self._disk.begun.append(self)
        else:
            self._sync.begin(data, offset)

    def expect(self) -> None:
        self._sync.expect()

    def attach(self, reply: Reply) -> None:
        if self in self._disk.begun:
            self.reply = reply
        else:
            self._sync.attach(reply)

    def go_on(self) -> None:
        self._sync.begin(*self._wish)
        if self.reply is not None and not self.reply.is_over:
            self._sync.attach(self.reply)
        self.reply = None

    def catch_up(self) -> None:
        self._sync.catch_up()

    def close(self) -> None:
        self._sync.close()
