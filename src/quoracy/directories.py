"""Directories on disk, for everything that makes files which must outlive a crash."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["sync_directory"]


def sync_directory(directory: Path) -> None:
    """Make a new file's name durable, not only its contents.  [etcd#22340]"""
    if os.name == "nt":
        return  # directories cannot be opened there; NTFS journals names itself
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
