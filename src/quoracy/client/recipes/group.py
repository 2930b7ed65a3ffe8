"""Group: the members that are present, with their metadata, and every change of them.

    async with quoracy.connect("memory:", identity="worker-7") as q:
        workers = q.group("workers")
        async with workers.join({"zone": "a"}):
            print(await workers.members())
            async for change in workers.watch():           # without end, unless you break
                print(change.revision, change.joined, change.left, change.updated)
                break

What it promises
    * A member is visible to all clients until it leaves, or until its session ends: no cleanup is
      needed.
    * `watch` begins with all members, then reports every change: no gap, no repetition, the changes of
      one revision as one.
    * A member whose session is lost is notified.  With `rejoin=True` it joins again with the next
      session: others see that it left and joined, and its own `events()` report it as well.

It does not promise that a member is alive: it was, a time to live ago.  A group is no lock: the body of
the block continues when the membership is lost, unless `cancel_on_loss=True`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar
from weakref import WeakSet

import msgspec

from quoracy.client.codec import codec_of
from quoracy.client.context import RETRY_S, Context, Deadline
from quoracy.client.held import Held, Holding
from quoracy.client.mirror import ENTRIES_MAX, Bounds, Mirror, MirrorBatch
from quoracy.client.mirror_updater import Subscription
from quoracy.client.queue_entry import Attempt, in_a_session
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

# Losing a session takes seconds at least, so no reader is behind by this many.
_EVENTS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Member(Generic[M]):
    """A member of a group.

    identity: the `identity` of its connection, unless it joined with another.
    since: the revision at which it joined; no two have the same.
    revision: that of its metadata.
    lease: its session.
    error: the reason why its metadata cannot be read; None: it can be read.
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
        """Its metadata.  Raises `ValueUnreadable` if that is not of the type of the group."""
        if self.error is not None:
            raise self.error
        # None may be a value of the type.
        return self.decoded  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class GroupChange(Generic[M]):
    """The changes of a group in one revision, and its members then.  All in order of joining.

    updated: members whose metadata changed.
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
    """The loss or the renewal of a membership of this client.

    token: the revision at which the membership that was lost, or is new, began.
    error: the reason of the loss.
    """

    kind: MembershipEventKind
    token: int
    error: LeaseLost | None = None


class _Record(msgspec.Struct, frozen=True):
    """The value of a member's key."""

    identity: str
    metadata: msgspec.Raw


class Membership(Held, Generic[M]):
    """A membership of this client.  `token` is the revision at which it began.

    With `rejoin=True` it may begin again: `lost` is set while this client is no member, and cleared
    when it is one again, with a larger token.
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
        self._subscriptions: WeakSet[Subscription[MembershipEvent]] = WeakSet()
        self._is_over = False  # no further event will come
        super().__init__(
            group._context, session, name=group.name, key=key, token=token, what=group._membership
        )

    @property
    def metadata(self) -> M:
        """The metadata that other clients see."""
        return self._metadata

    async def update(self, metadata: M) -> None:
        """Change the metadata.  Raises `LeaseLost` if this client is no member any more.

        After `Indeterminate` too, it joins again with the new metadata.
        """
        value = self._group._encode(self.identity, metadata)
        self.check()
        self._metadata = metadata
        await self.txn(Put(self.key, value, self._session.id))

    def events(self) -> AsyncGenerator[MembershipEvent, None]:
        """Every loss and every rejoining from this call on; it ends when the membership ends for good.

        For a slow reader the last thousand are kept.
        """
        subscription: Subscription[MembershipEvent] = Subscription(_EVENTS_MAX)
        self._subscriptions.add(subscription)
        if self._is_over:
            subscription.end()
        return subscription.items()

    async def release(self) -> None:
        """Leave the group.  A second call does nothing."""
        await super().release()

    async def _release(self, *, quietly: bool) -> None:
        if self._joining is not None:
            self._joining.cancel()
        try:
            await super()._release(quietly=quietly)
        finally:
            self._over()

    # -- losing it, and beginning again ------------------------------------------------------

    def _set_lost(self, reason: str) -> LeaseLost:
        rejoins = self._rejoin and not self._released
        again = "it joins again, unless somebody put it out." if rejoins else "join again."
        self.error = LeaseLost(
            f"{self._what} as {self.identity}, since revision {self.token}, is lost: {reason}. Others "
            f"see that it left; {again}"
        )
        _log.warning("%s", self.error)
        self.lost.set()
        return self.error

    def _lose(self, reason: str) -> None:
        if self.error is not None or self._released:
            return
        super()._lose(reason)
        self._publish(MembershipEvent(MembershipEventKind.LOST, self.token, self.error))
        if not self._rejoin or not self._is_connected:
            self._over()
        elif self._joining is None or self._joining.done():
            self._joining = self._context.spawn(self._join_again(), name="quoracy-rejoin")

    @property
    def _is_connected(self) -> bool:
        try:
            self._context.check()
        except (StoreClosed, Forked):
            return False  # the session ended with its connection
        return True

    async def _join_again(self) -> None:
        while not self._released and self.error is not None:
            deadline = self._context.deadline(None)
            try:
                if not await self._is_session_over():
                    _log.warning("%s: somebody put %s out", self._what, self.identity)
                    self._over()
                    return
                session, key, token = await self._group._enter(self.identity, self._metadata, deadline)
            except StoreClosed:
                self._over()
                return
            except (Unavailable, Indeterminate, NoSpace) as error:
                _log.info("%s is not joined again yet: %s", self._what, error)
                await self._context.clock.sleep(RETRY_S)
            except QuoracyError:
                self._over()
                raise
            else:
                self._begin_anew(session, key, token)

    async def _is_session_over(self) -> bool:
        """Whether the key was deleted with its session, and not by others while the session lives."""
        session = self._session
        if not session.is_lost:
            try:
                await self._context.store.time_to_live(session.id)
            except LeaseNotFound:
                session.lease_not_found()
        return session.lost.done()

    def _begin_anew(self, session: Session, key: bytes, token: int) -> None:
        self._session, self.key, self.token = session, key, token
        self.error = None
        self.lost.clear()
        self._watch_task = None
        self._watch_timer = self._context.hold_timers.add(self._watch)
        _log.warning("%s as %s begins again, at revision %d", self._what, self.identity, token)
        self._publish(MembershipEvent(MembershipEventKind.REJOINED, token))
        session.add_loss_listener(self, self._session_lost)

    def _over(self) -> None:
        self._is_over = True
        for subscription in list(self._subscriptions):
            subscription.end()

    def _publish(self, event: MembershipEvent) -> None:
        for subscription in list(self._subscriptions):
            subscription.put(event)


class Group(Generic[M]):
    """A group by name; one object may be shared, each membership is its own handle.

    type: of the metadata.  A member with metadata of another type is a member all the same: see
        `Member.error`.
    """

    def __init__(self, context: Context, name: str, type: type[M]) -> None:
        self.name = name
        self._context = context
        self._root = context.key(name) + b"/"
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

        identity: the identity in the group; by default that of the connection.
        rejoin: join again with the next session when this one is lost; `membership.events()` reports
            it.  A member that was removed by others (its key was deleted) stays out.
        cancel_on_loss: cancel the body when the membership is lost, and raise `LeaseLost`; in
            coroutines only.  By default only `membership.lost` is set; a block that ends while it is
            lost raises `LeaseLost` then.
        """
        if rejoin and cancel_on_loss:
            raise InvalidRequest(
                "rejoin=True lets the body go on and cancel_on_loss=True ends it. Choose one of them."
            )

        return Holding(
            lambda: self.enroll(metadata, identity=identity, rejoin=rejoin, timeout=timeout),
            cancel_on_loss=cancel_on_loss,
        )

    async def enroll(
        self,
        metadata: M,
        *,
        identity: str | None = None,
        rejoin: bool = False,
        timeout: float | None = None,
    ) -> Membership[M]:
        """Join without a block; `membership.release()` leaves.  See `join`."""
        context = self._context
        context.check()
        said = context.identity if identity is None else identity
        deadline = context.deadline(timeout)
        session, key, token = await self._enter(said, metadata, deadline)
        return Membership(self, session, key, token, metadata=metadata, identity=said, rejoin=rejoin)

    async def members(self) -> tuple[Member[M], ...]:
        """The members, in order of joining."""
        self._context.check()
        mirror = self._mirror()
        await mirror.load()
        return _in_order(mirror)

    async def watch(self) -> AsyncGenerator[GroupChange[M], None]:
        """The members, then every change, without end; in the first change all members have joined.

        If history was compacted while the store did not answer, the changes of that time are reported
        as one.  Close it when you leave the loop early, as `contextlib.aclosing` and `closing` do.
        """
        self._context.check()
        mirror = self._mirror()
        yield _group_change(mirror, await mirror.load())
        async with aclosing(mirror.follow()) as batches:
            async for batch in batches:
                if batch.changes:
                    yield _group_change(mirror, batch)

    # -- inside ------------------------------------------------------------------------------

    def _mirror(self) -> Mirror[Member[M]]:
        bounds = Bounds(f"the group {self.name}", entries_max=ENTRIES_MAX)
        return Mirror(self._context, KeyRange.prefix(self._root), self._member, bounds=bounds)

    async def _enter(
        self, identity: str, metadata: M, deadline: Deadline
    ) -> tuple[Session, bytes, int]:
        """Put the member's key: the session it is attached to, the key, the revision."""
        context, value = self._context, self._encode(identity, metadata)

        async def once(session: Session) -> tuple[Session, bytes, TxnResult]:
            with Attempt(context, session, self._root) as attempt:
                (key,) = attempt.keys
                txn = Txn((Compare.missing(key),), (Put(key, value, session.id),))
                return session, key, await attempt.send(txn)

        session, key, result = await in_a_session(context, deadline, once, what=self._membership)
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
