"""The synchronous classes are what the generator writes, and leave nothing out."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import quoracy
import quoracy.redlock.sync
import quoracy.sync
from quoracy.threads.generator import __main__ as generator
from quoracy.threads.generator.__main__ import HIDDEN, PACKAGE, Generated, generate

CLASSES = [
    name
    for name in quoracy.sync.__all__
    if isinstance(getattr(quoracy.sync, name), type) and name not in {"Block", "Event", "Stream"}
]


@pytest.fixture(scope="module")
def generated() -> Generated:
    return generate()


def test_tree_holds_what_the_generator_writes(generated: Generated) -> None:
    written = {path: (PACKAGE / path).read_text(encoding="utf-8") for path in generated.files}
    assert [path for path, text in generated.files.items() if written[path] != text] == [], (
        "run python -m quoracy.threads.generator"
    )
    there = {path.relative_to(PACKAGE) for path in (PACKAGE / "sync").rglob("*.py")}
    assert there | {Path("redlock/sync.py")} == generated.files.keys()


def test_nothing_is_left_out(generated: Generated) -> None:
    assert generated.left_out == []


def test_command_says_what_would_change_and_changes_nothing(
    generated: Generated, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generator, "generate", lambda: generated)
    assert generator.main(["--check"]) == 0
    assert capsys.readouterr().out == ""
    recipes = Path("sync/recipes.py")
    other = Generated({**generated.files, recipes: "other"}, ["Lock.strange: no annotation"])
    monkeypatch.setattr(generator, "generate", lambda: other)
    assert generator.main(["--check"]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == (
        "sync/recipes.py changes\n",
        "left out: Lock.strange: no annotation\n",
    )
    assert (PACKAGE / recipes).read_text(encoding="utf-8") == generated.files[recipes]


def test_connect_has_the_parameters_of_the_asynchronous_one() -> None:
    ours = inspect.signature(quoracy.sync.connect).parameters
    theirs = inspect.signature(quoracy.connect).parameters
    assert list(ours) == list(theirs)
    assert {name: each.default for name, each in ours.items()} == {
        name: each.default for name, each in theirs.items()
    }


# For recipes, or another way to the same end.
NOT_FOR_THREADS = {"leave", "begin", "session", "write", "connection", "read_key", "retry"}


def test_every_coroutine_has_a_blocking_method_with_its_parameters() -> None:
    compared = 0
    for name in CLASSES:
        theirs, ours = getattr(quoracy, name, None), getattr(quoracy.sync, name)
        for method, function in inspect.getmembers(theirs, inspect.iscoroutinefunction):
            if method.startswith("_") or method in NOT_FOR_THREADS:
                continue
            blocking = getattr(ours, method)
            assert not inspect.iscoroutinefunction(blocking)
            parameters = list(inspect.signature(function).parameters)
            assert list(inspect.signature(blocking).parameters) == parameters, f"{name}.{method}"
            compared += 1
    assert compared > 20


def test_every_method_is_there_or_hidden_on_purpose() -> None:
    for name in CLASSES:
        theirs = {each for each in vars(getattr(quoracy, name, object)) if not each.startswith("_")}
        hidden = {each.rpartition(".")[2] for each in HIDDEN if each.rpartition(".")[0] in {"", name}}
        assert theirs - hidden <= set(dir(getattr(quoracy.sync, name))), name


def test_every_factory_of_a_connection_is_there() -> None:
    theirs = {name for name in vars(quoracy.Connection) if not name.startswith("_")}
    assert theirs <= set(dir(quoracy.sync.Connection))


def documented(name: str) -> dict[str, str]:
    """The docstrings of a class and of its members."""
    cls = getattr(quoracy.sync, name)
    found = {f"{name}.{member}": getattr(value, "__doc__", None) for member, value in vars(cls).items()}
    return {member: doc for member, doc in {**found, name: cls.__doc__}.items() if doc}


@pytest.mark.parametrize("name", CLASSES)
def test_docstrings_are_right_for_threads(name: str) -> None:
    """They are those of the asynchronous classes, so these must not speak to coroutines alone."""
    for member, doc in documented(name).items():
        for word in ("async ", "await ", "asyncio", "many tasks"):
            assert word not in doc, f"{member}: {word}"
        speaks_of_both = "in coroutines" in " ".join(doc.split()) or "quoracy.sync" in doc
        assert speaks_of_both or ("coroutine" not in doc and "cancel_on_loss" not in doc), member


def test_docstring_is_copied_as_it_is() -> None:
    assert quoracy.sync.Lock.acquire.__doc__ == quoracy.Lock.acquire.__doc__
    assert quoracy.redlock.sync.Held.extend.__doc__ == quoracy.redlock.Held.extend.__doc__
