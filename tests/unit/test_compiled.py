"""The hot modules as C extensions: which they are, and the way back to their source."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import hatch_build
from quoracy.compiled import is_compiled

ROOT = Path(hatch_build.__file__).parent

_SHOW = """
import quoracy.compiled, quoracy.engines.embedded.memory.state as state
print(quoracy.compiled.is_compiled(), state.__file__)
"""


def _shown(**environment: str) -> tuple[bool, str]:
    variables = {name: value for name, value in os.environ.items() if name != "QUORACY_PURE"}
    done = subprocess.run(
        [sys.executable, "-c", _SHOW],
        env=variables | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    compiled, file = done.stdout.split()
    return compiled == "True", file


def test_source_is_run_when_asked_for() -> None:
    compiled, file = _shown(QUORACY_PURE="1")
    assert not compiled
    assert file.endswith("state.py")


def test_what_was_compiled_is_run_unless_asked_otherwise() -> None:
    compiled, file = _shown()
    assert compiled == hatch_build.is_compiled()
    assert file.endswith("state.py") != compiled


def test_this_process_runs_what_it_says() -> None:
    assert is_compiled() == (hatch_build.is_compiled() and not os.environ.get("QUORACY_PURE"))


def test_modules_named_to_be_compiled_are_there_once_and_have_no_coroutines() -> None:
    paths = hatch_build.modules()  # raises for one that has, or is not there
    assert len(set(paths)) == len(paths) > 0


def test_membership_is_in_a_library_that_servers_do_not_load() -> None:
    libraries = hatch_build._libraries(hatch_build.modules())
    assert {path.parts[1] for path in libraries["quoracy_membership"]} == {"membership"}
    assert "membership" not in {path.parts[1] for path in libraries["quoracy"]}


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one module of another project, to be compiled; it is empty."""
    path = tmp_path / "src" / "quoracy" / "hot.py"
    path.parent.mkdir(parents=True)
    path.touch()
    (tmp_path / "pyproject.toml").write_text(
        "[tool.quoracy.compiled]\nmodules = ['hot']\n", encoding="utf-8"
    )
    monkeypatch.setattr(hatch_build, "_ROOT", tmp_path)
    monkeypatch.setattr(hatch_build, "_SOURCE", tmp_path / "src")
    monkeypatch.setattr(hatch_build, "_STAMP", tmp_path / "digest")
    return path


def test_a_module_with_coroutines_is_not_compiled(module: Path) -> None:
    module.write_text("async def wait() -> None: ...\n", encoding="utf-8")
    with pytest.raises(ValueError, match="coroutines"):
        hatch_build.modules()


def test_a_module_whose_classes_have_options_is_not_compiled(module: Path) -> None:
    module.write_text("class Point(msgspec.Struct, frozen=True):\n    x: int\n", encoding="utf-8")
    with pytest.raises(ValueError, match="options"):
        hatch_build.modules()


def test_what_is_compiled_is_current_until_the_source_changes_or_it_is_gone(module: Path) -> None:
    extension = module.with_suffix(".so")
    extension.touch()
    assert not hatch_build.is_current()
    hatch_build._STAMP.write_text(hatch_build._digest(), encoding="ascii")
    assert hatch_build.is_current()
    module.write_text("ANSWER = 42\n", encoding="utf-8")
    assert not hatch_build.is_current()
    module.write_text("", encoding="utf-8")
    assert hatch_build.is_current()
    extension.unlink()
    assert not hatch_build.is_current()


@pytest.mark.parametrize("with_hook", [True, False], ids=["compiled", "for all machines"])
def test_a_wheel_has_the_extensions_only_if_it_is_for_this_machine(
    tmp_path: Path, with_hook: bool
) -> None:
    if not hatch_build.is_compiled():
        pytest.skip("nothing is compiled here: make compile")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    command += ["--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(ROOT)]
    hooks = {"HATCH_BUILD_HOOKS_ENABLE": "1"} if with_hook else {}
    subprocess.run(command, env=os.environ | hooks, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    extensions = [name for name in names if name.endswith((".so", ".pyd"))]
    assert ("none-any" in wheel.name) == (not with_hook)
    assert bool(extensions) == with_hook
    assert "quoracy/engines/embedded/memory/state.py" in names
