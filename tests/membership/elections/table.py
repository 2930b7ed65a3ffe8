"""A table at which peers sit: messages arrive at once and in order, unless a test says otherwise."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable

from quoracy.membership.elections import Elector, LeaderElected, LeaderLost, SaveVote
from quoracy.membership.machine import Effect, SendPacket, SendStream, Tell

__all__ = ["Table"]


class Table:
    """Peers, the time, and what was said.

    dead: gets nothing and does nothing; a reliable message to it fails at once if `refuses`, else
    never. drops: what is asked of every message (sender, receiver, bytes); True loses it.
    """

    def __init__(self, electors: Iterable[Elector], *, refuses: bool = True) -> None:
        self.peers = {elector.name: elector for elector in electors}
        self.now = 0.0
        self.dead: set[str] = set()
        self.drops: Callable[[str, str, bytes], bool] = lambda *_: False
        self.sent: Counter[str] = Counter()  # streams and packets
        self.events: list[tuple[str, LeaderElected | LeaderLost | SaveVote]] = []
        self._refuses = refuses
        self._under_way: deque[tuple[str, SendPacket | SendStream]] = deque()

    def start(self, *names: str) -> None:
        """Start these, or all, at the same moment."""
        for name in names or tuple(self.peers):
            self.do(name, self.peers[name].start(self.now), deliver=False)
        self.deliver()

    def do(self, name: str, effects: list[Effect], *, deliver: bool = True) -> None:
        """Carry out what a peer wants."""
        for effect in effects:
            if isinstance(effect, Tell):
                assert isinstance(effect.event, LeaderElected | LeaderLost | SaveVote)
                self.events.append((name, effect.event))
            else:
                self.sent["stream" if isinstance(effect, SendStream) else "packet"] += 1
                self._under_way.append((name, effect))
        if deliver:
            self.deliver()

    def deliver(self) -> None:
        """Until nothing is under way."""
        steps = 0
        while self._under_way:
            steps += 1
            assert steps < 100_000, "the messages do not end"
            sender, message = self._under_way.popleft()
            if sender not in self.dead:
                self._arrive(sender, message)

    def _arrive(self, sender: str, message: SendPacket | SendStream) -> None:
        to = message.to
        if to in self.dead or to not in self.peers:
            if self._refuses and isinstance(message, SendStream):
                self.do(sender, self.peers[sender].unreachable(to, self.now), deliver=False)
        elif not self.drops(sender, to, message.data):
            receive = self.peers[to].receive_stream
            if isinstance(message, SendPacket):
                receive = self.peers[to].receive
            self.do(to, receive(message.data, sender, self.now), deliver=False)

    def run(self, until: float) -> None:
        """Let time pass: everyone ticks when it is due."""
        while (due := min(self._dues(), default=until)) < until:
            self.now = max(self.now, due)
            for name, peer in self.peers.items():
                if name not in self.dead and peer.next_due <= self.now:
                    self.do(name, peer.tick(self.now))
        self.now = until

    def _dues(self) -> list[float]:
        return [peer.next_due for name, peer in self.peers.items() if name not in self.dead]

    @property
    def leaders(self) -> dict[str, str | None]:
        """Whom each living peer follows."""
        return {name: peer.leader for name, peer in self.peers.items() if name not in self.dead}

    @property
    def terms(self) -> set[int]:
        return {peer.term for name, peer in self.peers.items() if name not in self.dead}
