"""The verbs that read keys: `get`, `ls` and `history`.

`history` is one watch from the oldest revision that is kept: it brings every version, deletes too.
(Reading backwards, from `mod_revision - 1` to `mod_revision - 1`, would stop at the first time the key
did not exist.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import click

from quoracy.cli.endpoint import Endpoint, endpoint_options
from quoracy.cli.exits import Exit
from quoracy.cli.output import Column, Form, Output, output_options
from quoracy.cli.parameters import read_bytes, usage_error
from quoracy.cli.selection import At, at_option, selection_options
from quoracy.cli.text import escape, format_lease, json_bytes, json_kv
from quoracy.errors import Compacted
from quoracy.store.api import Store
from quoracy.store.model import KeyRange, Keys, KeyValue, RangeResult, SortTarget

__all__ = ["get_command", "grow", "history_command", "ls_command"]

_PAGE_KEYS = 5_000

_SORTS = {
    "key": SortTarget.KEY,
    "version": SortTarget.VERSION,
    "create": SortTarget.CREATE,
    "mod": SortTarget.MOD,
    "value": SortTarget.VALUE,
}


# -- get


@click.command("get")
@click.argument("key", type=read_bytes)
@selection_options
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most N keys.")
@click.option("--keys-only", is_flag=True, help="Leave the values out.")
@click.option("--count", "count_only", is_flag=True, help="Only how many keys there are.")
@click.option(
    "--sort",
    type=click.Choice(list(_SORTS)),
    default="key",
    show_default=True,
    help="What to order by.",
)
@click.option("--reverse", is_flag=True, help="In descending order.")
@at_option
@click.option("-l", "--long", is_flag=True, help="Show revisions, version and lease too.")
@click.option("--print-value-only", is_flag=True, help="The same as -o value.")
@output_options(Form.JSON, Form.VALUE, Form.RAW)
@endpoint_options()
def get_command(
    keys: Keys,
    limit: int | None,
    keys_only: bool,
    count_only: bool,
    sort: str,
    reverse: bool,
    at: At | None,
    long: bool,
    print_value_only: bool,
    output: Output,
    endpoint: Endpoint,
) -> int:
    """Read KEY: prints its value, or ends with exit code 3 if there is none.

    With --prefix, --from-key or --range it prints a line for each key: key, tab, value, with line ends
    and whatever is not text escaped as \\n, \\x1b and so on. `-o value` prints values as they are.

    \b
    Examples:
      quoracy get config/colour
      quoracy get config/ --prefix -l
      quoracy get "" --prefix --count
      quoracy get config/colour --at 1042
      quoracy get config/colour --at 5m
      quoracy get config/tls.pem -o raw > tls.pem
      quoracy get jobs/ --prefix --sort mod --reverse --limit 10
    """
    if print_value_only:
        output = Output(Form.VALUE)

    async def read(store: Store) -> tuple[RangeResult, int | None]:
        revision = None if at is None else await at.find(store)
        found = await store.range(
            keys,
            at=revision,
            limit=limit,
            sort_by=_SORTS[sort],
            descending=reverse,
            keys_only=keys_only,
            count_only=count_only,
        )
        return found, revision

    found, revision = endpoint.ask(read)
    if at is not None and revision is not None and output.terminal and not output.is_json:
        at.explain(revision)
    if output.is_json:
        output.document(
            {
                "revision": found.revision,
                **({} if revision is None else {"at": revision}),
                "count": found.count,
                "more": found.more,
                "kvs": [json_kv(kv, with_value=not keys_only) for kv in found.kvs],
            }
        )
    elif count_only:
        output.line(str(found.count))
    elif long and not output.is_values:
        _show_long(output, found.kvs, keys_only=keys_only)
    else:
        _show(output, found.kvs, single=isinstance(keys, bytes), keys_only=keys_only)
    if isinstance(keys, bytes) and not found.count:
        if not output.is_json:
            where = "" if at is None else " at that revision"
            click.echo(f"quoracy: {escape(keys)} does not exist{where}.", err=True)
        return Exit.NO
    if found.more and output.terminal and not output.is_json:
        output.line(f"{len(found.kvs):,} of {found.count:,} keys", dim=True)
    return Exit.DONE


def _show(output: Output, kvs: tuple[KeyValue, ...], *, single: bool, keys_only: bool) -> None:
    if keys_only:
        for kv in kvs:
            output.line(escape(kv.key))
    elif single or output.is_values:
        for kv in kvs:
            output.value(kv.value)
    elif kvs:
        columns = (Column("key", "cyan"), Column("value"))
        output.table(columns, [(kv.key, kv.value) for kv in kvs])


def _show_long(output: Output, kvs: tuple[KeyValue, ...], *, keys_only: bool) -> None:
    columns = [
        Column("key", "cyan"),
        Column("created", right=True),
        Column("modified", right=True),
        Column("version", right=True),
        Column("lease", "magenta"),
        Column("value"),
    ]
    rows = [
        (
            kv.key,
            kv.create_revision,
            kv.mod_revision,
            kv.version,
            format_lease(kv.lease) if kv.lease else "-",
            kv.value,
        )
        for kv in kvs
    ]
    if keys_only:
        columns, rows = columns[:-1], [row[:-1] for row in rows]  # type: ignore[misc]
    if kvs:
        output.table(columns, rows)


# -- ls


@dataclass(slots=True)
class Branch:
    """A part of the tree: the key that ends here, if one does, and what is below."""

    name: bytes
    kv: KeyValue | None = None
    below: dict[bytes, Branch] = field(default_factory=dict)
    count: int = 0
    mod_revision: int = 0


@click.command("ls")
@click.argument("prefix", type=read_bytes, default="")
@click.option("--depth", type=click.IntRange(min=1), metavar="N", help="How many levels to show.")
@at_option
@click.option("-l", "--long", is_flag=True, help="For each key its version, lease and size too.")
@output_options(Form.JSON)
@endpoint_options()
def ls_command(
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
        # A key that ends in "/", or is the prefix itself, is the branch of that name.
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


# -- history


@click.command("history")
@click.argument("key", type=read_bytes)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the newest N.")
@click.option("--reverse", is_flag=True, help="Oldest first.")
@output_options(Form.JSON)
@endpoint_options()
def history_command(
    key: bytes, limit: int | None, reverse: bool, output: Output, endpoint: Endpoint
) -> int:
    """Show every version of KEY that was not compacted away, newest first.

    On a pipe each line has revision, version (0 for a delete), lease and value, separated by tabs.

    \b
    Examples:
      quoracy history config/colour
      quoracy history config/colour --limit 3 -o json
    """
    if not key:
        raise usage_error("the key is empty. Give one.")
    oldest, versions = endpoint.ask(lambda store: read_history(store, key))
    found = list(reversed(versions))[:limit]
    if reverse:
        found.reverse()
    if output.is_json:
        output.document(
            {
                **json_bytes("key", key),
                "oldest_revision": oldest,
                "versions": [json_kv(kv, with_value=kv.version > 0) for kv in found],
            }
        )
    elif found:
        columns = (
            Column("revision", right=True),
            Column("version", right=True),
            Column("lease", "magenta"),
            Column("value"),
        )
        output.table(columns, [_row(kv) for kv in found])
        if oldest > 1 and output.terminal:
            output.line(f"history before revision {oldest:,} was compacted", dim=True)
    if found:
        return Exit.DONE
    if not output.is_json:
        click.echo(f"quoracy: {escape(key)} has no version since revision {oldest}.", err=True)
    return Exit.NO


async def read_history(store: Store, key: bytes) -> tuple[int, list[KeyValue]]:
    """The oldest revision that is kept, and the key's versions since, oldest first, with deletes."""
    oldest, versions = 1, list[KeyValue]()
    while True:
        now = await store.range(key, keys_only=True)
        newest = now.kvs[0].mod_revision if now.kvs else None
        try:
            if oldest > 1:
                # The version before `oldest`; changes at `oldest` itself come from the watch.
                then = await store.range(key, at=oldest)
                versions = [kv for kv in then.kvs if kv.mod_revision < oldest]
            if versions and versions[-1].mod_revision == newest:
                return oldest, versions
            changes = await _changes(store, key, oldest - 1, newest, now.revision)
            return oldest, versions + changes
        except Compacted as error:
            # A compaction while we read: show what it left.
            assert error.oldest > oldest, "the oldest revision that is kept can be read"
            oldest = error.oldest


async def _changes(
    store: Store, key: bytes, after: int, newest: int | None, revision: int
) -> list[KeyValue]:
    """What happened to the key after one revision, up to its newest version or to `revision`."""
    changes: list[KeyValue] = []
    async with store.watch(key, after=after) as batches:
        if newest is None:
            batches.request_progress()
        async for batch in batches:
            changes += (event.kv for event in batch.events)
            if newest is not None and batch.revision >= newest:
                break
            if newest is None and batch.revision >= revision:
                break
    return changes


def _row(kv: KeyValue) -> tuple[int | str | bytes, ...]:
    if not kv.version:
        return kv.mod_revision, 0, "-", "(deleted)"
    return kv.mod_revision, kv.version, format_lease(kv.lease) if kv.lease else "-", kv.value
