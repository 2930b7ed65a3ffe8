"""Asking a member how everybody is, without being one."""

from __future__ import annotations

import asyncio

from quoracy.errors import Unavailable
from quoracy.membership.machine import Address
from quoracy.membership.runtime.addresses import join_address, parse_address, resolve, source_towards
from quoracy.membership.runtime.control import REPORT_CHANNEL, AgentReport, Asker
from quoracy.membership.runtime.endpoint import open_endpoint
from quoracy.membership.runtime.keyring import KeyRing

__all__ = ["Asking"]


class Asking:
    """Asks one member, as often as you like.

    agent: HOST or HOST:PORT of a member.  keyring, label: those of its cluster.
    """

    def __init__(
        self,
        agent: str,
        *,
        keyring: KeyRing | None = None,
        label: str = "",
        timeout_s: float = 5.0,
    ) -> None:
        self._agent, self._timeout_s = agent, timeout_s
        self._keyring, self._label = keyring, label

    async def ask(self) -> AgentReport:
        """What the member has to tell.

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
        # The answer comes on our own connection, if we say truly where we are: see streams.py.
        async with open_endpoint(
            join_address(source, 0), keyring=self._keyring, label=self._label
        ) as endpoint:
            endpoint.attach(REPORT_CHANNEL, Asker(address), answer, on_unreachable=fail)
            return await answered
