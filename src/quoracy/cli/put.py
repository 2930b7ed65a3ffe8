"""`quoracy put`: write a key, if you like only on a condition."""

from __future__ import annotations

import sys

import click

from quoracy.cli.endpoint import Endpoint, endpoint_options
from quoracy.cli.exits import Exit
from quoracy.cli.output import Form, Output, output_options
from quoracy.cli.text import escape, json_kv
from quoracy.cli.values import read_bytes, read_lease
from quoracy.store.api import Store
from quoracy.store.model import Compare, KeyValue, Put, PutResult, Range, RangeResult, Txn, TxnResult

__all__ = ["command"]


@click.command("put", short_help="Write a key.")
@click.argument("key", type=read_bytes)
@click.argument("value", type=read_bytes)
@click.option("--lease", type=read_lease, metavar="ID", help="Let the key end with this lease.")
@click.option("--prev", is_flag=True, help="Show what the key held before.")
@click.option("--if-missing", is_flag=True, help="Only if the key does not exist.")
@click.option(
    "--if-mod", type=click.IntRange(min=0), metavar="REV", help="Only if it was last written at REV."
)
@click.option(
    "--if-version", type=click.IntRange(min=0), metavar="N", help="Only if this is its Nth version."
)
@output_options(Form.JSON)
@endpoint_options()
def command(
    key: bytes,
    value: bytes,
    lease: int | None,
    prev: bool,
    if_missing: bool,
    if_mod: int | None,
    if_version: int | None,
    output: Output,
    endpoint: Endpoint,
) -> int:
    """Write VALUE to KEY; with `-` for VALUE, whatever stdin holds, byte for byte.

    With a condition that does not hold nothing is written, what is there is shown, and the exit code
    is 3: that makes a compare-and-set out of a `get -o json` and a `put --if-mod`.

    \b
    Examples:
      quoracy put config/colour green
      quoracy put config/tls.pem - < tls.pem
      quoracy put leader ada --if-missing --lease 32695410dcc0ca06
      quoracy put counter 8 --if-mod 1042
    """
    if value == b"-":
        value = sys.stdin.buffer.read()
    compares = _conditions(key, if_missing, if_mod, if_version)
    write = Put(key, value, lease or 0, prev_kv=prev)

    async def write_it(store: Store) -> PutResult | TxnResult:
        if not compares:
            return await store.put(key, value, lease=lease or 0, prev_kv=prev)
        return await store.txn(Txn(compares, (write,), (Range(key),)))

    result = endpoint.tell(write_it)
    if isinstance(result, PutResult):
        _show_written(output, result.revision, result)
        return Exit.DONE
    (only,) = result.results
    if isinstance(only, PutResult):
        _show_written(output, result.revision, only)
        return Exit.DONE
    assert isinstance(only, RangeResult)
    _show_lost(output, key, result.revision, only.kvs[0] if only.kvs else None)
    return Exit.NO


def _conditions(
    key: bytes, if_missing: bool, if_mod: int | None, if_version: int | None
) -> tuple[Compare, ...]:
    compares = []
    if if_missing:
        compares.append(Compare.missing(key))
    if if_mod is not None:
        compares.append(Compare.mod_revision(key, "=", if_mod))
    if if_version is not None:
        compares.append(Compare.version(key, "=", if_version))
    return tuple(compares)


def _show_written(output: Output, revision: int, result: PutResult) -> None:
    prev_kv = result.prev_kv
    if output.is_json:
        document: dict[str, object] = {"revision": revision, "written": True}
        if prev_kv is not None:
            document["prev_kv"] = json_kv(prev_kv)
        output.document(document)
        return
    if prev_kv is not None:
        output.value(prev_kv.value)
    if output.terminal:
        output.line(f"revision {revision:,}", dim=True)


def _show_lost(output: Output, key: bytes, revision: int, kv: KeyValue | None) -> None:
    if output.is_json:
        document: dict[str, object] = {"revision": revision, "written": False}
        if kv is not None:
            document["kv"] = json_kv(kv)
        output.document(document)
        return
    state = (
        "it does not exist"
        if kv is None
        else f"it was written at revision {kv.mod_revision} and is version {kv.version}"
    )
    click.echo(f"quoracy: {escape(key)} was not written: {state}.", err=True)
