"""The tree is the architecture: what each part of Quoracy may import, and that nothing imports more."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "quoracy"

# Part -> the parts it may import, besides itself.  The longest name that fits a module counts.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "errors": (),
    "clock": (),
    "native": (),
    "directories": (),
    "store.model": (),
    "store.completion": ("native",),
    "store.options": ("store.model",),
    "store.api": ("store.model", "store.options", "store.completion", "errors"),
    "store": ("errors",),
    "engines.embedded": ("store", "errors", "clock", "directories"),
    # What it holds in memory is the embedded engine's; how it speaks to etcd is `remote`'s.
    "engines.etcd": (
        "store",
        "errors",
        "wire",
        "clock",
        "remote",
        "engines.embedded.memory",
        "engines.embedded.watching",
        "native",
    ),
    "engines": ("store", "errors", "clock"),
    "wire": ("errors",),
    # What is between bytes and the store's values directly.
    "wire.etcd.fast_codec": ("store.model", "wire"),
    "faces": (),
    "faces.common": ("store.completion",),
    "faces.zookeeper": ("store", "errors", "wire", "clock", "faces.common"),
    "faces.etcd": ("store", "errors", "wire", "clock", "native", "faces.common"),
    "faces.http": ("store", "errors", "faces.common"),
    # Blocks that can be ended from outside; asyncio and nothing else.
    "blocks": (),
    # A loop in a thread, and proxies of what lives on it.
    "threads": ("errors", "blocks"),
    # It reads the classes that it writes proxies of.
    "threads.generator": ("client", "redlock"),
    "remote": ("store", "errors", "wire", "clock"),
    "client": ("store", "errors", "clock", "blocks"),
    "membership": ("errors", "clock"),
    "fencing": ("errors", "directories"),
    "redlock": ("errors", "clock", "blocks"),
    # Generated: the same for threads.
    "redlock.sync": ("redlock", "threads", "errors", "clock"),
    "testing": (
        "server",
        "client",
        "remote",
        "errors",
        "store",
        "clock",
        "engines",
        "faces",
        "connecting",
        "sync",
        "threads",
    ),
    "server": (
        "store",
        "errors",
        "clock",
        "directories",
        "engines",
        "wire",
        "faces",
        "remote",
        "membership",
    ),
    # Verbs speak the Store contract to whatever a URL names, so they need its values and the way in;
    # those that look after a data file need the engine.
    "cli": (
        "compiled",
        "engines",
        "client",
        "remote",
        "server",
        "opening",
        "membership",
        "store",
        "errors",
        "clock",
        "__init__",
    ),
    "__main__": ("cli",),
    "opening": ("engines", "remote", "store", "errors", "clock"),
    "connecting": ("opening", "client", "remote", "store", "errors", "clock"),
    # Generated: the client for threads.
    "sync": ("connecting", "client", "remote", "store", "errors", "clock", "threads"),
    "public": ("store", "errors", "engines", "opening", "connecting", "client", "remote"),
    # What is not in `public` is a module of its own: quoracy.sync, quoracy.fencing and so on.
    "__init__": ("public", "sync", "fencing", "membership", "redlock", "testing", "compiled"),
    # Which form of a module is imported: it knows their names, and imports none.
    "compiled": (),
}

# Whatever decides anything runs without a network, a disk, a thread or a clock of its own.
PURE = (
    "errors",
    "store.api",
    "store.completion",
    "store.contention",
    "store.digest",
    "store.limits",
    "store.model",
    "store.options",
    "store.rules",
    "wire",
    "engines.embedded.memory",
    "engines.embedded.retention",
    "engines.embedded.watching.hub",
    "engines.embedded.watching.range_index",
    "engines.embedded.watching.queue_waits",
    "engines.embedded.committing.commit_delay",
    "engines.embedded.disk.log_rows",
    "engines.embedded.disk.sweep",
    "faces.common.guards",
    "faces.zookeeper.admin.stats",
    "faces.zookeeper.serving.request_queue",
    "faces.zookeeper.serving.session_timing",
    "faces.zookeeper.settings",
    "faces.zookeeper.tree.acl",
    "faces.zookeeper.tree.layout",
    "faces.zookeeper.tree.paths",
    "faces.zookeeper.tree.reads",
    "faces.zookeeper.tree.watches",
    "faces.zookeeper.tree.znodes",
    "faces.zookeeper.writing.drafts",
    "faces.zookeeper.writing.in_flight",
    "faces.zookeeper.writing.proposals",
    "engines.etcd.prefix",
    "engines.etcd.replica",
    "remote.errors",
    "remote.etcd_versions",
    "remote.translate",
    "client.codec",
    "client.config_section",
    "client.token_bucket",
    "faces.http.health",
    "faces.etcd.answer",
    "faces.etcd.errors",
    "faces.etcd.services.auth",
    "faces.etcd.services.kv",
    "faces.etcd.services.member",
    "faces.etcd.services.translate",
    "faces.etcd.serving.json_codec",
    "redlock.quorum",
    "fencing.gate",
    "threads.generator.source",
    "threads.generator.translation",
    "threads.generator.classes",
    "membership.machine",
    "membership.codec",
    "membership.model",
    "membership.settings",
    "membership.swim",
    "membership.gossip",
    "membership.detectors",
    "membership.elections",
    "membership.simulator",
    "membership.runtime.envelope",
    "membership.runtime.keyring",
    "membership.runtime.last_heard",
    "membership.runtime.member_view",
)
DOES_IO = {
    "asyncio", "concurrent", "http", "io", "logging", "multiprocessing", "os", "pathlib", "queue",
    "select", "selectors", "signal", "socket", "sqlite3", "ssl", "subprocess", "sys",
    "tempfile", "threading", "time", "urllib", "uvloop",
}  # fmt: skip

MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
}


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_only_what_its_layer_may(module: str) -> None:
    part = part_of(module)
    allowed = (part, *MAY_IMPORT[part])
    wrong = [
        name for name in imports_of_quoracy(module) if not any(within(name, each) for each in allowed)
    ]
    assert not wrong, f"{module} is in {part}, which may import {allowed}"


@pytest.mark.parametrize("part", PURE)
def test_pure_module_does_no_io(part: str) -> None:
    for module in MODULES:
        if within(module, part):
            assert_pure(module)


def assert_pure(module: str) -> None:
    wrong = [name for name in imports_of(module) if name.partition(".")[0] in DOES_IO]
    assert not wrong, f"{module} decides things, so it takes time and bytes as arguments"


# These re-export lazily, for which they need a `__getattr__`: the package itself, what pytest loads
# with every run, and membership, whose cores are of use without its sockets.
LAZY = ("__init__", "membership", "testing")


@pytest.mark.parametrize(
    "module",
    [name for name, path in MODULES.items() if path.name == "__init__.py" and name not in LAZY],
)
def test_init_only_re_exports(module: str) -> None:
    for node in tree_of(module).body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_name_list = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in {
            "__all__",
            "__version__",
        }
        assert is_docstring or is_name_list or isinstance(node, ast.ImportFrom), ast.unparse(node)


def test_every_module_has_a_part() -> None:
    assert {module for module in MODULES if not part_of(module)} == set()


def within(module: str, part: str) -> bool:
    return module == part or module.startswith(f"{part}.")


def part_of(module: str) -> str:
    return max((part for part in MAY_IMPORT if within(module, part)), key=len, default="")


def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def imports_of(module: str) -> Iterator[str]:
    """Full names of what is imported; `from a.b import c` is a.b.c if that is a module of ours."""
    for node in ast.walk(tree_of(module)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(source), level=0, names=names):
                for alias in names:
                    inner = f"{source}.{alias.name}"
                    yield inner if inner.removeprefix("quoracy.") in MODULES else source
            case ast.ImportFrom():
                pytest.fail(f"{module} has a relative import; write it in full")


def imports_of_quoracy(module: str) -> Iterator[str]:
    for name in imports_of(module):
        if name == "quoracy":
            yield "__init__"
        elif name.startswith("quoracy."):
            yield name.removeprefix("quoracy.")
