"""Group: who is there, what they say of themselves, and every coming and going.

    async with quoracy.connect("memory:", identity="worker-7") as q:
        workers = q.group("workers")
        async with workers.join({"zone": "a"}):
            print(await workers.members())
            async for change in workers.watch():           # for ever, unless you leave
                print(change.revision, change.joined, change.left, change.updated)
                break

What it promises
    * A member is seen by everybody until it leaves, or until its session ends: nobody has to clean up.
    * `watch` begins with everyone who is there, then tells every change: no gap, nothing twice, what
      happened in one revision as one change.
    * A member whose session is lost is told.  With `rejoin=True` it joins again with the next session:
      others see that it left and joined, and its own `events()` tell it as well.

It does not promise that a member is alive: it was, a time to live ago.  A group is no lock: the body of
the block goes on when the membership is lost, unless `cancel_on_loss=True`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar
from weakref import WeakSet

import msgspec

from quoracy.client.codec import codec_of
from quoracy.client.context import Ground, Patience
from quoracy.client.held import Held, Holding
from quoracy.client.mirror import ENTRIES_MAX, Bounds, Mirror, MirrorBatch
from quoracy.client.queue_entry import ASK_AGAIN_S, Attempt, in_a_session
from quoracy.client.session import Session
from quoracy.errors import (
    Forked,
    Indeterminate,
    InvalidRequest,
    LeaseLost,
    LeaseNotFound,
    NoSpace,
    QuoracyError,
    StoreClosed,
    Unavailable,
    ValueUnreadable,
)
from quoracy.store.model import Compare, KeyRange, KeyValue, Put, Txn, TxnResult

__all__ = ["Group", "GroupChange", "Member", "Membership", "MembershipEvent", "MembershipEventKind"]

_log = logging.getLogger(__name__)

M = TypeVar("M")

# Losing a session takes seconds at least; nobody is behind by this many.
_EVENTS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Member(Generic[M]):
    """Somebody in a group.

    identity: what it calls itself: `identity` of its connection, unless it chose another.
    since: the revision at which it joined; no two have the same.
    revision: that of what it last said of itself.
    lease: its session.
    error: why its metadata cannot be read; None: they can.
    """

    identity: str
    since: int
    revision: int
    lease: int
    kv: KeyValue = field(repr=False)
    decoded: M | None
    error: ValueUnreadable | None = None

    @property
    def metadata(self) -> M:
        """What it says of itself.  Raises `ValueUnreadable` if that is not of the type of the group."""
        if self.error is not None:
            raise self.error
        # None is a value like any other, of a type that has it.
        return self.decoded  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class GroupChange(Generic[M]):
    """What changed in a group in one revision, and who is there now.  Everyone in order of joining.

    updated: members that say something else of themselves now.
    """

    revision: int
    members: tuple[Member[M], ...]
    joined: tuple[Member[M], ...]
    left: tuple[Member[M], ...]
    updated: tuple[Member[M], ...]


class MembershipEventKind(Enum):
    LOST = "lost"
    REJOINED = "rejoined"


@dataclass(frozen=True, slots=True)
class MembershipEvent:
    """What happened to a membership of ours.

    token: the revision at which the membership that was lost, or is new, began.
    error: why it was lost.
    """

    kind: MembershipEventKind
    token: int
    error: LeaseLost | None = None


class _Record(msgspec.Struct, frozen=True):
    """What the key of a member holds."""

    identity: str
    metadata: msgspec.Raw


class Membership(Held, Generic[M]):
    """A membership of ours.  `token` is the revision at which it began.

    With `rejoin=True` it may begin again: `lost` is set while we are no member, and cleared when we are
    one again, with a larger token.
    """

    loss_type = LeaseLost

    def __init__(
        self,
        group: Group[M],
        session: Session,
        key: bytes,
        token: int,
        *,
        metadata: M,
        identity: str,
        rejoin: bool,
    ) -> None:
        self.identity = identity
        self._group, self._metadata, self._rejoin = group, metadata, rejoin
        self._joining: asyncio.Task[None] | None = None
        self._listening: WeakSet[_Events] = WeakSet()
        self._is_over = False  # nothing will happen to it any more
        super().__init__(
            group._ground, session, name=group.name, key=key, token=token, what=group._membership
        )

    @property
    def metadata(self) -> M:
        """What others see of us."""
        return self._metadata

    async def update(self, metadata: M) -> None:
        """Say something else of ourselves.  Raises `LeaseLost` if we are no member any more.

        Also after `Indeterminate` it is what is said after joining again.
        """
        value = self._group._encode(self.identity, metadata)
        self.check()
        self._metadata = metadata
        await self.txn(Put(self.key, value, self._session.id))

    def events(self) -> AsyncGenerator[MembershipEvent, None]:
        """Every loss and every rejoining from this call on; it ends when we are out for good.

        The last thousand are kept for whoever does not read them.
        """
        events = _Events()
        self._listening.add(events)
        if self._is_over:
            events.end()
        return events.iterate()

    async def release(self) -> None:
        """Leave the group.  Once is enough; a second time does nothing."""
        await super().release()

    async def _give_back(self, *, quietly: bool) -> None:
        if self._joining is not None:
            self._joining.cancel()
        try:
            await super()._give_back(quietly=quietly)
        finally:
            self._over()

    # -- losing it, and beginning again ------------------------------------------------------

    def _lose(self, reason: str) -> None:
        if self.error is not None or self._released:
            return
        again = "it joins again, unless somebody put it out." if self._rejoin else "join again."
        self.error = LeaseLost(
            f"{self._what} as {self.identity}, since revision {self.token}, is lost: {reason}. Others "
            f"see that it left; {again}"
        )
        _log.warning("%s", self.error)
        self.lost.set()
        self._stand_down()
        self._tell(MembershipEvent(MembershipEventKind.LOST, self.token, self.error))
        losing, self._losing = self._losing, []
        for listener in losing:
            listener(self.error)
        if not self._rejoin or not self._is_connected:
            self._over()
        elif self._joining is None or self._joining.done():
            self._joining = self._ground.spawn(self._join_again(), name="quoracy-rejoin")

    @property
    def _is_connected(self) -> bool:
        try:
            self._ground.check()
        except (StoreClosed, Forked):
            return False  # the session was not lost, but ended with its connection
        return True

    async def _join_again(self) -> None:
        while not self._released and self.error is not None:
            patience = Patience(self._ground.clock, None)
            try:
                if not await self._is_session_over():
                    _log.warning("%s: somebody put %s out", self._what, self.identity)
                    self._over()
                    return
                session, key, token = await self._group._enter(self.identity, self._metadata, patience)
            except StoreClosed:
                self._over()
                return
            except (Unavailable, Indeterminate, NoSpace) as error:
                _log.info("%s is not joined again yet: %s", self._what, error)
                await self._ground.clock.sleep(ASK_AGAIN_S)
            except QuoracyError:
                self._over()
                raise
            else:
                self._begin_anew(session, key, token)

    async def _is_session_over(self) -> bool:
        """Whether the key went with the session.  If the session lives, somebody deleted the key."""
        session = self._session
        if not session.is_lost:
            try:
                await self._ground.store.time_to_live(session.id)
            except LeaseNotFound:
                session.found_gone()
        return session.lost.done()

    def _begin_anew(self, session: Session, key: bytes, token: int) -> None:
        self._session, self.key, self.token = session, key, token
        self.error = None
        self.lost.clear()
        self._watching = None
        self._watch_soon = self._ground.held_long.add(self._watch)
        _log.warning("%s as %s begins again, at revision %d", self._what, self.identity, token)
        self._tell(MembershipEvent(MembershipEventKind.REJOINED, token))
        session.tell_loss(self, self._session_lost)

    def _over(self) -> None:
        self._is_over = True
        for events in list(self._listening):
            events.end()

    def _tell(self, event: MembershipEvent) -> None:
        for events in list(self._listening):
            events.put(event)


class Group(Generic[M]):
    """A group by name; one object may be shared, each membership is its own handle.

    type: of what members say of themselves.  A member with metadata of another type is a member all the
        same: see `Member.error`.
    """

    def __init__(self, ground: Ground, name: str, type: type[M]) -> None:
        self.name = name
        self._ground = ground
        self._root = ground.key(name) + b"/"
        self._membership = f"the membership in {name}"
        codec_of(type)  # raises for a type that cannot be stored
        self._decoder = msgspec.json.Decoder(type)
        self._type_name = getattr(type, "__name__", str(type))

    def join(
        self,
        metadata: M,
        *,
        identity: str | None = None,
        rejoin: bool = False,
        cancel_on_loss: bool = False,
        timeout: float | None = None,
    ) -> Holding[Membership[M]]:
        """A block as a member: `group.join({"zone": "a"})`.

        identity: who we are in the group; by default the connection's identity.
        rejoin: join again with the next session when ours is lost; `membership.events()` tells.  A
            member that somebody else removed (its key was deleted) stays out.
        cancel_on_loss: cancel the body when the membership is lost, and raise `LeaseLost`; in
            coroutines only.  By default only `membership.lost` is set; a block that ends while it is
            lost raises `LeaseLost` then.
        """
        if rejoin and cancel_on_loss:
            raise InvalidRequest(
                "rejoin=True lets the body go on and cancel_on_loss=True ends it. Choose one of them."
            )

        async def enter() -> Membership[M]:
            return await self.enroll(metadata, identity=identity, rejoin=rejoin, timeout=timeout)

        return Holding(enter, cancel_on_loss=cancel_on_loss)

    async def enroll(
        self,
        metadata: M,
        *,
        identity: str | None = None,
        rejoin: bool = False,
        timeout: float | None = None,
    ) -> Membership[M]:
        """Join without a block; `membership.release()` leaves.  See `join`."""
        ground = self._ground
        ground.check()
        said = ground.identity if identity is None else identity
        patience = Patience(ground.clock, timeout)
        session, key, token = await self._enter(said, metadata, patience)
        return Membership(self, session, key, token, metadata=metadata, identity=said, rejoin=rejoin)

    async def members(self) -> tuple[Member[M], ...]:
        """Who is there now, in order of joining."""
        self._ground.check()
        mirror = self._mirror()
        await mirror.load()
        return _in_order(mirror)

    async def watch(self) -> AsyncGenerator[GroupChange[M], None]:
        """Who is there, then every change, for ever: the first change has everyone as joined.

        If history was compacted while the store could not be asked, what changed meanwhile is told as
        one change.  Close it when you leave the loop early, as `contextlib.aclosing` and
        `closing` do.
        """
        self._ground.check()
        mirror = self._mirror()
        yield _group_change(mirror, await mirror.load())
        async with aclosing(mirror.follow()) as batches:
            async for batch in batches:
                if batch.changes:
                    yield _group_change(mirror, batch)

    # -- inside ------------------------------------------------------------------------------

    def _mirror(self) -> Mirror[Member[M]]:
        bounds = Bounds(f"the group {self.name}", entries_max=ENTRIES_MAX)
        return Mirror(self._ground, KeyRange.prefix(self._root), self._member, bounds=bounds)

    async def _enter(
        self, identity: str, metadata: M, patience: Patience
    ) -> tuple[Session, bytes, int]:
        """Put our key: the session it is attached to, the key, the revision."""
        ground, value = self._ground, self._encode(identity, metadata)

        async def once(session: Session) -> tuple[Session, bytes, TxnResult]:
            with Attempt(ground, session, self._root) as attempt:
                (key,) = attempt.keys
                txn = Txn((Compare.missing(key),), (Put(key, value, session.id),))
                return session, key, await attempt.send(txn)

        session, key, result = await in_a_session(ground, patience, once, what=self._membership)
        return session, key, result.revision

    def _encode(self, identity: str, metadata: M) -> bytes:
        try:
            encoded = msgspec.json.encode(metadata)
            self._decoder.decode(encoded)
        except (TypeError, ValueError, AttributeError, msgspec.DecodeError) as error:
            raise InvalidRequest(
                f"{metadata!r} is no {self._type_name} to say in {self.name}: {error}."
            ) from error
        return msgspec.json.encode(_Record(identity, msgspec.Raw(encoded)))

    def _member(self, kv: KeyValue) -> Member[M]:
        identity, decoded, unreadable = "", None, None
        try:
            record = msgspec.json.decode(kv.value, type=_Record)
            identity = record.identity
            decoded = self._decoder.decode(record.metadata)
        except Exception as error:  # noqa: BLE001 (`__post_init__` of a type is the program's own)
            why = str(error) or repr(error)
            unreadable = ValueUnreadable(kv.key, wanted=f"member with {self._type_name}", why=why)
            _log.warning("the group %s: %s", self.name, unreadable)
        return Member(identity, kv.create_revision, kv.mod_revision, kv.lease, kv, decoded, unreadable)

    def __repr__(self) -> str:
        return f"<Group {self.name}>"


class _Events:
    """What one listener has not read yet of what happened to a membership."""

    def __init__(self) -> None:
        self._waiting: deque[MembershipEvent] = deque(maxlen=_EVENTS_MAX)
        self._ended = False
        self._news = asyncio.Event()

    def put(self, event: MembershipEvent) -> None:
        self._waiting.append(event)
        self._news.set()

    def end(self) -> None:
        self._ended = True
        self._news.set()

    async def iterate(self) -> AsyncGenerator[MembershipEvent, None]:
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self._ended:
                return
            self._news.clear()
            await self._news.wait()


def _in_order(mirror: Mirror[Member[M]]) -> tuple[Member[M], ...]:
    return tuple(sorted(mirror.entries.values(), key=_since))


def _group_change(mirror: Mirror[Member[M]], batch: MirrorBatch[Member[M]]) -> GroupChange[M]:
    joined, left, updated = [], [], []
    for change in batch.changes:
        now, before = change.current, change.previous
        if now is not None and before is not None and now.since == before.since:
            updated.append(now)
            continue
        if before is not None:
            left.append(before)
        if now is not None:
            joined.append(now)
    return GroupChange(
        batch.revision,
        _in_order(mirror),
        joined=tuple(sorted(joined, key=_since)),
        left=tuple(sorted(left, key=_since)),
        updated=tuple(sorted(updated, key=_since)),
    )


def _since(member: Member[M]) -> tuple[int, bytes]:
    return member.since, member.kv.key
