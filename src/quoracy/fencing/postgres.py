"""A gate in PostgreSQL: one table, and one statement for your own transaction.

The statement raises the highest to the token and returns what it is then; a token smaller than that is
stale.  It locks the resource's row until the transaction ends, whether the token is new or not, so
no other token is admitted between the check and the commit of the write it guards.

    admit_in_postgres       any DB-API cursor that takes %(name)s: psycopg, psycopg2
    POSTGRES_ADMIT          %(resource)s, %(token)s: the same for an AsyncCursor of psycopg
    POSTGRES_ADMIT_NUMBERED $1, $2: asyncpg
    POSTGRES_ADMIT_NAMED    :resource, :token: SQLAlchemy's text()

After a statement that you run without the helper, pass its result to `refuse_stale`.

Invariants
    * The guarded write commits together with the token that admitted it, or neither does.
    * READ COMMITTED is enough.  In REPEATABLE READ and SERIALIZABLE a loser gets a serialization
      failure in place of an answer: begin that transaction again, from the check on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, LiteralString, Protocol

from quoracy.errors import InvalidRequest
from quoracy.fencing.gate import refuse_stale, require_valid

__all__ = [
    "POSTGRES_ADMIT",
    "POSTGRES_ADMIT_NAMED",
    "POSTGRES_ADMIT_NUMBERED",
    "POSTGRES_TABLE",
    "Cursor",
    "admit_in_postgres",
]

POSTGRES_TABLE: Final[LiteralString] = """\
CREATE TABLE IF NOT EXISTS quoracy_fencing (
    resource text PRIMARY KEY,
    token bigint NOT NULL CHECK (token >= 0)
)
"""

_ADMIT: Final[LiteralString] = """\
INSERT INTO quoracy_fencing AS gate (resource, token) VALUES ({resource}, {token})
ON CONFLICT (resource) DO UPDATE SET token = greatest(gate.token, excluded.token)
RETURNING token
"""

POSTGRES_ADMIT: Final[LiteralString] = _ADMIT.format(resource="%(resource)s", token="%(token)s")
POSTGRES_ADMIT_NUMBERED: Final[LiteralString] = _ADMIT.format(resource="$1", token="$2")
POSTGRES_ADMIT_NAMED: Final[LiteralString] = _ADMIT.format(resource=":resource", token=":token")

# libpq's PQTRANS_IDLE, which psycopg and psycopg2 report: the connection is in no transaction.
_IDLE = 0


class Cursor(Protocol):
    """A DB-API cursor, as far as it is needed here."""

    def execute(self, query: LiteralString, params: Mapping[str, object], /) -> object:
        """Run a statement with named parameters."""

    def fetchone(self) -> Sequence[object] | Mapping[str, object] | None:
        """The next row."""


def admit_in_postgres(cursor: Cursor, resource: str, token: int) -> None:
    """Admit the token in the cursor's transaction; write, then commit.

        with psycopg.connect(...) as connection, connection.cursor() as cursor:
            admit_in_postgres(cursor, "orders", held.token)
            cursor.execute("UPDATE orders SET ...")

    Needs the table, POSTGRES_TABLE, which belongs to your migrations.  Raises `StaleToken`: roll back.
    Raises `InvalidRequest` if it can see that the connection commits each statement on its own; not
    every driver shows that, so make sure that it is in a transaction.

    A transaction that admits to several resources asks for them in the same order everywhere, or two of
    them may wait for each other and PostgreSQL ends one.
    """
    require_valid(resource, token)
    if _commits_each_statement(cursor):
        raise InvalidRequest(
            "this connection is in autocommit mode and in no transaction, so a stale write could get "
            "between the check and yours. Open a transaction around both."
        )
    cursor.execute(POSTGRES_ADMIT, {"resource": resource, "token": token})
    row = cursor.fetchone()
    assert row is not None, "INSERT ... ON CONFLICT DO UPDATE ... RETURNING returns one row"
    highest = row["token"] if isinstance(row, Mapping) else row[0]
    assert isinstance(highest, int)
    refuse_stale(resource, token=token, highest=highest)


def _commits_each_statement(cursor: Cursor) -> bool:
    connection: object = getattr(cursor, "connection", None)
    status: object = getattr(getattr(connection, "info", None), "transaction_status", None)
    return getattr(connection, "autocommit", None) is True and status == _IDLE
