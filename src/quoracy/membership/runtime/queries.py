"""Queries of a running member: the reports that `quoracy members` shows, both sides.

A question and its answer are msgpack, versioned by their tags, on a channel of the member's own port.
Both sides are machines.  The side that asks need not be a member, but it needs the key, if there is
one.

Invariants
    * A query changes nothing.
    * A report is made at most once in `REPORT_AGE_S`; queries in between get the same one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import msgspec

from quoracy.errors import ProtocolError, Unavailable
from quoracy.membership.codec import decode
from quoracy.membership.machine import Address, Effect, SendStream, Tell
from quoracy.membership.runtime.addresses import join_address, parse_address, resolve, source_towards
from quoracy.membership.runtime.endpoint import open_endpoint
from quoracy.membership.runtime.keyring import KeyRing

__all__ = [
    "REPORT_AGE_S", "REPORT_CHANNEL", "AgentQuery", "AgentReport", "Asker", "MemberReport", "Reporter",
]  # fmt: skip

REPORT_CHANNEL = 6
REPORT_AGE_S = 0.1


class MemberReport(msgspec.Struct, frozen=True, kw_only=True):
    """One member, as the member that was asked sees it.

    state: alive, suspect, dead or left.  since_s: for how long it has been that.
    heard_s: how long ago it was heard from directly; phi: how improbable that silence is (0 is not at
    all, 8 is one in a hundred million); rtt_s: how long its answers take.  None: not known, as for the
    member itself.
    """

    name: str
    address: Address
    state: str
    incarnation: int
    since_s: float | None = None
    heard_s: float | None = None
    phi: float | None = None
    rtt_s: float | None = None
    meta: dict[str, str] = {}
    meta_bytes: bytes = b""


class AgentReport(msgspec.Struct, frozen=True, kw_only=True, tag="report/1"):
    """What a member reports.

    name, address: its own.  health: its local health score; 0 is healthy.  uptime_s: since its start.
    is_encrypted: whether there is a key.  protocol, traffic, dropped: counters by name since it began.
    """

    name: str
    address: Address
    uptime_s: float
    health: int
    health_max: int
    is_encrypted: bool
    members: list[MemberReport]
    protocol: dict[str, int]
    traffic: dict[str, int]
    dropped: dict[str, int]


class _ReportWanted(msgspec.Struct, frozen=True, tag="report?/1"):
    """How is everybody?"""


_questions = msgspec.msgpack.Decoder(_ReportWanted)
_reports = msgspec.msgpack.Decoder(AgentReport)


class _StreamMachine:
    """A `Machine` that does nothing but answer on streams."""

    def __init__(self) -> None:
        self.next_due = math.inf

    def start(self, now: float) -> list[Effect]:  # noqa: ARG002 (as Machine has it)
        return []

    def tick(self, now: float) -> list[Effect]:  # noqa: ARG002
        return []

    def receive(self, data: bytes, sender: Address, now: float) -> list[Effect]:  # noqa: ARG002
        raise ProtocolError("reports and questions come on streams")

    def unreachable(self, to: Address, now: float) -> list[Effect]:  # noqa: ARG002
        return []


class Reporter(_StreamMachine):
    """Answers all queries."""

    def __init__(self, report: Callable[[], AgentReport]) -> None:
        super().__init__()
        self._report = report
        self._encoded = b""
        self._made_at = -math.inf

    def receive_stream(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        decode(_questions, data, "not a question that a member answers")
        if now - self._made_at >= REPORT_AGE_S:
            self._encoded, self._made_at = msgspec.msgpack.encode(self._report()), now
        return [SendStream(sender, self._encoded)]


class Asker(_StreamMachine):
    """Asks one member once; its event is the `AgentReport`."""

    def __init__(self, agent: Address) -> None:
        super().__init__()
        self._agent = agent

    def start(self, now: float) -> list[Effect]:  # noqa: ARG002
        return [SendStream(self._agent, msgspec.msgpack.encode(_ReportWanted()))]

    def receive_stream(self, data: bytes, sender: Address, now: float) -> list[Effect]:  # noqa: ARG002
        return [Tell(decode(_reports, data, "not a report that this version understands"))]


class AgentQuery:
    """A query to one member, which can be repeated; the caller need not be a member.

    agent: HOST or HOST:PORT of a member.  keyring, label: those of its cluster.
    """

    def __init__(
        self, agent: str, *, keyring: KeyRing | None = None, label: str = "", timeout_s: float = 5.0
    ) -> None:
        self._agent, self._timeout_s = agent, timeout_s
        self._keyring, self._label = keyring, label

    async def ask(self) -> AgentReport:
        """Ask for the report.

        Raises `Unavailable` if it is not there or does not let us in, `TimeoutError` if it is silent.
        """
        reasons = []
        try:
            async with asyncio.timeout(self._timeout_s):
                for address in await resolve(self._agent):  # a name may stand for several
                    try:
                        return await self._ask_at(address)
                    except Unavailable as error:
                        reasons.append(str(error))
        except TimeoutError as error:
            raise TimeoutError(
                f"no answer from {self._agent} within {self._timeout_s:g} s. "
                "Is it overloaded, or is something in between?"
            ) from error
        raise Unavailable(
            f"no member answers at {self._agent} ({', '.join(dict.fromkeys(reasons))}). "
            "Is an agent running there, with the same key and the same label?"
        )

    async def _ask_at(self, address: Address) -> AgentReport:
        answered: asyncio.Future[AgentReport] = asyncio.get_running_loop().create_future()

        def answer(event: object) -> None:
            assert isinstance(event, AgentReport)
            if not answered.done():
                answered.set_result(event)

        def fail(to: Address, reason: str) -> None:
            if not answered.done():
                answered.set_exception(Unavailable(f"{to}: {reason}"))

        source = source_towards(parse_address(address)[0])
        if source is None:
            raise Unavailable(f"{address}: there is no way there from this machine")
        # The answer comes back on our connection only if our address is the true one: see streams.py.
        async with open_endpoint(
            join_address(source, 0), keyring=self._keyring, label=self._label
        ) as endpoint:
            endpoint.attach(REPORT_CHANNEL, Asker(address), answer, on_unreachable=fail)
            return await answered
