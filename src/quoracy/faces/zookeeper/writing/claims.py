"""Who cannot be prepared before others have landed, and what nobody younger may have until then.

Without claims, a write that has to wait could be overtaken for ever by those that need not.
"""

from __future__ import annotations

from quoracy.faces.zookeeper.writing.drafts import Draft
from quoracy.faces.zookeeper.writing.session_queue import Outcome, Write

__all__ = ["Claims"]


class Claims:
    """Of all writes of one replica."""

    __slots__ = ("by_path",)

    def __init__(self) -> None:
        self.by_path: dict[bytes, Write] = {}  # who cannot be prepared yet, and is next

    def wait(self, write: Write, draft: Draft, refusal: Outcome | None) -> None:
        """For all that is in flight and that the draft was made upon."""
        write.refusal = refusal
        for other in draft.depends:
            assert isinstance(other, Write)
            _wait_for(write, other)
        if refusal is None:
            write.claims = tuple(draft.paths)
            for path in write.claims:
                self.by_path.setdefault(path, write)

    def may_go_on(self, write: Write, draft: Draft) -> bool:
        """Not if somebody older waits for one of the znodes."""
        for path in draft.paths:
            other = self.by_path.get(path)
            if other is not None and other.number < write.number:
                _wait_for(write, other)
        return not write.waits_for

    def drop(self, write: Write) -> None:
        for path in write.claims:
            if self.by_path.get(path) is write:
                del self.by_path[path]
        write.claims = ()


def _wait_for(write: Write, other: Write) -> None:
    if write.waits_for is None:
        write.waits_for = set()
    if other not in write.waits_for:
        write.waits_for.add(other)
        if other.dependents is None:
            other.dependents = []
        other.dependents.append(write)
