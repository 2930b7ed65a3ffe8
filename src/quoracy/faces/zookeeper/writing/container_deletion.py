"""The one write that no client asks for."""

from __future__ import annotations

import msgspec

__all__ = ["DeleteContainer"]


class DeleteContainer(msgspec.Struct, frozen=True, gc=False):
    """Remove a container or a TTL node that has served its time; asked for by the server itself."""

    path: bytes
