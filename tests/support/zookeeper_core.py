"""The core of the ZooKeeper face without sockets: replicas on a store, and sessions that ask them."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager

from quoracy.clock import ManualClock
from quoracy.engines.opening import open_embedded
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree import layout
from quoracy.faces.zookeeper.tree.acl import OPEN_ACL, Identity
from quoracy.faces.zookeeper.tree.replica import Replica
from quoracy.faces.zookeeper.tree.watches import WatchKind
from quoracy.faces.zookeeper.tree.znodes import Node, Tree
from quoracy.faces.zookeeper.writing.in_flight import Outcome
from quoracy.faces.zookeeper.writing.in_flight import Request as Submitted
from quoracy.faces.zookeeper.writing.proposals import DeleteContainer
from quoracy.store.api import Store
from quoracy.store.model import LeaseId
from quoracy.wire.zookeeper.codes import Op
from quoracy.wire.zookeeper.requests import (
    Acl,
    CloseSession,
    Create,
    Multi,
    SetAcl,
    SetData,
    Sync,
)
from tests.support.zookeeper_model import Answer, Asked, Event, Stat

__all__ = [
    "PASSWORD",
    "Client",
    "Ensemble",
    "History",
    "Listener",
    "Question",
    "asked",
    "assert_idle",
    "assert_same_tree",
    "create",
    "decoded",
    "ensemble",
    "loaded_tree",
    "run",
    "seen",
    "stat_of",
    "zxid_of",
]

PASSWORD = b"sixteen bytes ok"

_PATIENCE_S = 60.0

_STAT = struct.Struct(">qqqqiiiqiiq")
_HEADER = struct.Struct(">i?i")


def create(
    path: bytes,
    data: bytes | None = b"",
    *,
    flags: int = 0,
    op: int = Op.CREATE,
    acl: tuple[Acl, ...] = OPEN_ACL,
    ttl_ms: int = -1,
) -> Create:
    return Create(op, path, data, acl, flags, ttl_ms)


def run(work: Coroutine[None, None, None]) -> None:
    """One example of a property.  Whoever waits for ever is found out."""

    async def guarded() -> None:
        async with asyncio.timeout(_PATIENCE_S):
            await work

    asyncio.run(guarded())


class Question:
    """A request, from when it was submitted, and what became of it."""

    def __init__(self, client: Client, request: Submitted, since: int) -> None:
        self.client, self.request, self.since = client, request, since
        self.is_answered = False
        self.outcome: Outcome | None = None


class History:
    """All that was asked on a store, by whomever, in the order in which it was submitted."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.told = 0  # the newest zxid that anybody was told

    def take(self) -> list[Question]:
        taken, self.questions = self.questions, []
        assert all(question.is_answered for question in taken)
        return taken


def asked(questions: Iterable[Question]) -> list[Asked]:
    """Those that have an outcome, for the model to judge."""
    return [
        Asked(
            question.client.session_id,
            question.request,
            question.outcome.zxid,
            decoded(question.request, question.outcome),
            tuple((id.scheme, id.id) for id in question.client.ids),
            question.since,
        )
        for question in questions
        if question.outcome is not None
        and not isinstance(question.request, CloseSession | Sync | DeleteContainer)
    ]


class Client:
    """One session, as a connection stands for it."""

    def __init__(self, session_id: int, replica: Replica, history: History, *ids: Identity) -> None:
        self.session_id = session_id
        self.replica = replica
        self.history = history
        self.ids: tuple[Identity, ...] = ids
        self.address = "127.0.0.1"
        self.told: list[tuple[str, int]] = []  # events and answers to writes, each with its zxid

    def event(self, frame: bytes, acl: tuple[Acl, ...]) -> None:
        """A watch of this session fired."""
        self.told.append(("event", zxid_of(frame)))

    def submit(self, request: Submitted) -> asyncio.Future[Outcome | None]:
        """Have it carried out; that it is answered once, and at the tree of its zxid, is asserted."""
        answer: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        tree, history = self.replica.tree, self.history
        question = Question(self, request, history.told)
        history.questions.append(question)

        def on_outcome(outcome: Outcome | None) -> None:
            assert not question.is_answered, f"{request} was answered twice"
            if outcome is not None and outcome.zxid:
                assert tree.zxid == outcome.zxid, f"{request}: told at {tree.zxid}, not {outcome.zxid}"
                history.told = max(history.told, outcome.zxid)
                self.told.append(("answer", outcome.zxid))
            question.outcome, question.is_answered = outcome, True
            if not answer.done():
                answer.set_result(outcome)

        self.replica.submit(request, self, on_outcome)
        return answer

    async def ask(self, request: Submitted) -> Outcome | None:
        return await self.submit(request)

    async def answer(self, request: Submitted) -> Answer:
        """What the client is told, read again from the bytes."""
        outcome = await self.submit(request)
        assert outcome is not None, f"nobody knows what became of {request}"
        return decoded(request, outcome)

    async def err(self, request: Submitted) -> int:
        return (await self.answer(request))[0]

    async def close(self) -> Outcome | None:
        return await self.submit(CloseSession())


class Listener:
    """A connection that watches: every event it is told, in order, with its zxid."""

    def __init__(self, replica: Replica, session_id: int = 999) -> None:
        self.replica = replica
        self.session_id = session_id
        self.heard: list[tuple[int, Event]] = []
        self.last = replica.tree.zxid  # with which it heard something

    def event(self, frame: bytes, acl: tuple[Acl, ...]) -> None:
        _, _, zxid, _, type, _, length = struct.unpack_from(">iiqiiii", frame)
        self.last = zxid
        path = frame[32:]
        assert len(path) == length
        assert zxid == self.replica.tree.zxid, "an event is told while the tree is at its zxid"
        self.heard.append((zxid, (type, path)))

    def watch(self, path: bytes, kind: WatchKind) -> None:
        self.replica.watches.add(path, self, kind)

    def take(self) -> list[Event]:
        events = [event for _, event in self.heard]
        self.heard.clear()
        return events


class Ensemble:
    """A store, and the replicas on it."""

    def __init__(self, store: Store, clock: ManualClock, settings: ZooKeeperSettings) -> None:
        self.store, self.clock, self.settings = store, clock, settings
        self.replicas: list[Replica] = []
        self.history = History()
        self.ends: dict[int, int] = {}  # of sessions, with the zxid
        self._runs: dict[Replica, asyncio.Task[None]] = {}
        self._ids = itertools.count(0x1000)

    @property
    def replica(self) -> Replica:
        return self.replicas[0]

    async def start(self, *, store: Store | None = None) -> Replica:
        """A replica that is up; on the store itself, or on one that stands before it."""
        replica = Replica(self.store if store is None else store, self.settings, self.clock)

        def session_gone(id: int) -> None:
            # Where history was compacted under a replica, others know better.
            self.ends[id] = min(replica.tree.zxid, self.ends.get(id, replica.tree.zxid))

        replica.applier.on_session_gone = session_gone
        run = asyncio.get_running_loop().create_task(replica.run())
        ready = asyncio.get_running_loop().create_task(replica.ready.wait())
        await asyncio.wait((run, ready), return_when=asyncio.FIRST_COMPLETED)
        if run.done():
            ready.cancel()
            run.result()
        self.replicas.append(replica)
        self._runs[replica] = run
        return replica

    def run_of(self, replica: Replica) -> asyncio.Task[None]:
        return self._runs[replica]

    async def stop(self, replica: Replica) -> None:
        self.replicas.remove(replica)
        run = self._runs.pop(replica)
        run.cancel()
        await asyncio.wait((run,))

    async def stop_all(self) -> None:
        for replica in list(self.replicas):
            await self.stop(replica)

    async def session(
        self, replica: Replica | None = None, *ids: Identity, ttl_s: float = 60.0
    ) -> Client:
        replica = replica or self.replica
        id = next(self._ids)
        await self.store.grant(ttl_s, id=LeaseId(id))
        record = layout.encode_session(PASSWORD, int(ttl_s * 1000), replica.node_id)
        put = await self.store.put(layout.session_key(id), record, lease=id)
        await replica.caught_up(put.revision)
        return Client(id, replica, self.history, *ids)

    async def move(self, client: Client, replica: Replica) -> Client:
        """The session is served by another replica from now on, as after a reconnect."""
        record = layout.encode_session(PASSWORD, 60_000, replica.node_id)
        put = await self.store.put(
            layout.session_key(client.session_id), record, lease=client.session_id
        )
        await replica.caught_up(put.revision)
        return Client(client.session_id, replica, self.history, *client.ids)

    async def settle(self) -> int:
        """Every replica shows everything there is, losses are on record; returns the revision."""
        while True:
            newest = (await self.store.range(b"\0", count_only=True)).revision
            for replica in self.replicas:
                await replica.caught_up(newest)
            while any(replica.tree.unrecorded or replica._recording for replica in self.replicas):
                # Whoever lost a race to record waits on the clock.
                await self.clock.advance(0.1)
            if (await self.store.range(b"\0", count_only=True)).revision == newest:
                return newest


@asynccontextmanager
async def ensemble(
    *, settings: ZooKeeperSettings | None = None, url: str = "memory:"
) -> AsyncIterator[Ensemble]:
    clock = ManualClock()
    async with open_embedded(url, clock=clock) as store:
        ensemble = Ensemble(store, clock, settings or ZooKeeperSettings())
        try:
            yield ensemble
        finally:
            await ensemble.stop_all()


# -- answers ---------------------------------------------------------------------------------


def zxid_of(event: bytes) -> int:
    zxid: int = struct.unpack_from(">q", event, 8)[0]
    return zxid


def stat_of(node: Node) -> Stat:
    return Stat(*_STAT.unpack(node.stat()))


def decoded(request: Submitted, outcome: Outcome) -> Answer:
    """The error and the body of an answer, as the model puts them."""
    body = outcome.body
    if outcome.err:
        assert not body
        return outcome.err, None
    if isinstance(request, Multi):
        return 0, _multi_results(body)
    if isinstance(request, SetData | SetAcl):
        return 0, Stat(*_STAT.unpack(body))
    if isinstance(request, Create):
        path, end = _path(body, 0)
        if request.op == Op.CREATE:
            assert end == len(body)
            return 0, path
        return 0, (path, Stat(*_STAT.unpack(body[end:])))
    if isinstance(request, Sync):
        return 0, _path(body, 0)[0]
    assert body == b""
    return 0, None


def _path(body: bytes, at: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">i", body, at)
    return body[at + 4 : at + 4 + length], at + 4 + length


def _multi_results(body: bytes) -> list[tuple[object, ...]]:
    results: list[tuple[object, ...]] = []
    at = 0
    while True:
        type, done, err = _HEADER.unpack_from(body, at)
        at += _HEADER.size
        if done:
            assert (type, err, at) == (-1, -1, len(body))
            return results
        if type == Op.ERROR:
            assert struct.unpack_from(">i", body, at) == (err,)
            at += 4
            results.append(("error", err))
        elif type == Op.CREATE:
            path, at = _path(body, at)
            results.append(("create", path))
        elif type == Op.CREATE2:
            path, at = _path(body, at)
            results.append(("create2", path, Stat(*_STAT.unpack_from(body, at))))
            at += _STAT.size
        elif type == Op.SET_DATA:
            results.append(("set", Stat(*_STAT.unpack_from(body, at))))
            at += _STAT.size
        else:
            results.append(({Op.DELETE: "delete", Op.CHECK: "check"}[Op(type)],))


# -- trees -----------------------------------------------------------------------------------


def _view(node: Node) -> tuple[object, ...]:
    assert node.children_count == len(node.children)
    return (
        node.data,
        node.acl,
        node.kind,
        node.ttl_ms,
        stat_of(node),
        node.creates,
        node.recorded_children,
        frozenset(node.children),
        (node.n_version, node.n_created, node.n_mod),
        (node.c_version, node.c_created, node.c_mod),
    )


def seen(tree: Tree) -> dict[str, object]:
    """Everything a tree knows, in a form that compares."""
    assert all(node.path == path for path, node in tree.nodes.items())
    nodes = {path: _view(node) for path, node in tree.nodes.items()}
    sessions = {
        id: (s.password, s.timeout_ms, s.node_id, s.mod_revision, frozenset(s.ephemerals))
        for id, s in tree.sessions.items()
    }
    return {
        "nodes": nodes,
        "sessions": sessions,
        "special": {path: node is tree.nodes[path] for path, node in tree.special.items()},
        "data_bytes": tree.data_bytes,
        "unrecorded": set(tree.unrecorded),
    }


async def loaded_tree(store: Store) -> Tree:
    """The tree as a replica that starts now reads it."""
    found = await store.range(layout.EVERYTHING)
    tree = Tree()
    tree.load(found.kvs)
    kids = [kv for kv in found.kvs if kv.key[layout.KIND_AT] == layout.KIDS_KIND]
    tree.loaded(kids, found.revision)
    return tree


def assert_same_tree(tree: Tree, other: Tree) -> None:
    ours, theirs = seen(tree), seen(other)
    for path in sorted(tree.nodes.keys() | other.nodes.keys()):
        assert _view(tree.nodes[path]) == _view(other.nodes[path]), path
    for what in ours:
        assert ours[what] == theirs[what], what
    _check_links(tree)


def _check_links(tree: Tree) -> None:
    """What is said in two places is said alike."""
    children: dict[bytes, set[bytes]] = {path: set() for path in tree.nodes}
    owned: dict[int, set[bytes]] = {id: set() for id in tree.sessions}
    for path, node in tree.nodes.items():
        if path != b"/":
            parent, _, name = path.rpartition(b"/")
            children[parent or b"/"].add(name)
        if node.owner:
            owned.setdefault(node.owner, set()).add(path)
    assert {path: set(node.children) for path, node in tree.nodes.items()} == children
    assert {id: session.ephemerals for id, session in tree.sessions.items()} == owned
    special = {path for path, node in tree.nodes.items() if node.kind > 1}
    assert set(tree.special) == special
    assert tree.data_bytes == sum(len(node.data or b"") for node in tree.nodes.values())


def assert_idle(replicas: Replica | Iterable[Replica]) -> None:
    """Nothing is left of writes that have been answered."""
    several: Sequence[Replica] = [replicas] if isinstance(replicas, Replica) else list(replicas)
    for replica in several:
        pipeline = replica.pipeline
        assert not pipeline.judged
        assert not pipeline._closing
        for queue in pipeline._queues.values():
            assert queue.session_id in replica.tree.sessions
            assert not queue.waiting
            assert not queue.in_flight
        assert not pipeline._claims.by_path
        assert not pipeline.in_flight.pending
        assert not pipeline.in_flight._writes
        assert not pipeline.in_flight._unjudged
        assert pipeline.count == 0
        assert not replica.tree.ended
        assert not replica.tree.moved
