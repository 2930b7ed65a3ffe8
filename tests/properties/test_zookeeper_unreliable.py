"""Writes through a store that is slow, refuses, and loses requests and answers.

What was acknowledged happened, once, and with that zxid; what was refused did not happen; what nobody
knows happened once or not at all.  What a session wrote happened in the order in which it asked, and
nothing that it asked for behind a write that came to nothing happened at all.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.faces.zookeeper.tree import layout
from quoracy.faces.zookeeper.writing.in_flight import Outcome
from quoracy.store.api import Store
from quoracy.wire.zookeeper.requests import Delete, Multi, SetData
from tests.properties.zookeeper_requests import examples
from tests.support.zookeeper_core import (
    Client,
    Ensemble,
    Question,
    assert_idle,
    assert_same_tree,
    create,
    ensemble,
    loaded_tree,
    run,
)
from tests.support.zookeeper_model import Request
from tests.support.zookeeper_stores import Fate, Unreliable

_SESSIONS = 3

# What a session does next: put something in the queue, set what is its own, set what is everybody's, a
# bit of everything at once, something that is refused, or wait for its answers.
_Kinds: TypeAlias = list[str]
_kinds = st.lists(
    st.sampled_from(["queue", "queue", "own", "shared", "multi", "large", "refused", "await"]),
    max_size=15,
)
_fates = st.lists(st.sampled_from([Fate.FINE, Fate.FINE, *Fate]), max_size=25)

_ways: dict[str, tuple[int, bool]] = {"one, in order": (1, True), "two, in any order": (2, False)}


class Written(NamedTuple):
    """A write with a tag of its own, on one of the connections its session had."""

    tag: bytes
    question: Question
    connection: int

    @property
    def is_lost(self) -> bool:
        return self.question.is_answered and self.question.outcome is None


def _request(kind: str, own: bytes, tag: bytes) -> Request:
    match kind:
        case "queue":
            return create(b"/q/n-", tag, flags=2)
        case "own":
            return SetData(own, tag, -1)
        case "shared":
            return SetData(b"/shared", tag, -1)
        case "large":
            return create(b"/q/" + tag.replace(b" ", b"-"), tag + b" " + b"x" * 5000)
        case "multi":
            return Multi((create(b"/q/m-", tag, flags=2), SetData(own, b"too", -1)))
        case _:
            return Delete(b"/nobody", -1)


async def _live(client: Client, kinds: _Kinds, own: bytes) -> list[Written]:
    """One session: it asks without waiting, and goes on after its connection was lost."""
    written: list[Written] = []
    connection = 0
    answers: list[asyncio.Future[Outcome | None]] = []
    for number, kind in enumerate(kinds):
        if kind == "await":
            await asyncio.gather(*answers)
            continue
        tag = b"%d %d" % (client.session_id, number)
        if any(w.connection == connection and w.is_lost for w in written):
            connection += 1
        at = len(client.history.questions)
        answers.append(client.submit(_request(kind, own, tag)))
        written.append(Written(tag, client.history.questions[at], connection))
        if number % 3 == 2:
            await asyncio.sleep(0)
    await asyncio.gather(*answers)
    return written


async def _happened(store: Store) -> dict[bytes, list[int]]:
    """For each tag, the revisions in which it was written."""
    newest = (await store.range(b"\0", count_only=True)).revision
    revisions: dict[bytes, list[int]] = {}
    async with store.watch(layout.EVERYTHING, after=1) as stream:
        stream.request_progress()
        async for batch in stream:
            for event in batch.events:
                kv = event.kv
                if kv.key[layout.KIND_AT] == layout.NODE_KIND and kv.version:
                    tag = b" ".join((layout.decode_node(kv.value)[1] or b"").split()[:2])
                    revisions.setdefault(tag, []).append(kv.mod_revision)
            if batch.revision >= newest:
                return revisions
    raise AssertionError("a watch never ends")


def _judge(written: list[Written], happened: dict[bytes, list[int]]) -> None:
    last = 0
    for index, each in enumerate(written):
        revisions = happened.get(each.tag, [])
        assert len(revisions) <= 1, f"{each} happened {len(revisions)} times"
        outcome = each.question.outcome
        if outcome is not None:
            assert revisions == ([] if outcome.err else [outcome.zxid]), each
        if revisions:
            assert revisions[0] > last, f"{each} happened before its turn"
            last = revisions[0]
            for before in written[:index]:
                if before.is_lost and before.connection == each.connection:
                    assert before.tag in happened, f"{each} happened without {before}"


@pytest.mark.parametrize("way", _ways)
@given(fates=_fates, lives=st.lists(_kinds, min_size=1, max_size=_SESSIONS))
@examples(120)
def test_nothing_is_lost_nothing_happens_twice(
    way: str, fates: list[Fate], lives: list[_Kinds]
) -> None:
    async def example() -> None:
        async with ensemble() as it:
            count, order = _ways[way]
            gates = [Unreliable(it.store, [], order=order) for _ in range(count)]
            for gate in gates:
                await it.start(store=gate)
            clients = await _prepare(it, len(lives))
            for index, gate in enumerate(gates):
                gate.fates[:] = fates[index::count]
            stories = await asyncio.gather(
                *[
                    _live(client, kinds, b"/own-%d" % index)
                    for index, (client, kinds) in enumerate(zip(clients, lives, strict=True))
                ]
            )
            await it.settle()
            happened = await _happened(it.store)
            for story in stories:
                _judge(story, happened)
            for replica in it.replicas:
                assert_same_tree(replica.tree, await loaded_tree(it.store))
            assert_idle(it.replicas)

    run(example())


async def _prepare(it: Ensemble, count: int) -> list[Client]:
    clients = [await it.session(it.replicas[index % len(it.replicas)]) for index in range(count)]
    for path in (b"/q", b"/shared", *(b"/own-%d" % index for index in range(count))):
        await clients[0].ask(create(path))
    await it.settle()
    return clients


@given(fates=_fates, sessions=st.integers(2, 4), each=st.integers(1, 6))
@examples(40)
def test_a_counter_loses_no_update(fates: list[Fate], sessions: int, each: int) -> None:
    """Read, then set if nobody did meanwhile: every value is the one before it and one."""

    async def count_up(client: Client, path: bytes) -> None:
        done = 0
        while done < each:
            node = client.replica.tree.nodes[path]
            value = b"%d" % (int(node.data or b"0") + 1)
            outcome = await client.ask(SetData(path, value, node.version))
            done += outcome is not None and not outcome.err

    async def example() -> None:
        async with ensemble() as it:
            gates = [Unreliable(it.store, [], order=False) for _ in range(2)]
            for gate in gates:
                await it.start(store=gate)
            clients = [await it.session(it.replicas[index % 2]) for index in range(sessions)]
            await clients[0].ask(create(b"/counter", b"0"))
            await it.settle()
            for index, gate in enumerate(gates):
                gate.fates[:] = fates[index::2]
            await asyncio.gather(*[count_up(client, b"/counter") for client in clients])
            await it.settle()
            made = sorted(
                (revision, int(tag))
                for tag, revisions in (await _happened(it.store)).items()
                for revision in revisions
                if tag.isdigit()
            )
            values = [value for _, value in made]
            assert values == list(range(len(values)))
            assert len(values) > sessions * each

    run(example())
