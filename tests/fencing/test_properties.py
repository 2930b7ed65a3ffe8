"""Random orders of asking, writing, committing and rolling back, against a model of a few lines."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quoracy.errors import StaleToken
from quoracy.fencing import (
    SQLITE_TABLE,
    TOKEN_MAX,
    MemoryGate,
    SqliteGate,
    SyncGate,
    SyncRedisGate,
    admit_in_sqlite,
)
from tests.support.profiles import examples
from tests.support.redis_server import RedisServer

TOKENS = st.one_of(st.integers(0, 5), st.integers(2**53 - 2, 2**53 + 2), st.integers(0, TOKEN_MAX))
QUESTIONS = st.lists(st.tuples(st.sampled_from(["orders", "stock"]), TOKENS), max_size=30)


def ask_all(gate: SyncGate, questions: list[tuple[str, int]]) -> None:
    """Ask, and compare each answer with what the largest token so far says."""
    highest: dict[str, int] = {}
    admitted: dict[str, list[int]] = {}
    for resource, token in questions:
        try:
            gate.admit_sync(resource, token)
        except StaleToken as stale:
            assert token < highest[resource]
            assert (stale.resource, stale.token, stale.highest) == (resource, token, highest[resource])
        else:
            assert token >= highest.get(resource, 0)
            highest[resource] = token
            admitted.setdefault(resource, []).append(token)
    assert all(tokens == sorted(tokens) for tokens in admitted.values())


@given(QUESTIONS)
def test_memory_gate_is_the_largest_token_so_far(questions: list[tuple[str, int]]) -> None:
    ask_all(MemoryGate(), questions)


@given(QUESTIONS)
@settings(max_examples=examples(25), deadline=None)
def test_sqlite_gate_is_the_largest_token_so_far(questions: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        ask_all(SqliteGate(Path(directory) / "gate.db"), questions)


@given(QUESTIONS)
@settings(
    max_examples=examples(50),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_redis_gate_is_the_largest_token_so_far(
    redis_server: RedisServer, questions: list[tuple[str, int]]
) -> None:
    with closing(redis.Redis(port=redis_server.port)) as client:
        client.flushall()
        ask_all(SyncRedisGate(client), questions)


# A program is one connection's next step: a write with a token, or the end of its transaction.
STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.one_of(st.integers(0, 6), st.just("commit"), st.just("rollback"))),
    max_size=40,
)


@given(STEPS)
@settings(max_examples=examples(60), deadline=None)
def test_writes_that_sqlite_commits_never_go_back_to_a_lower_token(
    steps: list[tuple[int, int | str]],
) -> None:
    with tempfile.TemporaryDirectory() as directory, ExitStack() as opened:
        path = Path(directory) / "data.db"
        connections = [
            opened.enter_context(closing(sqlite3.connect(path, timeout=0))) for _ in range(3)
        ]
        with connections[0] as first:
            first.execute(SQLITE_TABLE)
            first.execute("CREATE TABLE journal (n INTEGER PRIMARY KEY, token INTEGER)")
        committed: list[int] = []
        pending: dict[int, list[int]] = {0: [], 1: [], 2: []}
        for which, step in steps:
            connection = connections[which]
            if step == "commit":
                connection.commit()
                committed += pending[which]
                pending[which] = []
            elif step == "rollback":
                connection.rollback()
                pending[which] = []
            else:
                assert isinstance(step, int)
                others_write = any(pending[other] for other in pending if other != which)
                write(connection, step, committed, pending[which], others_write=others_write)
        for connection in connections:
            connection.rollback()
        rows = [token for (token,) in connections[0].execute("SELECT token FROM journal ORDER BY n")]
        assert rows == committed == sorted(committed)


def write(
    connection: sqlite3.Connection,
    token: int,
    committed: list[int],
    pending: list[int],
    *,
    others_write: bool,
) -> None:
    highest = max([*committed, *pending], default=0)
    try:
        admit_in_sqlite(connection, "orders", token)
    except StaleToken as stale:
        assert not others_write
        assert token < highest == stale.highest
        if not pending:
            connection.rollback()
    except sqlite3.OperationalError as error:
        assert others_write, error
        connection.rollback()
    else:
        assert not others_write
        assert token >= highest
        connection.execute("INSERT INTO journal (token) VALUES (?)", (token,))
        pending.append(token)


@pytest.mark.parametrize("seed", range(3))
def test_model_of_the_largest_token_is_not_vacuous(seed: int) -> None:
    class Forgetful:
        def admit_sync(self, resource: str, token: int) -> None:
            return

    with pytest.raises(AssertionError):
        ask_all(Forgetful(), [("orders", seed + 1), ("orders", seed)])
