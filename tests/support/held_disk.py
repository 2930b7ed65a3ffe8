"""A disk that takes nothing while it is held: commits are on their way for as long as a test likes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import pytest

from quoracy.engines.embedded.disk.file_sync import FileSync, FileSyncs, OnSynced
from quoracy.store.completion import Reply

__all__ = ["HeldDisk"]


class HeldDisk:
    """Of the stores that are opened from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("quoracy.engines.embedded.disk.writer.FileSyncs", self._syncs)
        self.is_held = False
        self.begun: list[_HeldSync] = []
        self.replies_count = 0  # that were handed over to be sent
        self._files: list[int] = []

    def _syncs(self, loop: asyncio.AbstractEventLoop) -> _HeldSyncs:
        return _HeldSyncs(self, FileSyncs(loop))

    def made(self, file: int) -> None:
        self._files.append(file)

    def hold(self) -> None:
        self.is_held = True

    def release(self, *, last_first: bool = False) -> None:
        """Replies leave in the order in which writes are begun: backwards, the loop sends them."""
        self.is_held = False
        begun, self.begun = self.begun, []
        for sync in reversed(begun) if last_first else begun:
            sync.go_on(sends_replies=not last_first)

    def break_down(self) -> None:
        """What it takes from now on fails."""
        unwritable = os.open(os.devnull, os.O_RDONLY)
        for file in self._files:
            os.dup2(unwritable, file)
        os.close(unwritable)


class _HeldSyncs:
    """Makes those of one store."""

    def __init__(self, disk: HeldDisk, syncs: FileSyncs) -> None:
        self._disk, self._syncs = disk, syncs
        self.sends_replies = True  # of what is held they are asked for, and sent where that is possible

    def make(self, file: int, on_synced: OnSynced) -> FileSync:
        self._disk.made(file)
        return _HeldSync(self._disk, self._syncs.make(file, on_synced))


class _HeldSync:
    """One of the disk's."""

    def __init__(self, disk: HeldDisk, sync: FileSync) -> None:
        self._disk, self._sync = disk, sync
        self._wish = (b"", 0)
        self.replies: list[Reply] = []  # of what is held
        self._attached: list[Reply] = []

    @property
    def reply(self) -> Reply | None:
        """The one there is, or none."""
        replies = [*self.replies, *self._attached]
        assert len(replies) <= 1
        return replies[0] if replies else None

    def begin(self, data: bytes, offset: int, replies: Sequence[Reply] = (), /) -> None:
        self._disk.replies_count += len(replies)
        if self._disk.is_held:
            self._wish, self.replies = (data, offset), list(replies)
            self._disk.begun.append(self)
        else:
            self._sync.begin(data, offset, replies)

    def expect(self) -> None:
        self._sync.expect()

    def attach(self, reply: Reply) -> None:
        self._disk.replies_count += 1
        if self in self._disk.begun:
            self._attached.append(reply)
        else:
            self._sync.attach(reply)

    def go_on(self, *, sends_replies: bool) -> None:
        replies, self.replies = self.replies, []
        attached, self._attached = self._attached, []
        self._sync.begin(*self._wish, [*replies, *attached] if sends_replies else ())

    def catch_up(self) -> None:
        self._sync.catch_up()

    def close(self) -> None:
        self._sync.close()
