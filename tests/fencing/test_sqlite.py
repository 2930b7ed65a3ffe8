"""The gates in SQLite: what is theirs alone."""

from __future__ import annotations

import multiprocessing
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from quoracy.errors import DataUnreadable, InvalidRequest, StaleToken, Unavailable
from quoracy.fencing import SQLITE_ADMIT, SQLITE_TABLE, SqliteGate, admit_in_sqlite, sqlite


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A database with the gate's table and one of its user's."""
    path = tmp_path / "data.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(SQLITE_TABLE)
        connection.execute("CREATE TABLE account (balance INTEGER NOT NULL)")
        connection.execute("INSERT INTO account VALUES (0)")
    return path


def balance(data: Path) -> int:
    with closing(sqlite3.connect(data)) as connection:
        ((balance,),) = connection.execute("SELECT balance FROM account").fetchall()
        return int(balance)


def test_write_with_a_stale_token_is_rolled_back_with_the_rest_of_its_transaction(data: Path) -> None:
    with closing(sqlite3.connect(data)) as connection:
        with connection:
            admit_in_sqlite(connection, "account", 5)
            connection.execute("UPDATE account SET balance = 100")
        with pytest.raises(StaleToken), connection:
            connection.execute("UPDATE account SET balance = 7")
            admit_in_sqlite(connection, "account", 4)
    assert balance(data) == 100


def test_token_is_forgotten_with_the_write_that_it_was_rolled_back_with(data: Path) -> None:
    with closing(sqlite3.connect(data)) as connection:
        admit_in_sqlite(connection, "account", 9)
        connection.execute("UPDATE account SET balance = 9")
        connection.rollback()
        with connection:
            admit_in_sqlite(connection, "account", 5)
            connection.execute("UPDATE account SET balance = 5")
    assert balance(data) == 5


@pytest.mark.parametrize("token", [5, 6])
def test_nobody_is_admitted_between_a_check_and_its_commit(data: Path, token: int) -> None:
    with closing(sqlite3.connect(data)) as first, closing(sqlite3.connect(data, timeout=0)) as second:
        with first:
            admit_in_sqlite(first, "account", 5)
        admit_in_sqlite(first, "account", 5)  # not new, and keeps the others out all the same
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            admit_in_sqlite(second, "account", token)
        first.execute("UPDATE account SET balance = 1")
        first.commit()
        admit_in_sqlite(second, "account", token)
        second.rollback()


def test_connection_that_commits_each_statement_is_refused_before_anything_is_written(
    data: Path,
) -> None:
    with closing(sqlite3.connect(data, isolation_level=None)) as connection:
        with pytest.raises(InvalidRequest, match="BEGIN IMMEDIATE"):
            admit_in_sqlite(connection, "account", 5)
        assert connection.execute("SELECT count(*) FROM quoracy_fencing").fetchall() == [(0,)]
        connection.execute("BEGIN IMMEDIATE")
        admit_in_sqlite(connection, "account", 5)
        connection.execute("COMMIT")
        assert connection.execute("SELECT token FROM quoracy_fencing").fetchall() == [(5,)]


def test_both_settings_of_autocommit_are_understood(data: Path) -> None:
    if sys.version_info >= (3, 12):
        with closing(sqlite3.connect(data, autocommit=True)) as connection:
            with pytest.raises(InvalidRequest, match="BEGIN IMMEDIATE"):
                admit_in_sqlite(connection, "account", 5)
        with closing(sqlite3.connect(data, autocommit=False)) as connection:
            admit_in_sqlite(connection, "account", 5)
            connection.commit()
    else:
        pytest.skip("the autocommit attribute came with Python 3.12")


def test_rows_may_be_whatever_their_owner_likes(data: Path) -> None:
    with closing(sqlite3.connect(data)) as connection:
        connection.row_factory = lambda _cursor, row: {"first": row[0]}
        with connection:
            admit_in_sqlite(connection, "account", 5)
        with pytest.raises(StaleToken), connection:
            admit_in_sqlite(connection, "account", 4)


def test_statement_alone_returns_the_highest(data: Path) -> None:
    with closing(sqlite3.connect(data)) as connection, connection:
        for token, highest in ((5, 5), (3, 5), (6, 6)):
            rows = connection.execute(SQLITE_ADMIT, {"resource": "account", "token": token}).fetchall()
            assert rows == [(highest,)]


def test_gate_and_transactions_on_one_database_know_of_each_other(data: Path) -> None:
    gate = SqliteGate(data)
    gate.admit_sync("account", 5)
    with closing(sqlite3.connect(data)) as connection:
        with pytest.raises(StaleToken), connection:
            admit_in_sqlite(connection, "account", 4)
        with connection:
            admit_in_sqlite(connection, "account", 6)
    with pytest.raises(StaleToken):
        gate.admit_sync("account", 5)


def test_gate_that_others_keep_busy_is_unavailable_and_admits_nothing(data: Path) -> None:
    gate = SqliteGate(data, timeout_s=0.01)
    with closing(sqlite3.connect(data)) as connection:
        admit_in_sqlite(connection, "account", 7)
        with pytest.raises(Unavailable, match="in use by others"):
            gate.admit_sync("account", 5)
        connection.commit()
    with pytest.raises(StaleToken):
        gate.admit_sync("account", 5)


def test_token_that_becomes_stale_between_the_look_and_the_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gate.db"
    SqliteGate(path).admit_sync("orders", 4)
    write = sqlite._raise_highest

    def overtaken(connection: sqlite3.Connection, resource: str, token: int) -> int:
        monkeypatch.undo()
        SqliteGate(path).admit_sync("orders", 9)
        return write(connection, resource, token)

    monkeypatch.setattr(sqlite, "_raise_highest", overtaken)
    with pytest.raises(StaleToken) as refused:
        SqliteGate(path).admit_sync("orders", 5)
    assert refused.value.highest == 9


async def test_gate_stays_where_it_was_when_the_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gate = SqliteGate("gate.db")
    await gate.admit("orders", 5)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(StaleToken):
        await gate.admit("orders", 4)


@pytest.mark.parametrize("name", ["", ":memory:"])
def test_gate_needs_a_file_that_remembers(name: str) -> None:
    with pytest.raises(InvalidRequest, match="MemoryGate"):
        SqliteGate(name)


def test_file_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is a text, and no database of any kind. " * 50)
    for path in (tmp_path / "text.db", tmp_path / "not" / "there.db", tmp_path):
        with pytest.raises(DataUnreadable, match="Nothing was admitted"):
            SqliteGate(path).admit_sync("orders", 1)


def test_gate_made_before_a_fork_works_on_both_sides(tmp_path: Path) -> None:
    gate = SqliteGate(tmp_path / "gate.db")
    gate.admit_sync("orders", 5)
    child = multiprocessing.get_context("fork").Process(target=gate.admit_sync, args=("orders", 6))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    with pytest.raises(StaleToken):
        gate.admit_sync("orders", 5)
