"""Frames do not depend on how the stream was cut, and a length that is refused ends it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.wire.zookeeper.jute import FrameLengthError, FrameSplitter, JuteError

from .jute_bytes import buf, i32

MAX = 1_000
FRAMES = [b"", b"a", b"", b"bcd", b"\0\0\0\1", b"x" * 30, b"\xff" * 4]
STREAM = b"".join(map(buf, FRAMES))


def split(pieces: list[bytes]) -> list[bytes]:
    splitter = FrameSplitter(MAX)
    return [frame for piece in pieces for frame in splitter.feed(piece)]


def test_whole_stream_at_once() -> None:
    assert split([STREAM]) == FRAMES


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
def test_stream_in_small_pieces(size: int) -> None:
    assert split([STREAM[at : at + size] for at in range(0, len(STREAM), size)]) == FRAMES


def test_stream_split_at_every_pair_of_positions() -> None:
    for first in range(len(STREAM) + 1):
        for second in range(first, len(STREAM) + 1):
            assert split([STREAM[:first], STREAM[first:second], STREAM[second:]]) == FRAMES


@given(st.lists(st.binary(max_size=40), max_size=10), st.data())
def test_frames_do_not_depend_on_the_pieces(frames: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(buf, frames))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert split(pieces) == frames


@given(st.lists(st.binary(max_size=40), max_size=4), st.binary(max_size=50))
def test_incomplete_frame_is_kept(frames: list[bytes], tail: bytes) -> None:
    splitter = FrameSplitter(MAX)
    stream = b"".join(map(buf, frames))
    assert splitter.feed(stream + i32(60) + tail) == frames
    assert splitter.rest_bytes == 4 + len(tail)
    assert splitter.feed(bytes(60 - len(tail))) == [tail + bytes(60 - len(tail))]
    assert splitter.rest_bytes == 0


def test_length_may_be_zero_and_the_limit_itself() -> None:
    assert split([i32(0), i32(MAX), b"x" * MAX]) == [b"", b"x" * MAX]


@pytest.mark.parametrize("length", [-1, -(2**31), MAX + 1, 2**31 - 1, int.from_bytes(b"ruok", "big")])
def test_length_out_of_bounds_is_refused_at_once_and_for_good(length: int) -> None:
    splitter = FrameSplitter(MAX)
    assert splitter.feed(i32(length)[:3]) == []
    with pytest.raises(JuteError, match="allowed"):
        splitter.feed(i32(length)[3:])
    for later in (b"", buf(b"fine"), bytes(5_000)):
        with pytest.raises(FrameLengthError) as refused:
            splitter.feed(later)
        assert refused.value.frames == []
    assert splitter.rest_bytes <= 4 + 5_000


def test_frames_before_a_refused_length_are_not_lost() -> None:
    with pytest.raises(FrameLengthError) as refused:
        FrameSplitter(MAX).feed(STREAM + i32(-1) + buf(b"never"))
    assert refused.value.frames == FRAMES
    assert refused.value.length == -1


def test_incomplete_frame_grows_in_place() -> None:
    frame = bytes(100_000)
    stream = buf(frame)
    splitter = FrameSplitter(len(frame))
    assert splitter.feed(stream[:5]) == []
    kept = splitter._rest
    for at in range(5, len(stream) - 5, 50):
        assert splitter.feed(stream[at : at + 50][: len(stream) - 5 - at]) == []
        assert splitter._rest is kept  # nothing was copied but the piece
    assert splitter.feed(stream[-5:]) == [frame]
