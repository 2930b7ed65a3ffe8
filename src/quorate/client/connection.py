"""A connection: one session, and every recipe by name.

Made by `quorate.connect`.  Each method makes a small object and asks nobody anything; it may be kept
and shared.  The modules of recipes are imported when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.client.ground import Ground

if TYPE_CHECKING:
    from quorate.client.recipes.election import Election
    from quorate.client.recipes.lock import Lock

__all__ = ["Connection"]


class Connection(Ground):
    """What `quorate.connect` gives.  Lives on the loop and in the process it was made in.

    store: the store itself, for what no recipe does.
    """

    def lock(
        self,
        name: str,
        *,
        cancel_on_loss: bool = True,
        reentrant: bool = False,
        hold_max: float | None = None,
    ) -> Lock:
        """One at a time, in order of arrival, with a fencing token: `async with q.lock("x") as
        held`.
        """
        from quorate.client.recipes.lock import Lock

        return Lock(self, name, cancel_on_loss=cancel_on_loss, reentrant=reentrant, hold_max=hold_max)

    def election(self, name: str, *, cancel_on_loss: bool = True) -> Election:
        """One leads, the others stand by: `async with q.election("x").lead("me") as term`."""
        from quorate.client.recipes.election import Election

        return Election(self, name, cancel_on_loss=cancel_on_loss)

    def __repr__(self) -> str:
        return f"<Connection {self.identity} {self.state.value}>"
