"""`quoracy ls`: keys as a tree, with how many there are and when they last changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import click

from quoracy.cli.endpoint import Endpoint, endpoint_options
from quoracy.cli.exits import Exit
from quoracy.cli.output import Column, Form, Output, output_options
from quoracy.cli.revisions import At, at_option
from quoracy.cli.text import escape, format_lease, json_bytes
from quoracy.cli.values import read_bytes
from quoracy.store.api import Store
from quoracy.store.model import KeyRange, KeyValue

__all__ = ["Branch", "command", "grow"]

_PAGE_KEYS = 5_000


@dataclass(slots=True)
class Branch:
    """A part of the tree: the key that ends here, if one does, and what is below."""

    name: bytes
    kv: KeyValue | None = None
    below: dict[bytes, Branch] = field(default_factory=dict)
    count: int = 0
    mod_revision: int = 0


@click.command("ls", short_help="Show keys as a tree.")
@click.argument("prefix", type=read_bytes, default="")
@click.option("--depth", type=click.IntRange(min=1), metavar="N", help="How many levels to show.")
@at_option
@click.option("-l", "--long", is_flag=True, help="For each key its version, lease and size too.")
@output_options(Form.JSON)
@endpoint_options()
def command(
    prefix: bytes, depth: int | None, at: At | None, long: bool, output: Output, endpoint: Endpoint
) -> int:
    """Show the keys under PREFIX, or all, as a tree that branches at each `/`.

    Each branch has the number of keys below it and the revision of the newest change among them. On a
    pipe each line has the full path, tab, count, tab, revision; branches end in `/`. With -l, keys have
    version, lease and size in bytes too.

    \b
    Examples:
      quoracy ls
      quoracy ls config/ -l
      quoracy ls --depth 1
      quoracy ls jobs/ --at 10m
    """
    newest, revision, kvs = endpoint.ask(lambda store: _read(store, prefix, at, with_values=long))
    root = grow(prefix, kvs)
    if at is not None and output.terminal and not output.is_json:
        at.explain(revision)
    if output.is_json:
        then = {} if at is None else {"at": revision}
        output.document({"revision": newest, **then, **_json_branch(root, prefix, depth)})
    elif output.terminal and not long:
        _draw(output, root, prefix, depth)
    else:
        _list(output, root, prefix, depth, long=long)
    return Exit.DONE if root.count or not prefix else Exit.NO


async def _read(
    store: Store, prefix: bytes, at: At | None, *, with_values: bool
) -> tuple[int, int, list[KeyValue]]:
    """The newest revision, the one that was read, and its keys."""
    # In pages, all as of one revision: an answer of any size would not fit into one message.
    keys = KeyRange.prefix(prefix)
    revision = None if at is None else await at.find(store)
    found = await store.range(keys, limit=_PAGE_KEYS, keys_only=not with_values, at=revision)
    newest, kvs = found.revision, list(found.kvs)
    if revision is None:
        revision = newest
    while found.more:
        rest = KeyRange(kvs[-1].key + b"\0", keys.end)
        found = await store.range(rest, limit=_PAGE_KEYS, keys_only=not with_values, at=revision)
        kvs += found.kvs
    return newest, revision, kvs


def grow(prefix: bytes, kvs: Iterable[KeyValue]) -> Branch:
    """The tree of keys that all start with `prefix`."""
    root = Branch(prefix)
    for kv in kvs:
        branch = root
        _count(branch, kv)
        *parents, leaf = kv.key.removeprefix(prefix).split(b"/")
        for part in parents:
            branch = branch.below.setdefault(part + b"/", Branch(part + b"/"))
            _count(branch, kv)
        # A key that ends in "/" (or is the prefix itself) is the branch of that name.
        if leaf:
            branch = branch.below.setdefault(leaf, Branch(leaf))
            _count(branch, kv)
        branch.kv = kv
    return root


def _count(branch: Branch, kv: KeyValue) -> None:
    branch.count += 1
    branch.mod_revision = max(branch.mod_revision, kv.mod_revision)


def _walk(branch: Branch, path: bytes, depth: int | None) -> Iterator[tuple[bytes, Branch]]:
    if depth == 0:
        return
    for name, below in branch.below.items():
        yield path + name, below
        yield from _walk(below, path + name, None if depth is None else depth - 1)


def _list(output: Output, root: Branch, prefix: bytes, depth: int | None, *, long: bool) -> None:
    columns = [Column("key", "cyan"), Column("keys", right=True), Column("modified", right=True)]
    if long:
        columns += [
            Column("version", right=True),
            Column("lease", "magenta"),
            Column("bytes", right=True),
        ]
    rows: list[tuple[bytes | str | int, ...]] = []
    for path, branch in _walk(root, prefix, depth):
        row: tuple[bytes | str | int, ...] = (path, branch.count, branch.mod_revision)
        if long:
            kv = branch.kv
            row += (
                ("-", "-", "-")
                if kv is None
                else (kv.version, format_lease(kv.lease) if kv.lease else "-", len(kv.value))
            )
        rows.append(row)
    output.table(columns, rows)


def _draw(output: Output, root: Branch, prefix: bytes, depth: int | None) -> None:
    from rich.text import Text
    from rich.tree import Tree

    def label(branch: Branch, name: str) -> Text:
        if not branch.below:
            return Text.assemble((name, "cyan"), (f"  @{branch.mod_revision:,}", "dim"))
        noun = "key" if branch.count == 1 else "keys"
        about = f"  {branch.count:,} {noun} @{branch.mod_revision:,}"
        return Text.assemble((name, "bold blue"), (about, "dim"))

    def hang(tree: Tree, branch: Branch, left: int | None) -> None:
        if left == 0:
            return
        for below in branch.below.values():
            twig = tree.add(label(below, escape(below.name)))
            hang(twig, below, None if left is None else left - 1)

    if not root.count:
        output.line("no keys", dim=True)
        return
    tree = Tree(label(root, escape(prefix) or "/"), guide_style="dim")
    hang(tree, root, depth)
    output.console.print(tree)


def _json_branch(branch: Branch, path: bytes, depth: int | None) -> dict[str, object]:
    document: dict[str, object] = {
        **json_bytes("path", path),
        "count": branch.count,
        "mod_revision": branch.mod_revision,
        "is_key": branch.kv is not None,
    }
    if branch.kv is not None and branch.kv.lease:
        document["lease"] = format_lease(branch.kv.lease)
    if branch.below and depth != 0:
        left = None if depth is None else depth - 1
        document["below"] = [
            _json_branch(below, path + name, left) for name, below in branch.below.items()
        ]
    return document
