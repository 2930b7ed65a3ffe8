"""The table of verbs, and the click group that finds a verb in it.

A verb's module is imported when the verb is used: `quoracy get` should not wait for a web server to
load.  `_GROUPS` is the one list of verbs, in the order in which `quoracy --help` shows them.
"""

from __future__ import annotations

import importlib

import click

from quoracy import __version__
from quoracy.cli.exits import EXPLAINED, Exit, carry_out, fail, while_read
from quoracy.compiled import form

__all__ = ["cli", "run"]

# Group -> verb -> where its command is and what it does, so that listing verbs imports none of them.
_GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Server": {
        "serve": ("serve_verb.command", "Open a store and serve it."),
        "status": ("status.command", "How endpoints are doing."),
        "cell": ("cell.command.command", "A whole cell on this machine, to try it out."),
        "bench": ("bench.command", "Put load on a store and measure it."),
    },
    "Data": {
        "put": ("write.put_command", "Write a key."),
        "get": ("read.get_command", "Read a key, or many."),
        "del": ("write.delete_command", "Delete a key, or many."),
        "ls": ("read.ls_command", "Show keys as a tree."),
        "watch": ("watch.command", "Follow changes as they happen."),
        "history": ("read.history_command", "Every version of a key that is kept."),
        "txn": ("write.txn_command", "Compare, then write, atomically."),
    },
    "Coordination": {
        "lock": ("lock.lock_command", "Run a command while holding a lock."),
        "elect": ("lock.elect_command", "Run a command while being the leader."),
        "lease": ("lease.command", "Grant, keep and end leases."),
    },
    "Membership": {
        "agent": ("membership.agent.command", "Join a cluster of agents, and stay."),
        "members": ("membership.members.command", "Who is in an agent's cluster."),
        "simulate": ("membership.simulate.command", "Watch a simulated cluster fail and heal."),
    },
    "Upkeep": {
        "compact": ("upkeep.compact_command", "Forget old history."),
        "snapshot": ("upkeep.snapshot_command", "Copy a running store into a file."),
        "backup": ("upkeep.backup_command", "Copy a store that is not running."),
        "restore": ("upkeep.restore_command", "Make a store from a backup."),
        "doctor": ("upkeep.doctor_command", "Check a data file."),
    },
}
_VERBS = {verb: entry for group in _GROUPS.values() for verb, entry in group.items()}

_EXAMPLES = (
    "quoracy serve",
    "quoracy put config/colour green",
    "quoracy get config/ --prefix",
    "quoracy lock nightly-backup -- ./backup.sh",
)


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (the name is click's)
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _VERBS:
            return None
        module, _, name = _VERBS[cmd_name][0].rpartition(".")
        command = getattr(importlib.import_module(f"quoracy.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _VERBS and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], _VERBS, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise click.UsageError(f"There is no verb {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        # Not around all of click, which handles a broken pipe in its own way.
        return while_read(lambda: super(_Verbs, self).invoke(ctx))

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        for group, verbs in _GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(verb, short) for verb, (_, short) in verbs.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), meaning) for code, meaning in EXPLAINED])
        with formatter.section("Examples"):
            for example in _EXAMPLES:
                formatter.write_text(example)


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001
    if value:
        click.echo(f"quoracy {__version__} ({form()})")
        ctx.exit()


@click.command(
    cls=_Verbs, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version, and whether it is compiled.",
)
def cli() -> None:
    """Small, vital metadata: strongly consistent, watched and leased.

    `quoracy VERB --help` explains a verb. Those that need a store take -e URL, or find it in
    QUORACY_ENDPOINT: a Quoracy server, an etcd, or a data file (sqlite:PATH).
    """


def run() -> int:
    """Run the command line; the exit code."""
    return carry_out(_run_verb)


def _run_verb() -> object:
    try:
        return cli.main(prog_name="quoracy", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return Exit.MISUSED
    except click.UsageError as error:
        return fail(_one_line(error), Exit.MISUSED)
    except click.ClickException as error:
        return fail(error.format_message(), Exit.FAILED)
    except click.Abort:
        return fail("interrupted.", Exit.INTERRUPTED)


def _one_line(error: click.UsageError) -> str:
    message = " ".join(error.format_message().split())
    where = error.ctx.command_path if error.ctx is not None else "quoracy"
    ended = message if message.endswith((".", "?", "!")) else f"{message}."
    return f"{ended} `{where} --help` shows what there is."
