"""The same steps on two servers, every answer compared at once.

After each step every connection sends a fence, so that an event is heard in the step that caused it.
The requester's fence goes right behind its requests; the others' when its answers are there, because
an event is on its way to everyone before the change is answered to the one who asked for it.

Several nodes of a cell count as one server, and the clients are spread over them: each connection goes
to the next, so that sessions move.  What one node has answered another may not have heard of yet, as in
a ZooKeeper ensemble.  There the fences are `sync`s, on both servers: whoever reads in the next step has
waited, as a client must who wants to see what another was told.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tests.differential.zk_agreement import Agreement, Difference
from tests.differential.zk_connection import (
    Closed,
    Connected,
    EventCame,
    Item,
    RawConnection,
    Replied,
    Tamper,
    as_it_is,
)
from tests.differential.zk_intended import EXISTS_NEEDS_READ
from tests.differential.zk_requests import Mark, Op, Request, encode
from tests.differential.zk_seen import Seen, seen
from tests.differential.zk_steps import As, Ask, Connect, Hangup, SendRaw, Step

__all__ = ["SUPER_PASSWORD", "Lockstep", "Server"]

SUPER_PASSWORD = "for tests"
_FUTURE_ZXID = 1 << 62
# Nobody asks for one twice: ZooKeeper has one connection for a session, even for one that is none.
_unknown_sessions = itertools.count(0x0123_4567_89AB_0000)
_DATA_WATCHES = 2
_WRONG_PASSWORD = b"wrong" + bytes(11)


@dataclass(frozen=True)
class Server:
    """One of the two; `tamper` changes what it says, to see whether that is noticed.

    `others` are the ports of further nodes with the same tree.
    """

    name: str
    port: int
    tamper: Tamper = as_it_is
    others: tuple[int, ...] = ()


@dataclass
class Session:
    id: int
    password: bytes


@dataclass
class Client:
    """One client of one server."""

    connection: RawConnection | None = None
    session: Session | None = None


@dataclass
class Side:
    """All clients of one server, and its names for sessions."""

    server: Server
    which: int
    clients: list[Client]
    syncs: bool = False
    opened: int = 0  # connections, so far
    names: dict[int, str] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)  # all that were ever made

    def owner(self, session_id: int) -> str:
        return "nobody" if session_id == 0 else self.names.get(session_id, f"unknown {session_id:#x}")


class Lockstep:
    """Two servers, first the real ZooKeeper, and what has been asked of them."""

    def __init__(self, theirs: Server, ours: Server, *, clients: int = 4, root: str = "/") -> None:
        """What is below `root` belongs to this one alone, and is deleted between sequences."""
        self._root = root
        syncs = bool(theirs.others or ours.others)
        self.sides = tuple(
            Side(server, which, [Client() for _ in range(clients)], syncs)
            for which, server in enumerate((theirs, ours))
        )
        self.intended: Counter[str] = Counter()
        self._agreement = Agreement(self.intended)
        self._ended: list[int] = []  # indexes of sessions that were closed
        self._opening: list[RawConnection] = []  # connections that belong to no client yet
        self.asked: Counter[str] = Counter()
        self.answered: Counter[tuple[str, int]] = Counter()
        self.events: Counter[int] = Counter()
        self.requests = 0
        self.told: list[tuple[int, Seen]] = []  # what each client was told, in the sequence so far

    # -- steps -------------------------------------------------------------------------------

    def take(self, step: Step) -> list[Seen]:
        """Take one step on both; what the client was told by ZooKeeper, and by ours too."""
        match step:
            case Connect():
                return self._connect(step)
            case Ask():
                return self._ask(step)
            case SendRaw():
                return self._send_raw(step)
            case Hangup():
                self._drop(step.client)
                return []

    def take_all(self, steps: Iterable[Step]) -> None:
        """Take them; a difference carries the number of its step."""
        for number, step in enumerate(steps):
            try:
                self.take(step)
            except AssertionError as error:
                error.add_note(f"at step {number}: {step}")
                error.step = number  # type: ignore[attr-defined]
                raise

    def _ask(self, step: Ask) -> list[Seen]:
        if not self._is_connected(step.client):
            return []
        for side in self.sides:
            connection = side.clients[step.client].connection
            assert connection is not None
            connection.ask([(request, self._encoded(side, request)) for request in step.requests])
            if not step.may_hang_up:
                connection.send_fence()
        self.requests += len(step.requests)
        self.asked.update(request.name for request in step.requests)
        closes = any(request.op == Op.CLOSE_SESSION for request in step.requests)
        answer = self._heard(step.client, closes, fenced=not step.may_hang_up)
        if closes:
            self._note_ended(step.client)
        self._hear_others(step.client, closes)
        return answer

    def _send_raw(self, step: SendRaw) -> list[Seen]:
        if not self._is_connected(step.client):
            return []
        for side in self.sides:
            connection = side.clients[step.client].connection
            assert connection is not None
            connection.send_raw(step.data)
            connection.send_fence()
        answer = self._heard(step.client, False)
        self._hear_others(step.client, False)
        return answer

    def _connect(self, step: Connect) -> list[Seen]:
        """A connection that is not refused takes the place of the client's own."""
        if step.as_ is As.BACK:
            has_one = self.sides[0].clients[step.client].session is not None
            step = replace(step, as_=As.OWN if has_one else As.NEW)
        answers: list[Connected | Closed] = []
        told: list[list[Item]] = []
        for side in self.sides:
            session_id, password = self._credentials(side, step)
            last_zxid = step.last_zxid
            connection = self._opened(side)
            answer = connection.connect(
                timeout_ms=step.timeout_ms,
                read_only=step.read_only,
                session_id=session_id,
                password=password,
                last_zxid=self._zxid(side, last_zxid) if isinstance(last_zxid, Mark) else last_zxid,
            )
            answers.append(answer)
            refused = isinstance(answer, Connected) and answer.session_id == 0
            told.append([answer, connection.next_item()] if refused else [answer])
        made = all(isinstance(answer, Connected) and answer.session_id for answer in answers)
        if made and step.as_ is As.NEW:
            self._note_made(answers)
        self.asked["connect"] += 1
        heard = self._compared(step.client, told, any_order=False)
        if not made:
            self._close_opening()
            self._hear_others(-1, False)
            return heard
        if step.as_ is As.OWN:
            # The server hangs up on the connection that the session had.
            self._hear_others(-1, False)
        self._drop(step.client)
        for side, connection in zip(self.sides, self._opening, strict=True):
            client = side.clients[step.client]
            client.connection = connection
            if step.as_ is As.NEW:
                client.session = side.sessions[-1]
        self._opening.clear()
        self._hear_others(-1, False)
        return heard

    def _opened(self, side: Side) -> RawConnection:
        server = side.server
        ports = (server.port, *server.others)
        port = ports[side.opened % len(ports)]
        side.opened += 1
        self._opening.append(RawConnection(server.name, port, server.tamper, syncs=side.syncs))
        return self._opening[-1]

    def _close_opening(self) -> None:
        for connection in self._opening:
            connection.close()
        self._opening.clear()

    # -- hearing -----------------------------------------------------------------------------

    def wait_for_events(self, number: int, count: int) -> list[Seen]:
        """What nobody asked for just now: that many events, in any order."""
        told: list[list[Item]] = []
        for side in self.sides:
            connection = side.clients[number].connection
            assert connection is not None
            told.append([connection.next_item() for _ in range(count)])
        return self._compared(number, told, any_order=True)

    def ask_and_wait(self, number: int, request: Request, count: int) -> list[Seen]:
        """One request, and that many events that come behind its answer: at once, or after a while."""
        told: list[list[Item]] = []
        for side in self.sides:
            connection = side.clients[number].connection
            assert connection is not None
            connection.ask([(request, self._encoded(side, request))])
            told.append([connection.next_item() for _ in range(1 + count)])
        self.requests += 1
        self.asked[request.name] += 1
        return self._compared(number, told, any_order=True)

    def _hear_others(self, asker: int, any_order: bool) -> None:
        connected = [
            number
            for number in range(len(self.sides[0].clients))
            if number != asker and self._is_connected(number)
        ]
        for side in self.sides:
            for number in connected:
                connection = side.clients[number].connection
                assert connection is not None
                connection.send_fence()
        for number in connected:
            self._heard(number, any_order)

    def _heard(self, number: int, any_order: bool, *, fenced: bool = True) -> list[Seen]:
        """What both told that client before its fence."""
        told: list[list[Item]] = []
        for side in self.sides:
            connection = side.clients[number].connection
            assert connection is not None
            told.append(connection.fenced() if fenced else connection.answered())
        for side, items in zip(self.sides, told, strict=True):
            if isinstance(items[-1] if items else None, Closed):
                connection = side.clients[number].connection
                assert connection is not None
                connection.close()
                side.clients[number].connection = None
        try:
            return self._compared(number, told, any_order=any_order)
        except Difference as difference:
            difference.add_note(f"told client {number}")
            raise

    def _compared(self, number: int, told: list[list[Item]], *, any_order: bool) -> list[Seen]:
        theirs, ours = (
            seen(items, side.owner, any_order=any_order)
            for side, items in zip(self.sides, told, strict=True)
        )
        found = self._agreement.compare(theirs, ours)
        if EXISTS_NEEDS_READ in found:
            self._forget_watches(number, theirs)
        self.told += [(number, one) for one in theirs]
        for one in theirs:
            match one.item:
                case Replied(request=Request() as request, err=err):
                    self.answered[request.name, err] += 1
                    for part in one.reading.shape if request.op in (Op.MULTI, Op.MULTI_READ) else ():
                        if isinstance(part, tuple) and part[:1] == ("error",):
                            self.answered[f"{request.name} part", part[1]] += 1
                case EventCame():
                    self.events[one.shape[3][0]] += 1
        return theirs

    def _forget_watches(self, number: int, answers: list[Seen]) -> None:
        """One server has left a watch where the other refused to: now neither has."""
        asked = [one.item.request for one in answers if isinstance(one.item, Replied)]
        paths = [
            request.values[0]
            for request in asked
            if request is not None and request.op == Op.EXISTS and request.values[1]
        ]
        for side in self.sides:
            connection = side.clients[number].connection
            if connection is not None:
                removals = [Request(Op.REMOVE_WATCHES, (path, _DATA_WATCHES)) for path in paths]
                connection.ask([(request, self._encoded(side, request)) for request in removals])
                connection.send_fence()
                connection.fenced()

    # -- sessions ----------------------------------------------------------------------------

    def _is_connected(self, number: int) -> bool:
        if not 0 <= number < len(self.sides[0].clients):
            return False
        there = [side.clients[number].connection is not None for side in self.sides]
        assert there[0] == there[1], f"client {number} is connected to one server only"
        return there[0]

    def _drop(self, number: int) -> None:
        for side in self.sides:
            client = side.clients[number]
            if client.connection is not None:
                client.connection.close()
                client.connection = None

    def _note_made(self, answers: list[Connected | Closed]) -> None:
        for side, answer in zip(self.sides, answers, strict=True):
            assert isinstance(answer, Connected)
            side.names[answer.session_id] = f"session {len(side.sessions)}"
            side.sessions.append(Session(answer.session_id, answer.password or b""))

    def _note_ended(self, number: int) -> None:
        session = self.sides[0].clients[number].session
        if session is not None and self.sides[0].clients[number].connection is None:
            self._ended.append(self.sides[0].sessions.index(session))
            for side in self.sides:
                side.clients[number].session = None

    def _credentials(self, side: Side, step: Connect) -> tuple[int, bytes | None]:
        own = side.clients[step.client].session
        unknown = (next(_unknown_sessions), _WRONG_PASSWORD)
        match step.as_:
            case As.NEW:
                return 0, bytes(16)
            case As.UNKNOWN:
                return unknown
            case As.ENDED:
                if not self._ended:
                    return unknown
                ended = side.sessions[self._ended[-1]]
                return ended.id, ended.password
            case As.OTHERS:
                other = side.clients[(step.client + 1) % len(side.clients)].session
                if other is None:
                    return unknown
                return other.id, own.password if own is not None else _WRONG_PASSWORD
            case _:
                if own is None:
                    return unknown
                passwords = {
                    As.OWN: own.password,
                    As.OWN_WRONG_PASSWORD: _WRONG_PASSWORD,
                    As.OWN_SHORT_PASSWORD: own.password[:8],
                    As.OWN_NO_PASSWORD: None,
                }
                return own.id, passwords[step.as_]

    # -- zxids -------------------------------------------------------------------------------

    def _encoded(self, side: Side, request: Request) -> bytes:
        return encode(request, lambda mark: self._zxid(side, mark))

    def _zxid(self, side: Side, mark: Mark) -> int:
        changes = self._agreement.changes
        return changes[mark.index % len(changes)][side.which] if mark.index >= 0 else _FUTURE_ZXID

    # -- between sequences -------------------------------------------------------------------

    def begin(self) -> None:
        """No client is connected, no session and no node is left of what was before."""
        self.close()
        ended = set(self._ended)
        for side in self.sides:
            for index, session in enumerate(side.sessions):
                if index not in ended:
                    _close_session(side, session)
            _delete_everything(side, self._root)
            side.names.clear()
            side.sessions.clear()
            for client in side.clients:
                client.session = None
        self._ended.clear()
        self.told.clear()
        self._agreement = Agreement(self.intended)

    def beside(self, root: str) -> Lockstep:
        """The same servers, for someone who works in another part of their trees."""
        theirs, ours = (side.server for side in self.sides)
        return Lockstep(theirs, ours, root=root)

    def lying(self, tamper: Tamper) -> Lockstep:
        """The same servers, but what the second says goes through `tamper`."""
        theirs, ours = (side.server for side in self.sides)
        return Lockstep(theirs, replace(ours, tamper=tamper))

    def close(self) -> None:
        self._close_opening()
        for number in range(len(self.sides[0].clients)):
            self._drop(number)


def _close_session(side: Side, session: Session) -> None:
    connection = RawConnection(side.server.name, side.server.port)
    answer = connection.connect(session_id=session.id, password=session.password)
    if isinstance(answer, Connected) and answer.session_id:
        connection.ask([(Request(Op.CLOSE_SESSION), b"")])
        while not isinstance(connection.next_item(), Closed):
            pass
    connection.close()


def _delete_everything(side: Side, root: str) -> None:
    """As the super user, whom no ACL stops."""
    connection = RawConnection(side.server.name, side.server.port)
    connection.connect()

    def ask(request: Request) -> Seen:
        connection.ask([(request, encode(request, lambda mark: 0))])
        return Seen(connection.next_item(), side.owner)

    def delete_below(path: str) -> None:
        for (names,) in [ask(Request(Op.GET_CHILDREN, (path, False))).reading.shape or ((),)]:
            for name in names:
                child = f"{path.rstrip('/')}/{name}"
                if child != "/zookeeper":
                    delete_below(child)
                    ask(Request(Op.DELETE, (child, -1)))

    ask(Request(Op.AUTH, (0, "digest", f"super:{SUPER_PASSWORD}".encode()), xid=-4))
    delete_below(root)
    if root != "/":
        ask(Request(Op.DELETE, (root, -1)))
    connection.ask([(Request(Op.CLOSE_SESSION), b"")])
    while not isinstance(connection.next_item(), Closed):
        pass
    connection.close()
