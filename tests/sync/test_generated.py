"""The synchronous classes are what the generator writes, and leave nothing out."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import quoracy
import quoracy.sync
from quoracy.sync import generate as generating
from quoracy.sync.generate import Generated, generate
from quoracy.sync.wording import adapted

FACES = [
    name
    for name in quoracy.sync.__all__
    if isinstance(getattr(quoracy.sync, name), type) and name not in {"Block", "Event", "Stream"}
]


@pytest.fixture(scope="module")
def generated() -> Generated:
    return generate()


def test_tree_holds_what_the_generator_writes(generated: Generated) -> None:
    here = Path(generating.__file__).parent
    written = {path: (here / path).read_text(encoding="utf-8") for path in generated.files}
    assert [path for path, text in generated.files.items() if written[path] != text] == [], (
        "run python -m quoracy.sync.generate"
    )
    faces = {path.relative_to(here) for path in (here / "face").glob("*.py")}
    assert faces == {path for path in generated.files if path.parent.name == "face"}


def test_nothing_is_left_out(generated: Generated) -> None:
    assert generated.left_out == []


def test_command_says_what_would_change_and_changes_nothing(
    generated: Generated, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generating, "generate", lambda: generated)
    assert generating.main(["--check"]) == 0
    assert capsys.readouterr().out == ""
    lock = Path("face/lock.py")
    other = Generated({**generated.files, lock: "other"}, ["Lock.strange: no annotation"])
    monkeypatch.setattr(generating, "generate", lambda: other)
    assert generating.main(["--check"]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == (
        "face/lock.py changes\n",
        "left out: Lock.strange: no annotation\n",
    )
    here = Path(generating.__file__).parent
    assert (here / lock).read_text(encoding="utf-8") == generated.files[lock]


def test_connect_has_the_parameters_of_the_asynchronous_one() -> None:
    ours = inspect.signature(quoracy.sync.connect).parameters
    theirs = inspect.signature(quoracy.connect).parameters
    assert list(ours) == list(theirs)
    assert {name: each.default for name, each in ours.items()} == {
        name: each.default for name, each in theirs.items()
    }


# For recipes, or another way to the same end.
NOT_FOR_THREADS = {"leave", "begin", "session", "write", "connection"}


def test_every_coroutine_has_a_blocking_method_with_its_parameters() -> None:
    compared = 0
    for name in FACES:
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


def test_every_factory_of_a_connection_is_there() -> None:
    theirs = {name for name in vars(quoracy.Connection) if not name.startswith("_")}
    assert theirs <= set(dir(quoracy.sync.Connection))


def test_docstrings_speak_of_threads() -> None:
    words = ("async ", "await ", "asyncio", "coroutine", "aclosing", "cancel_on_loss")
    found = [
        f"{name}.{member}: {word}"
        for name in FACES
        for member, value in vars(getattr(quoracy.sync, name)).items()
        for word in words
        if word in (getattr(value, "__doc__", None) or "")
    ]
    assert found == []


def test_docstring_is_adapted() -> None:
    doc = """Hold it: `async with q.lock("x") as held`, by many tasks.

    cancel_on_loss: cancel
        the body.
    other: stays.

        await held.release()
    """
    assert adapted(doc) == (
        'Hold it: `with q.lock("x") as held`, by many threads.\n\nother: stays.\n\n    held.release()'
    )
