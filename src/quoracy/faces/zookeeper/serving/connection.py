"""One client's connection: bytes in, requests in their order, bytes out.  No socket and no event loop.

The first four bytes are a four-letter word or the length of the ConnectRequest.  Requests that follow
it are kept until the session stands, then answered strictly in the order they came: a read at once if
nothing before it is unanswered, otherwise when its turn comes.  Writes do not wait for their turn to be
submitted: several of one client may be in flight together; the pipeline keeps their order.

Invariants
    * Every request gets one reply, in order, or the connection ends.  Addauth and SASL are answered as
      they arrive, as ZooKeeper does.
    * An event is in the output before any reply that was made after it.
    * What a peer sends ends at most its own connection: no exception leaves `feed`.
    * Memory is bounded.  A peer that does not read is not answered: once its output stands still, what
      it asks is kept, up to a bound (see `request_queue`), and then it is not read from.  Only events
      go on, and past `UNREAD_EVENTS_BYTES_MAX` of them the connection ends.  The same holds for what
      waits for the store: see `Throttle`.
    * Nothing is sent after `is_over`.

Differs from ZooKeeper:
    * What comes before an unknown operation is answered before the connection ends.
    * A client cannot ask for createSession; one connection has at most `IDENTITIES_MAX` identities.
    * Output is bounded, as said above.
"""

from __future__ import annotations

import logging
import struct
from typing import Final, Protocol, cast

from quoracy.clock import Clock
from quoracy.errors import ProtocolError
from quoracy.faces.common.reply_socket import ReplySocket
from quoracy.faces.zookeeper.admin.four_letter import is_word
from quoracy.faces.zookeeper.admin.stats import ConnectionStats, ServerStats
from quoracy.faces.zookeeper.serving.read_only import NOT_READ_ONLY_OPS, ReadOnlySessions
from quoracy.faces.zookeeper.serving.request_queue import (
    Peer,
    PendingRequest,
    ReceiveQueue,
    Throttle,
)
from quoracy.faces.zookeeper.serving.sessions import Session, SessionKeeper, Sessions
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree import acl
from quoracy.faces.zookeeper.tree.acl import Identity
from quoracy.faces.zookeeper.tree.paths import ZkError
from quoracy.faces.zookeeper.tree.reads import READ_REQUESTS, ReadRequest, Reads
from quoracy.faces.zookeeper.tree.replica import Replica
from quoracy.faces.zookeeper.writing.in_flight import Request as Write
from quoracy.store.completion import Reply
from quoracy.wire.zookeeper.codes import PASSWORD_BYTES, XID_PING, Err, Op, Perm
from quoracy.wire.zookeeper.jute import FrameLengthError
from quoracy.wire.zookeeper.replies import encode_connect_response, encode_reply, token_body
from quoracy.wire.zookeeper.requests import (
    Acl,
    Auth,
    Check,
    CloseSession,
    ConnectRequest,
    Multi,
    Ping,
    PlainWrite,
    Reconfig,
    Request,
    Sasl,
    SetAcl,
    Sync,
    Unknown,
    decode_connect,
    decode_request,
)

__all__ = ["Connection", "ServerContext"]

logger = logging.getLogger(__name__)

# Replies are handed over in pieces of this size, so that a peer that does not read is noticed in time.
_OUTPUT_BYTES: Final = 256 * 1024
# And after this number of requests the others have their turn.
_REQUESTS_AT_ONCE: Final = 1000
UNREAD_EVENTS_BYTES_MAX = 16 << 20
# Identities that one connection may prove.
IDENTITIES_MAX: Final = 256

_header: Final = struct.Struct(">ii").unpack_from
_HEADER_SIZE: Final = 8
_NO_TOKEN: Final = token_body(None)
_READ: Final = int(Perm.READ)
_ERROR: Final = int(Op.ERROR)
_CLOSE_SESSION: Final = int(Op.CLOSE_SESSION)

_READS: Final = frozenset(READ_REQUESTS)
_WRITES: Final = frozenset({SetAcl, Check, Multi, Sync})  # that are not plain


class ServerContext(Protocol):
    """What all connections of a server share."""

    @property
    def running(self) -> bool: ...

    @property
    def settings(self) -> ZooKeeperSettings: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def replica(self) -> Replica: ...

    @property
    def reads(self) -> Reads: ...

    @property
    def sessions(self) -> Sessions: ...

    @property
    def read_only(self) -> ReadOnlySessions | None:
        """The sessions while nothing can be written; None while `sessions` has them."""
        ...

    @property
    def stats(self) -> ServerStats: ...

    @property
    def throttle(self) -> Throttle: ...

    def answer_word(self, word: bytes, rest: bytes, connection: Connection) -> None:
        """Find the answer to a four-letter word and have the connection `say` it."""
        ...

    def flush_soon(self, connection: Connection) -> None:
        """Call its `flush` when whatever is going on now is done."""
        ...

    def go_on_soon(self, connection: Connection) -> None:
        """Call its `go_on` when the others have had their turn."""
        ...


class Connection:
    """Fed by the server with what arrives; itself the caller and the watcher of its requests."""

    def __init__(
        self, face: ServerContext, peer: Peer, replies: ReplySocket, stats: ConnectionStats
    ) -> None:
        self._face, self._peer, self._replies, self.stats = face, peer, replies, stats
        self._throttle, self._now = face.throttle, face.clock.now
        self._replica, self._reads = face.replica, face.reads
        self._pipeline = face.replica.pipeline
        self._sessions: SessionKeeper = face.sessions
        self._read_only: ReadOnlySessions | None = None  # they are, if nothing can be written
        self._tree, self._watches = face.replica.tree, face.replica.watches
        self.address = stats.host
        self.ids: tuple[Identity, ...] = ()
        self.session_id = 0
        self.is_over = False
        self.is_asked_a_word = False
        self._session: Session | None = None
        self._connecting: ConnectRequest | None = None
        self._connecting_since = 0.0
        self._first: bytes | None = b""  # what came of the first four
        self._pending: list[PendingRequest] = []  # (short, mostly: no deque)
        # When requests are kept there, `go_on` is due to be called.
        self._received = ReceiveQueue(peer, stats, face.settings.jute_maxbuffer)
        self._output: list[bytes] = []
        self._output_bytes = 0
        self._came_alone = False  # the request that is being taken
        self._reply_is_due = False  # what another thread may have sent is to be settled
        self.is_busy = False  # `flush` comes at the end of what is going on
        self._flush_due = self._go_on_due = False
        self._can_write = True
        self._unread_bytes = 0
        self._closes_session = False
        self._is_finishing = False

    @property
    def has_begun(self) -> bool:
        """Whether it is known what the peer wants."""
        return self._connecting is not None or self.is_asked_a_word

    # -- what the server does ----------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Bytes arrived."""
        if self.is_over:
            return
        self.is_busy = True
        try:
            if self._first is not None:
                self._feed_first(self._first + data)
            elif not self.is_asked_a_word:
                self._feed_frames(self._split(data), len(data))
        except Exception as error:  # noqa: BLE001 (it is logged)
            self._stumbled(error)
        finally:
            self.is_busy = False
        self.flush()

    def go_on(self) -> None:
        """Answer and take what can be, now."""
        self._go_on_due = False
        if self.is_over:
            return
        self.is_busy = True
        try:
            self._advance()
            self._take_kept()
        except Exception as error:  # noqa: BLE001 (it is logged)
            self._stumbled(error)
        finally:
            self.is_busy = False
        self.flush()

    def pause(self) -> None:
        """The peer does not take what it is sent."""
        self._can_write = False
        self._unread_bytes = 0

    def resume(self) -> None:
        """It does again."""
        self._can_write = True
        self.go_on()

    def flush(self) -> bool:
        """Hand over what there is to send; whether the peer still takes it."""
        self._flush_due = False
        output = self._output
        if output or self._reply_is_due:
            self._reply_is_due = False
            self._replies.settle()
        if output:
            data = output[0] if len(output) == 1 else b"".join(output)
            output.clear()
            self._output_bytes = 0
            self._peer.send(data)
        return self._can_write

    def finish(self) -> None:
        """Take nothing more, and hang up as soon as everything that was taken is answered."""
        self._is_finishing = True
        self._received.kept.clear()
        if not self._pending:
            self.hang_up("this server stops")

    def lost(self) -> None:
        """The connection is gone, or about to be: forget it everywhere.  The session lives on."""
        if self.is_over:
            return
        self.is_over = True
        throttle = self._throttle
        if self._session is not None:
            self._replica.watches.drop(self)
            self._sessions.disconnected(self._session, self)
        for pending in self._pending:
            throttle.count -= 1
            throttle.size -= pending.size
        self._pending.clear()
        self._received.kept.clear()
        self._replies.settle()
        self._output.clear()
        self._face.stats.disconnected(self.stats)

    def hang_up(self, reason: str) -> None:
        """What was answered still goes out."""
        if not self.is_over:
            logger.info("closing the connection of %s: %s", self.stats.address, reason)
            self._end()

    def _stumbled(self, error: Exception) -> None:
        """No exception leaves whatever is done for a connection: it ends that one."""
        self.is_busy = False
        if isinstance(error, ProtocolError):
            self.hang_up(f"what it sent makes no sense: {error}")
            return
        self._face.stats.unrecoverable_error_count += 1
        logger.error("an error here, not of the client, whose connection has to end", exc_info=error)
        self.hang_up("there was an error here")

    def _end(self) -> None:
        self.flush()
        self.lost()
        self._peer.close()

    # -- the beginning -----------------------------------------------------------------------

    def _feed_first(self, first: bytes) -> None:
        if len(first) < 4:
            self._first = first
            return
        self._first = None
        if is_word(first[:4]):
            self.stats.received(1, 4)
            self.stats.abandoned(1)  # it is no request that waits
            self.is_asked_a_word = True
            self._face.answer_word(first[:4], first[4:], self)
        else:
            self._feed_frames(self._split(first), len(first))

    def _split(self, data: bytes) -> list[bytes]:
        try:
            return self._received.split(data)
        except FrameLengthError as error:
            if error.length > 0:
                self._face.stats.large_requests_rejected += 1
            self._feed_frames(error.frames, len(data))
            raise

    def say(self, text: bytes) -> None:
        """Answer a four-letter word: that is all there is to say."""
        if not self.is_over:
            self._put_out(text)
            self._end()

    def _connect(self, request: ConnectRequest) -> None:
        face = self._face
        self._connecting, self._connecting_since = request, face.clock.now()
        face.stats.connection_request_count += 1
        if not face.running:
            self.hang_up("the store cannot be followed at the moment")
            return
        # Since the connection was made the replica may have been replaced.
        self._replica, self._reads, self._read_only = face.replica, face.reads, face.read_only
        self._sessions = face.sessions if self._read_only is None else self._read_only
        self._tree, self._pipeline = self._replica.tree, self._replica.pipeline
        self._watches = self._replica.watches
        if request.session_id:
            face.stats.connection_revalidate_count += 1
        self._sessions.connect(request, self)

    def established(self, session: Session) -> None:
        """The session stands."""
        self._session = session
        self.session_id = self.stats.session_id = session.id
        self.stats.timeout_ms = session.timeout_ms
        self._answer_connect(session.timeout_ms, session.id, session.password)
        self.go_on()

    def refused(self) -> None:
        """There is no such session."""
        if not self.is_over:
            self._answer_connect(0, 0, bytes(PASSWORD_BYTES))
            self.hang_up("the session it asks for does not exist, or the password is wrong")

    def session_ended(self) -> None:
        if not self._closes_session:  # else its reply is on its way
            self.hang_up("its session is over")

    def session_is_sure(self) -> None:
        self._go_on_later()

    def _answer_connect(self, timeout_ms: int, session_id: int, password: bytes) -> None:
        request = self._connecting
        assert request is not None
        read_only = None if request.read_only is None else self._read_only is not None
        response = encode_connect_response(timeout_ms, session_id, password, read_only)
        self._put_out(response)
        now = self._face.clock.now()
        self.stats.answered(
            Op.CREATE_SESSION, 0, self._tree.zxid, len(response), self._connecting_since, now, True
        )

    # -- requests ----------------------------------------------------------------------------

    def _feed_frames(self, frames: list[bytes], size: int) -> None:
        self.stats.received(len(frames), size)
        if not frames:
            return
        if self._connecting is None:
            self._connect(decode_connect(frames.pop(0)))
        if self.is_over or self._closes_session or self._is_finishing:
            return
        session = self._session
        if session is None:
            self._keep(frames)
            return
        now = self._sessions.touch(session)
        if self._received.kept:
            self._keep(frames)
        elif now > session.sure_until:
            self._keep(frames)
            self._sessions.doubt(session, now)
        else:
            taken = self._take(frames, now)
            if taken < len(frames):
                self._keep(frames[taken:])

    def _keep(self, frames: list[bytes]) -> None:
        if not self.is_over and not self._closes_session:
            self._received.keep(frames)

    def _take_kept(self) -> None:
        kept, session = self._received.kept, self._session
        if kept and session is not None:
            now = self._sessions.touch(session)
            if now > session.sure_until:
                self._sessions.doubt(session, now)
                return
            taken = self._take(kept, now)
            if taken and not self.is_over:
                self._received.taken(taken)

    def _take(self, frames: list[bytes], now: float) -> int:
        """Take requests in order, and say how many: fewer if the rest has to wait, or if it is over."""
        pending, pipeline = self._pending, self._pipeline
        if not self._can_write:
            return 0  # `resume` will have the rest taken
        self._came_alone = len(frames) == 1
        for index, frame in enumerate(frames):
            if pending and not self._may_take_more():
                return index
            if index == _REQUESTS_AT_ONCE:
                self._go_on_later()
                return index
            if len(frame) < _HEADER_SIZE:
                raise ProtocolError(f"a request of {len(frame)} bytes has no header")
            xid, op = _header(frame)
            if self._read_only is not None and op in NOT_READ_ONLY_OPS:
                self._reply(xid, Op.ERROR, Err.NOT_READ_ONLY, b"", now, now)
                continue
            try:
                request = decode_request(op, frame, _HEADER_SIZE)
            except ProtocolError:
                self._take_malformed(xid, op, len(frame), now)
                continue
            kind = type(request)
            if isinstance(request, PlainWrite) or kind in _WRITES:
                write = self._queue(xid, op, request, len(frame), now)
                write.is_pending = True
                pipeline.submit(cast(Write, request), self, write)
            elif kind is Auth:
                self._authenticate(xid, cast(Auth, request), now)
            elif kind is Sasl:
                self._reply(xid, op, 0, _NO_TOKEN, now, now, zxid=0)
            elif pending:
                self._queue(xid, op, request, len(frame), now)
            else:
                self._answer(xid, op, request, now, now)
            if self._output_bytes > _OUTPUT_BYTES and not self.flush():
                return index + 1
            if self.is_over:
                return index + 1
        return len(frames)

    def _may_take_more(self) -> bool:
        """While something is unanswered: not if too much is, and nothing behind a closeSession."""
        if self._closes_session:
            return False
        if not self._throttle.is_full:
            return True
        self._face.stats.request_throttle_wait_count += 1
        return False  # the rest is taken when the first of what is unanswered has been answered

    def _queue(
        self, xid: int, op: int, request: Request | None, size: int, now: float
    ) -> PendingRequest:
        queued = PendingRequest(self, xid, op, request, size, now)
        self._pending.append(queued)
        self._throttle.count += 1
        self._throttle.size += size
        if op == _CLOSE_SESSION:
            self._closes_session = True
        return queued

    def _take_malformed(self, xid: int, op: int, size: int, now: float) -> None:
        if op in (Op.AUTH, Op.SASL):
            raise ProtocolError("its authentication cannot be read")
        if self._pending:
            self._queue(xid, op, None, size, now)
        else:
            self._answer(xid, op, None, now, now)

    def _authenticate(self, xid: int, request: Auth, now: float) -> None:
        """Answered at once and with a zxid of 0, as there."""
        try:
            added = acl.add_auth(
                request.scheme,
                request.auth,
                self.address,
                super_digest=self._face.settings.super_digest,
            )
            if not set(added) <= set(self.ids):
                self.ids = acl.with_identities(self.ids, added)
                if len(self.ids) > IDENTITIES_MAX:
                    raise ZkError(Err.AUTH_FAILED)
        except ZkError as error:
            self._face.stats.auth_failed_count += 1
            self._reply(xid, Op.AUTH, error.code, b"", now, now, zxid=0)
            self.hang_up(f"it did not prove to be anybody with the scheme {request.scheme[:32]!r}")
        else:
            self._reply(xid, Op.AUTH, 0, b"", now, now, zxid=0)

    # -- answers -----------------------------------------------------------------------------

    def _answer(self, xid: int, op: int, request: Request | None, started: float, now: float) -> None:
        """The turn of a request has come that is not a write.  None is one that could not be read."""
        err, body = 0, b""
        kind = type(request)
        if kind in _READS:
            try:
                body = self._reads.answer(cast(ReadRequest, request), self)
            except ZkError as error:
                err = error.code
        elif kind is Ping:
            xid = XID_PING
        elif kind is CloseSession:
            self._close_session(xid, started)
            return
        elif kind is Reconfig:
            err = Err.RECONFIG_DISABLED
        elif op == Op.DELETE_CONTAINER:
            err = Err.BAD_ARGUMENTS  # the server's own; ZooKeeper never finds a path in a client's
        elif kind is Unknown:
            self._reply(xid, op, Err.UNIMPLEMENTED, b"", started, now, zxid=-1)
            self.hang_up(f"there is no operation {op}")
            return
        else:
            assert request is None
            err = Err.MARSHALLING_ERROR
        self._reply(xid, op, err, body, started, now)

    def _close_session(self, xid: int, started: float) -> None:
        """Nothing is taken behind it, so when its outcome comes everything has been answered."""
        if self._read_only is not None:
            self._close_read_only(xid, self._read_only, started)
            return
        write = self._queue(xid, Op.CLOSE_SESSION, None, 0, started)
        write.is_pending = True
        self._pipeline.submit(CloseSession(), self, write)

    def _close_read_only(self, xid: int, sessions: ReadOnlySessions, started: float) -> None:
        assert self._session is not None
        now = self._face.clock.now()
        if sessions.close(self._session):
            self._reply(xid, Op.CLOSE_SESSION, 0, b"", started, now)
            self._end()
        else:
            self._reply(xid, Op.ERROR, Err.NOT_READ_ONLY, b"", started, now)

    def settled(self, write: PendingRequest) -> None:
        """The replica has carried out a write."""
        if self.is_over:
            return
        if write.outcome is None:
            self.hang_up("it is not known what became of a request of it")
        elif self._pending[0] is not write:
            pass  # it is answered when its turn comes
        elif self.is_busy:
            self._advance()
        else:
            self.is_busy = True
            try:
                self._advance()
            except Exception as error:  # noqa: BLE001 (it is logged)
                self._stumbled(error)
            finally:
                self.is_busy = False
            if self._received.kept:
                self._go_on_later()
            else:
                self._flush_later()

    def _advance(self) -> None:
        """Answer from the front, up to a write that is not done."""
        pending, throttle = self._pending, self._throttle
        if not pending:
            return
        now = self._now()
        while pending and self._can_write and not pending[0].is_pending:
            write = pending[0]
            del pending[0]
            throttle.count -= 1
            throttle.size -= write.size
            outcome = write.outcome
            if write.ready_reply is not None and outcome is not None:
                self._has_replied(write, write.ready_reply, now)
            elif outcome is None:
                self._answer(write.xid, write.op, write.request, write.started, now)
            else:
                op = _ERROR if outcome.err else write.op
                self._reply(write.xid, op, outcome.err, outcome.body, write.started, now, wrote=True)
                if write.op == _CLOSE_SESSION:
                    logger.debug("%s closed its session %x", self.stats.address, self.session_id)
                    self._end()
            if self.is_over:
                return
            if self._output_bytes > _OUTPUT_BYTES:
                self.flush()
        if self._is_finishing and not pending:
            self.hang_up("this server stops")

    def _reply(
        self,
        xid: int,
        op: int,
        err: int,
        body: bytes,
        started: float,
        now: float,
        *,
        wrote: bool = False,
        zxid: int | None = None,
    ) -> None:
        """The zxid is the newest that this server has applied: all its events have gone out."""
        if zxid is None:
            zxid = self._tree.zxid
        reply = encode_reply(xid, zxid, err, body)
        size = len(reply)
        self._output.append(reply)
        self._output_bytes += size
        self.stats.answered(op, xid, zxid, size, started, now, wrote)

    # -- replies that other threads send -----------------------------------------------------

    def reply_ahead(self, write: PendingRequest, zxid: int, body: bytes) -> Reply | None:
        """The only pending request will end so: its reply, for another thread to send.

        Until that is settled nothing else may be sent.  No event may come: a client that watches
        anything is answered by the loop, which keeps the order.  So is one that has sent several
        requests together, with one send for all of them.
        """
        if not self._came_alone or len(self._pending) != 1 or self.is_over:
            return None
        if self._output or not self._can_write:
            return None
        if self._watches.is_any and self._watches.has(self):
            return None
        reply = self._replies.offer(encode_reply(write.xid, zxid, 0, body))
        self._reply_is_due = False  # one before it has been settled
        write.ready_reply = reply
        return reply

    def _has_replied(self, write: PendingRequest, reply: Reply, now: float) -> None:
        """The write that has such a reply is durable."""
        if self._replies.finish(reply):
            self._reply_is_due = True
        else:
            self._put_out(reply.data)
        self.stats.answered(
            write.op, write.xid, self._tree.zxid, len(reply.data), write.started, now, True
        )

    def _put_out(self, data: bytes) -> None:
        self._output.append(data)
        self._output_bytes += len(data)

    def _go_on_later(self) -> None:
        if not self._go_on_due:
            self._go_on_due = True
            self._face.go_on_soon(self)

    def _flush_later(self) -> None:
        if not self._flush_due and (self._output or self._reply_is_due):
            self._flush_due = True
            self._face.flush_soon(self)

    # -- events ------------------------------------------------------------------------------

    def event(self, frame: bytes, node_acl: tuple[Acl, ...]) -> None:
        """A watch fired.  A client that may not read the znode does not get the event."""
        if self.is_over or not acl.check(
            node_acl, _READ, self.ids, self.address, skip_acl=self._face.settings.skip_acl
        ):
            return
        self._put_out(frame)
        self.stats.notified(len(frame))
        if not self._can_write:
            self._unread_bytes += len(frame)
            if self._unread_bytes > UNREAD_EVENTS_BYTES_MAX:
                self.hang_up(f"it has left {self._unread_bytes:,} bytes of events unread")
                return
        if not self.is_busy:
            self._flush_later()
