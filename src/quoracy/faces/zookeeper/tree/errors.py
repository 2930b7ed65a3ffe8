"""The one way a request fails: with the code that ZooKeeper's clients know."""

from __future__ import annotations

from quoracy.wire.zookeeper.codes import Err

__all__ = ["ZkError"]


class ZkError(Exception):
    """The request is refused; nothing was changed.  `code` goes into the reply."""

    def __init__(self, code: Err) -> None:
        super().__init__(code.name)
        self.code = code
