"""The hot modules as C extensions: which modules, how to get back to the source, installed forms."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import hatch_build
import quoracy
from quoracy import compiled
from quoracy.compiled import compile_command, form, is_compiled

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


# -- what an installation says of itself


def _install(target: Path, what: Path, **environment: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    command += ["--no-deps", "--no-index", "--no-build-isolation", "--target", str(target), str(what)]
    subprocess.run(command, env=os.environ | environment, check=True)


def _version(installed: Path) -> str:
    """What `quoracy --version` of that installation prints."""
    environment = {name: value for name, value in os.environ.items() if name != "QUORACY_PURE"}
    done = subprocess.run(
        [sys.executable, "-m", "quoracy", "--version"],
        env=environment | {"PYTHONPATH": str(installed)},
        cwd=installed,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def _sdist(directory: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (sdist,) = directory.glob("*.tar.gz")
    return sdist


def test_an_installed_sdist_says_that_it_runs_from_source_and_how_to_compile_it(tmp_path: Path) -> None:
    sdist = _sdist(tmp_path)
    _install(tmp_path / "installed", sdist)
    said = _version(tmp_path / "installed")
    assert said.startswith(f"quoracy {quoracy.__version__} (from source")
    if compiled._has_compiler():
        assert "HATCH_BUILD_HOOKS_ENABLE=1" in said
        assert said.rstrip(")\n").endswith(f"--no-binary quoracy {sdist}")


def test_an_installed_wheel_with_extensions_says_that_it_is_compiled(tmp_path: Path) -> None:
    if not hatch_build.is_compiled():
        pytest.skip("nothing is compiled here: make compile")
    _install(tmp_path / "installed", ROOT, HATCH_BUILD_HOOKS_ENABLE="1")
    assert _version(tmp_path / "installed") == f"quoracy {quoracy.__version__} (compiled)\n"


@pytest.fixture
def from_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As if nothing were compiled, where there is a compiler."""
    monkeypatch.delenv("QUORACY_PURE", raising=False)
    monkeypatch.setattr(compiled, "_EXAMPLE", str(tmp_path / "state"))
    monkeypatch.setattr(compiled, "_has_compiler", lambda: True)


@pytest.mark.usefixtures("from_source")
def test_a_working_tree_is_compiled_by_make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    assert compile_command() == "make compile"
    monkeypatch.chdir(tmp_path)
    assert compile_command() == f"make -C {ROOT} compile"
    assert form() == f"from source; compile with: make -C {ROOT} compile"


@pytest.mark.usefixtures("from_source")
def test_nothing_is_proposed_without_a_compiler_or_where_the_source_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled, "_has_compiler", lambda: False)
    assert (compile_command(), form()) == (None, "from source")
    monkeypatch.setattr(compiled, "_has_compiler", lambda: True)
    monkeypatch.setenv("QUORACY_PURE", "1")
    assert (compile_command(), form()) == (None, "from source, as QUORACY_PURE says")
