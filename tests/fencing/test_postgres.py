"""The gate in PostgreSQL, on a real one."""

from __future__ import annotations

import threading

import psycopg
import pytest
from psycopg.rows import dict_row

from quoracy.errors import InvalidRequest, StaleToken
from quoracy.fencing import (
    POSTGRES_ADMIT,
    POSTGRES_ADMIT_NAMED,
    POSTGRES_ADMIT_NUMBERED,
    POSTGRES_TABLE,
    admit_in_postgres,
    refuse_stale,
)


def highest(where: str) -> list[int]:
    with psycopg.connect(where) as connection:
        return [token for (token,) in connection.execute("SELECT token FROM quoracy_fencing")]


def test_write_with_a_stale_token_is_rolled_back_with_the_rest_of_its_transaction(
    postgres: str,
) -> None:
    with psycopg.connect(postgres) as connection:
        admit_in_postgres(connection.cursor(), "orders", 5)
    with pytest.raises(StaleToken), psycopg.connect(postgres) as connection:
        connection.execute("INSERT INTO journal (resource, token) VALUES ('orders', 4)")
        admit_in_postgres(connection.cursor(), "orders", 4)
    with psycopg.connect(postgres) as connection:
        assert connection.execute("SELECT count(*) FROM journal").fetchall() == [(0,)]
    assert highest(postgres) == [5]


def test_token_is_forgotten_with_the_write_that_it_was_rolled_back_with(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        admit_in_postgres(connection.cursor(), "orders", 9)
        connection.rollback()
        admit_in_postgres(connection.cursor(), "orders", 5)
    assert highest(postgres) == [5]


@pytest.mark.parametrize("known", [None, 4, 5])
@pytest.mark.parametrize("token", [5, 6])
def test_nobody_is_admitted_between_a_check_and_its_commit(
    postgres: str, known: int | None, token: int
) -> None:
    if known is not None:
        with psycopg.connect(postgres) as connection:
            admit_in_postgres(connection.cursor(), "orders", known)
    with psycopg.connect(postgres) as first, psycopg.connect(postgres) as second:
        admit_in_postgres(first.cursor(), "orders", 5)
        second.execute("SET lock_timeout = '50ms'")
        second.commit()
        with pytest.raises(psycopg.errors.LockNotAvailable):
            admit_in_postgres(second.cursor(), "orders", token)
        second.rollback()
        first.commit()
        admit_in_postgres(second.cursor(), "orders", token)
        second.commit()


def test_whoever_waited_for_a_larger_token_is_refused_once_that_is_committed(postgres: str) -> None:
    outcome: list[object] = []

    def ask_with_4() -> None:
        with psycopg.connect(postgres) as connection:
            try:
                admit_in_postgres(connection.cursor(), "orders", 4)
            except StaleToken as stale:
                outcome.append(stale.highest)
                connection.rollback()

    with psycopg.connect(postgres) as first, psycopg.connect(postgres, autocommit=True) as watcher:
        admit_in_postgres(first.cursor(), "orders", 5)
        second = threading.Thread(target=ask_with_4)
        second.start()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while watcher.execute(waiting).fetchall() != [(1,)]:
            assert second.is_alive()
        first.commit()
        second.join(30)
    assert outcome == [5]


@pytest.mark.parametrize("level", list(psycopg.IsolationLevel))
def test_every_isolation_level_refuses_or_fails_but_never_admits_a_stale_token(
    postgres: str, level: psycopg.IsolationLevel
) -> None:
    with psycopg.connect(postgres) as connection:
        admit_in_postgres(connection.cursor(), "orders", 4)
    with psycopg.connect(postgres) as old, psycopg.connect(postgres) as new:
        old.isolation_level = level
        old.execute("SELECT token FROM quoracy_fencing")  # its snapshot is of now
        admit_in_postgres(new.cursor(), "orders", 5)
        new.commit()
        with pytest.raises((StaleToken, psycopg.errors.SerializationFailure)):
            admit_in_postgres(old.cursor(), "orders", 4)
        old.rollback()
        with pytest.raises(StaleToken):
            admit_in_postgres(old.cursor(), "orders", 4)
        old.rollback()


def test_connection_that_commits_each_statement_is_refused_before_anything_is_written(
    postgres: str,
) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        with pytest.raises(InvalidRequest, match="autocommit"):
            admit_in_postgres(connection.cursor(), "orders", 5)
        assert highest(postgres) == []
        with connection.transaction():
            admit_in_postgres(connection.cursor(), "orders", 5)
    assert highest(postgres) == [5]


def test_rows_may_be_dictionaries(postgres: str) -> None:
    with psycopg.connect(postgres, row_factory=dict_row) as connection:
        admit_in_postgres(connection.cursor(), "orders", 5)
        with pytest.raises(StaleToken):
            admit_in_postgres(connection.cursor(), "orders", 4)


def test_making_the_table_again_forgets_nothing(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        admit_in_postgres(connection.cursor(), "orders", 5)
        connection.execute(POSTGRES_TABLE)
    assert highest(postgres) == [5]


async def test_statement_serves_an_asynchronous_cursor(postgres: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgres) as connection:
        for token in (5, 4):
            cursor = await connection.execute(POSTGRES_ADMIT, {"resource": "orders", "token": token})
            assert await cursor.fetchall() == [(5,)]
    refuse_stale("orders", token=5, highest=5)
    with pytest.raises(StaleToken):
        refuse_stale("orders", token=4, highest=5)


def test_numbered_statement_is_what_postgresql_itself_takes(postgres: str) -> None:
    with psycopg.connect(postgres, cursor_factory=psycopg.RawCursor) as connection:  # as asyncpg
        for token in (5, 4):
            rows = connection.execute(POSTGRES_ADMIT_NUMBERED, ["orders", token]).fetchall()
            assert rows == [(5,)]


def test_forms_of_the_statement_differ_in_their_parameters_only() -> None:
    def plain(statement: str, resource: str, token: str) -> str:
        assert statement.count(resource) == 1
        assert statement.count(token) == 1
        return statement.replace(resource, "R").replace(token, "T")

    named = plain(POSTGRES_ADMIT_NAMED, ":resource", ":token")
    assert ":" not in named  # what SQLAlchemy would take for another parameter
    assert named == plain(POSTGRES_ADMIT, "%(resource)s", "%(token)s")
    assert named == plain(POSTGRES_ADMIT_NUMBERED, "$1", "$2")
