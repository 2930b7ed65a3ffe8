"""Frames in a stream of bytes: four bytes of length, then that much.

Invariants
    * No I/O.  How the bytes were cut into pieces on the way makes no difference.
    * A length over the limit is refused when it is read, before anything is gathered for it.
"""

from __future__ import annotations

from quoracy.errors import ProtocolError

__all__ = ["LENGTH_BYTES", "FrameReader", "frame"]

LENGTH_BYTES = 4


def frame(data: bytes) -> bytes:
    """
    >>> frame(b"abc")
    b'\\x00\\x00\\x00\\x03abc'
    """
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


class FrameReader:
    """Gathers frames.

    frame_bytes_max: of the frames from here on; may be changed at any time.

    >>> reader = FrameReader(100)
    >>> reader.feed(frame(b"one") + frame(b"two")[:5])
    >>> reader.next_frame(), reader.next_frame(), len(reader)
    (b'one', None, 5)
    """

    __slots__ = ("_gathered", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._gathered = bytearray()

    def __len__(self) -> int:
        """How many bytes wait here."""
        return len(self._gathered)

    def feed(self, data: bytes) -> None:
        self._gathered += data

    def next_frame(self) -> bytes | None:
        """The next one that is complete.  Raises `ProtocolError` if its length is over the limit."""
        if len(self._gathered) < LENGTH_BYTES:
            return None
        size = int.from_bytes(self._gathered[:LENGTH_BYTES], "big")
        if size > self.frame_bytes_max:
            raise ProtocolError(
                f"a frame of {size:,} bytes; at most {self.frame_bytes_max:,} are taken"
            )
        end = LENGTH_BYTES + size
        if len(self._gathered) < end:
            return None
        with memoryview(self._gathered) as view:
            data = bytes(view[LENGTH_BYTES:end])
        del self._gathered[:end]  # cheap: a bytearray moves its start, not its contents
        return data
