"""Numbers to bytes, big-endian, for records that are made all the time: see `_packer.c`.

    >>> pack = Packer(">iq")
    >>> pack(1, 2)
    b'\\x00\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02'
    >>> pack(1, 2, b"tail")[12:]
    b'tail'

Where that was not compiled `struct` does the same.  What does not fit is a `struct.error` in both.
"""

from __future__ import annotations

import struct

__all__ = ["Packer"]

try:
    from quoracy.wire._packer import Packer
except ImportError:

    class Packer:  # type: ignore[no-redef]
        """Packs numbers in a format of struct's, made of > and B, i, I or q; bytes may follow them."""

        __slots__ = ("_count", "_pack")

        def __init__(self, format: str) -> None:
            self._count = len(format) - 1
            self._pack = struct.Struct(format).pack

        def __call__(self, *numbers: int | bytes) -> bytes:
            if len(numbers) <= self._count:
                return self._pack(*numbers)
            head: bytes = self._pack(*numbers[: self._count], *numbers[self._count + 1 :])
            tail = numbers[self._count]
            if not isinstance(tail, bytes):
                raise TypeError("what follows the numbers is not bytes")
            return head + tail
