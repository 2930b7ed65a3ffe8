"""The comparison itself: two real ZooKeepers agree, and one that is made to lie is found out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.differential.zk_connection import Tamper
from tests.differential.zk_generator import StepMaker
from tests.differential.zk_jute import int32, int64
from tests.differential.zk_lockstep import Lockstep
from tests.differential.zk_shrink import shrunk
from tests.differential.zk_sides import running_real_pair
from tests.faults.scale import LONG, rounds
from tests.support.zookeeper_server import zookeeper_missing

pytestmark = pytest.mark.skipif(zookeeper_missing() is not None, reason=str(zookeeper_missing()))

_STEPS = 120


@pytest.fixture(scope="module")
def real_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lockstep]:
    with running_real_pair(tmp_path_factory.mktemp("zookeepers")) as lockstep:
        yield lockstep


@pytest.mark.faults
@pytest.mark.timeout(3_600 if LONG else 120)
def test_two_real_servers_agree(real_pair: Lockstep) -> None:
    first = random.SystemRandom().randrange(2**32) if LONG else 0
    for seed in range(first, first + rounds(3, 150)):
        real_pair.begin()
        try:
            real_pair.take_all(StepMaker(random.Random(seed)).sequence(_STEPS))
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise


# -- lies ------------------------------------------------------------------------------------------

_HEADER = 16


def _xid(frame: bytes) -> int:
    return int.from_bytes(frame[:4], "big", signed=True)


def _err(frame: bytes) -> int:
    return int.from_bytes(frame[12:16], "big", signed=True)


def _is_reply(frame: bytes) -> bool:
    """Not an event, not the answer to a fence or to the request to connect."""
    return len(frame) >= _HEADER and 0 < _xid(frame) < 1 << 20 and frame[:4] != bytes(4)


def _another_error(frame: bytes) -> bytes:
    if _is_reply(frame) and _err(frame) == -101:
        return frame[:12] + int32(-102) + frame[_HEADER:]
    return frame


def _another_xid(frame: bytes) -> bytes:
    return int32(_xid(frame) + 1) + frame[4:] if _is_reply(frame) else frame


def _a_body_one_byte_longer(frame: bytes) -> bytes:
    return frame + b"\0" if _is_reply(frame) and len(frame) > _HEADER else frame


def _one_version_more(frame: bytes) -> bytes:
    """In a reply that is nothing but a Stat: setData, exists, setACL."""
    if _is_reply(frame) and len(frame) == _HEADER + 68:
        at = _HEADER + 32
        version = int.from_bytes(frame[at : at + 4], "big", signed=True) + 1
        return frame[:at] + int32(version) + frame[at + 4 :]
    return frame


def _an_old_zxid(frame: bytes) -> bytes:
    return frame[:4] + int64(1) + frame[12:] if _is_reply(frame) and _err(frame) == 0 else frame


def _a_stat_of_an_older_change(frame: bytes) -> bytes:
    """The mzxid of a Stat becomes its czxid."""
    if _is_reply(frame) and len(frame) == _HEADER + 68:
        czxid = frame[_HEADER : _HEADER + 8]
        return frame[: _HEADER + 8] + czxid + frame[_HEADER + 16 :]
    return frame


def _no_time(frame: bytes) -> bytes:
    if _is_reply(frame) and len(frame) == _HEADER + 68:
        return frame[: _HEADER + 16] + int64(0) + frame[_HEADER + 24 :]
    return frame


def _no_events(frame: bytes) -> bytes | None:
    return None if _xid(frame) == -1 else frame


def _another_kind_of_event(frame: bytes) -> bytes:
    if _xid(frame) == -1 and frame[_HEADER : _HEADER + 4] == int32(1):
        return frame[:_HEADER] + int32(3) + frame[_HEADER + 4 :]
    return frame


class _LateEvents:
    """Each event comes after the next frame instead of before it."""

    __name__ = "late events"

    def __init__(self) -> None:
        self._held: bytes | None = None

    def __call__(self, frame: bytes) -> bytes | None:
        if _xid(frame) == -1 and self._held is None:
            self._held = frame
            return None
        if self._held is not None:
            held, self._held = self._held, frame
            return held if _xid(frame) == -1 else frame
        return frame


def _a_longer_timeout(frame: bytes) -> bytes:
    """In the answer to the request to connect, which begins with the version of the protocol, 0."""
    if frame[:4] == bytes(4) and frame[4:8] in (int32(20_000), int32(30_000)):
        return frame[:4] + int32(40_000) + frame[8:]
    return frame


@pytest.mark.parametrize(
    "lie",
    [
        _another_error,
        _another_xid,
        _a_body_one_byte_longer,
        _one_version_more,
        _an_old_zxid,
        _a_stat_of_an_older_change,
        _no_time,
        _no_events,
        _another_kind_of_event,
        _LateEvents(),
        _a_longer_timeout,
    ],
    ids=lambda lie: lie.__name__.strip("_").replace("_", " "),
)
def test_a_server_that_lies_is_found_out(lie: Tamper, real_pair: Lockstep) -> None:
    lying = real_pair.lying(lie)
    with pytest.raises(AssertionError):
        for seed in range(5):
            lying.begin()
            lying.take_all(StepMaker(random.Random(seed)).sequence(_STEPS))
    lying.begin()
    real_pair.begin()


def test_a_difference_is_shrunk_to_the_steps_that_matter(real_pair: Lockstep) -> None:
    """Someone connects, watches and changes: a few steps of a hundred."""

    @contextmanager
    def pair() -> Iterator[Lockstep]:
        lying = real_pair.lying(_no_events)
        try:
            yield lying
        finally:
            lying.begin()

    steps = StepMaker(random.Random(0)).sequence(_STEPS)
    with pair() as lying, pytest.raises(AssertionError) as found:
        lying.take_all(steps)
    few, last = shrunk(found.value, steps, pair)
    assert last is not None
    assert 2 <= len(few) <= 6, list(map(str, few))
