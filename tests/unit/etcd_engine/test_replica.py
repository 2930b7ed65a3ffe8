"""A replica that is told a store's changes answers as that store does, from where it began."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.engines.embedded.memory.leases import LeaseTable
from quoracy.engines.embedded.memory.state import State
from quoracy.engines.etcd import replica as replica_module
from quoracy.engines.etcd.replica import Replica, Waiter
from quoracy.errors import Compacted, Unavailable
from quoracy.store.model import Delete, KeyRange, KeyValue, Put, Range, Txn
from quoracy.store.rules import Limits

_KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
_WRITES = st.one_of(
    st.builds(Put, _KEYS, st.binary(max_size=2)),
    st.builds(Delete, _KEYS),
    st.builds(lambda: Txn((), (Put(b"a", b"x"), Delete(b"b"), Put(b"c", b"y")))),
    st.builds(lambda: Delete(KeyRange(b"b", None))),
)


@given(st.lists(_WRITES, max_size=8), st.lists(_WRITES, max_size=20))
def test_replica_answers_as_the_store_does(
    before: list[Put | Delete | Txn], after: list[Put | Delete | Txn]
) -> None:
    state = State(LeaseTable(now=0.0))
    for op in before:
        state.execute(op)
    began = state.revision
    replica = Replica(Limits())
    replica.begin(state.page(None, 100, at=began), revision=began)
    for op in after:
        state.execute(op)
    for revision in range(began + 1, state.revision + 1):
        replica.apply(revision, state.changes(revision))
    assert replica.revision == state.revision
    for at in range(began, state.revision + 1):
        asked = Range(KeyRange.everything(), at=at)
        newest = state.revision
        assert replica.state.range(asked, newest=newest) == state.range(asked, newest=newest)
    for revision in range(replica.known_from, state.revision + 1):
        assert replica.state.changes(revision) == state.changes(revision)
        for kv in state.changes(revision):
            assert replica.state.before(kv) == state.before(kv)


def _put(key: bytes, revision: int) -> KeyValue:
    return KeyValue(key, b"v", revision, revision, 1)


def test_revisions_of_others_are_passed_over() -> None:
    replica = Replica(Limits())
    replica.begin([], revision=5)
    replica.apply(9, (_put(b"a", 9),))
    replica.apply(9, (_put(b"b", 9),))  # told again, after a lost connection
    replica.apply(12, ())
    assert (replica.revision, replica.state.keys_count) == (12, 1)
    assert replica.state.range(Range(b"a", at=8), newest=12).count == 0
    assert [len(replica.state.changes(each)) for each in range(6, 13)] == [0, 0, 0, 1, 0, 0, 0]


class _Waiter(Waiter):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[BaseException | None] = []

    def ended(self, error: BaseException | None) -> None:
        self.heard.append(error)


def test_waits_end_in_turn() -> None:
    replica = Replica(Limits())
    replica.begin([], revision=1)
    first, second = _Waiter(), _Waiter()
    replica.wait(4, second)
    replica.wait(2, first)
    replica.apply(2, (_put(b"a", 2),))
    assert (first.heard, second.heard) == ([None], [])
    assert replica.is_awaited
    replica.apply(5, ())
    assert second.heard == [None]
    assert not replica.is_awaited


def test_waits_that_cannot_end_well_end_with_the_error() -> None:
    replica = Replica(Limits())
    replica.begin([], revision=1)
    waiter, error = _Waiter(), Unavailable("no more")
    replica.wait(2, waiter)
    replica.fail_waiters(error)
    replica.apply(2, (_put(b"a", 2),))
    assert waiter.heard == [error]


def test_a_wait_that_was_given_up_is_not_there() -> None:
    replica = Replica(Limits())
    replica.begin([], revision=1)
    waiter = _Waiter()
    replica.wait(3, waiter)
    waiter.is_over = True
    assert not replica.is_awaited
    replica.apply(3, ())
    assert waiter.heard == []


def test_history_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "KEPT_REVISIONS", 50)
    monkeypatch.setattr(replica_module, "_TRIM_REVISIONS", 16)
    replica = Replica(Limits())
    replica.begin([], revision=1)
    for revision in range(2, 1002):
        replica.apply(revision, (KeyValue(b"k", b"v%d" % revision, 2, revision, revision - 1),))
    state = replica.state
    assert state.range(Range(b"k", at=960), newest=1001).kvs[0].value == b"v960"
    assert replica.known_from >= 900
    with pytest.raises(Compacted):
        state.range(Range(b"k", at=500), newest=1001)
    assert state.history_bytes < 200 * 100


def test_history_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "KEPT_BYTES", 100_000)
    replica = Replica(Limits())
    replica.begin([], revision=1)
    for revision in range(2, 1002):
        replica.apply(revision, (KeyValue(b"k", b"v" * 1000, 2, revision, revision - 1),))
    assert replica.state.history_bytes < 300_000
