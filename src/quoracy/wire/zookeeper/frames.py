"""A stream of bytes cut into frames: each is a 4-byte length and that many bytes.

Invariants
    * The frames do not depend on how the stream was cut into pieces.
    * A byte is copied a constant number of times, however small the pieces.
    * At most one frame of `max_bytes` and one piece are kept.

A length that is negative or over `max_bytes` ends the stream, with the same rule before and after the
connect request; 0 is a legal length (and then no legal request).  The four letter words that a client
may send instead of a connect request look like lengths that are far too large: whoever wants them looks
at the first four bytes before they come here.
"""

from __future__ import annotations

from quoracy.wire.zookeeper.jute import JuteError, int_at

__all__ = ["FrameLengthError", "FrameSplitter"]


class FrameLengthError(JuteError):
    """A frame announces a length that is refused.  `frames` are the whole ones that came before it."""

    def __init__(self, length: int, max_bytes: int, frames: list[bytes]) -> None:
        super().__init__(
            f"a frame announces {length:,} bytes; from 0 to {max_bytes:,} are allowed. "
            "Send less at a time, or raise jute.maxbuffer on both sides."
        )
        self.length, self.frames = length, frames


class FrameSplitter:
    """Takes what a connection received, gives the frames that are complete."""

    __slots__ = ("_max_bytes", "_needed", "_rest")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()
        self._needed = 4  # how much of the stream, from the start of the rest, before there is progress

    @property
    def rest_bytes(self) -> int:
        """How many bytes of an incomplete frame are kept."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes, without their lengths.

        Raises FrameLengthError, which carries the frames that came before, at a length that is refused;
        and again for whatever follows, as there is no finding the next frame.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return []
            data = bytes(self._rest)
            self._rest.clear()
        frames: list[bytes] = []
        start, size = 0, len(data)
        while size - start >= 4:
            length = int_at(data, start)
            if not 0 <= length <= self._max_bytes:
                # What is kept starts with the refused length, so any later piece is refused too.
                self._rest, self._needed = bytearray(data[start : start + 4]), 4
                raise FrameLengthError(length, self._max_bytes, frames)
            end = start + 4 + length
            if end > size:
                self._rest, self._needed = bytearray(data[start:]), 4 + length
                return frames
            frames.append(data[start + 4 : end])
            start = end
        if start < size:
            self._rest, self._needed = bytearray(data[start:]), 4
        return frames
