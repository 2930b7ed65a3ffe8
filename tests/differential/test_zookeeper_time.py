"""What happens by itself, in time: Quoracy ends sessions and removes nodes as ZooKeeper does.

Each server takes its own time; what is compared is what watchers hear of it, and what is left.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.differential.zk_asking import (
    EPHEMERAL,
    RECURSIVE,
    add_watch,
    ask,
    children,
    create,
    create_container,
    create_ttl,
    delete,
    exists,
    set_data,
)
from tests.differential.zk_lockstep import Lockstep
from tests.differential.zk_seen import Seen
from tests.differential.zk_sides import running_pair
from tests.differential.zk_steps import As, Connect, Hangup
from tests.differential.zk_transcript import transcript
from tests.support.zookeeper_server import zookeeper_missing

pytestmark = pytest.mark.skipif(zookeeper_missing() is not None, reason=str(zookeeper_missing()))

# Long enough that a busy machine does not end what is still being set up.
_SOON_MS = 1_000
_LATER_MS = 4_000
_LATE_MS = 60_000

_SETTINGS = {
    "tickTime": 100,
    "minSessionTimeout": 200,
    "maxSessionTimeout": _LATE_MS,
    "znode.container.checkIntervalMs": 100,
}


@pytest.fixture(scope="module")
def fast_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lockstep]:
    with running_pair(tmp_path_factory.mktemp("time"), settings=_SETTINGS) as lockstep:
        yield lockstep


@pytest.fixture
def pair(fast_pair: Lockstep) -> Lockstep:
    """Client 0 stays, whatever happens to the others."""
    fast_pair.begin()
    fast_pair.take_all([Connect(0, timeout_ms=_LATE_MS), Connect(2, timeout_ms=_LATE_MS)])
    return fast_pair


def test_a_session_that_says_nothing_ends_with_its_ephemerals(pair: Lockstep) -> None:
    pair.take_all(
        [
            ask(0, create("/a")),
            ask(0, create("/b")),
            Connect(1, timeout_ms=_SOON_MS),
            ask(1, create("/a/x", flags=EPHEMERAL), create("/b/x", flags=EPHEMERAL)),
            ask(0, children("/a", watch=True)),
            ask(0, exists("/b/x", watch=True)),
            ask(2, add_watch("/", RECURSIVE)),
            Hangup(1),
        ]
    )
    assert _lines(pair, 0, 2) == ["< children of '/a'", "< deleted '/b/x'"]
    assert _lines(pair, 2, 2) == ["< deleted '/a/x'", "< deleted '/b/x'"]
    # The parents were changed by one change: both say so, which the comparison sees in their zxids.
    pair.take_all([ask(0, exists("/a")), ask(0, exists("/b")), Connect(1, As.OWN)])


def test_a_session_lives_as_long_as_it_says_something(pair: Lockstep) -> None:
    """Each step is a sign of life of everyone; the end of others shows that time has passed."""
    pair.take_all(
        [
            ask(0, create("/mark")),
            Connect(1, timeout_ms=_LATER_MS),
            ask(1, create("/alive", flags=EPHEMERAL)),
        ]
    )
    for number in range(_LATER_MS // _SOON_MS + 1):
        pair.take_all(
            [
                Connect(3, timeout_ms=_SOON_MS),
                ask(3, create(f"/mark/{number}", flags=EPHEMERAL)),
                ask(0, exists(f"/mark/{number}", watch=True)),
                Hangup(3),
                ask(1, exists("/alive")),
            ]
        )
        assert _lines(pair, 0, 1) == [f"< deleted '/mark/{number}'"]
        pair.take(ask(1, exists("/alive")))


def test_an_empty_container_is_removed_if_it_was_used(pair: Lockstep) -> None:
    pair.take_all(
        [
            ask(0, create_container("/unused")),
            ask(0, create_container("/used")),
            ask(0, create("/used/a")),
            ask(0, exists("/used", watch=True)),
        ]
    )
    # A server may look for empty containers at the very moment in which this one becomes empty.
    told = pair.ask_and_wait(0, delete("/used/a"), 1)
    assert _text(told)[-1:] == ["< deleted '/used'"]
    pair.take_all([ask(0, exists("/used")), ask(0, exists("/unused")), ask(0, children("/"))])


def test_a_ttl_node_is_removed_when_it_is_old_and_empty(pair: Lockstep) -> None:
    pair.take_all(
        [
            ask(0, create_ttl("/parent", _SOON_MS)),
            ask(0, create("/parent/a")),
            ask(0, create_ttl("/old", _SOON_MS)),
            ask(0, create_ttl("/young", 3_600_000)),
            ask(0, exists("/old", watch=True)),
            ask(0, exists("/parent", watch=True)),
            ask(0, set_data("/young", b"x")),
        ]
    )
    assert _lines(pair, 0, 1) == ["< deleted '/old'"]
    pair.take_all([ask(0, exists("/parent")), ask(0, exists("/young")), ask(0, delete("/parent/a"))])
    assert _lines(pair, 0, 1) == ["< deleted '/parent'"]


def _lines(pair: Lockstep, client: int, count: int) -> list[str]:
    return _text(pair.wait_for_events(client, count))


def _text(told: list[Seen]) -> list[str]:
    return [line.removeprefix("0 ") for line in transcript([(0, one) for one in told]).splitlines()]
