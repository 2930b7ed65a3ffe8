"""The command itself: finds the verb, and explains what it does not understand.

A verb is a module that is imported when it is used: `quoracy get` should not wait for a web server to
load.  `_GROUPS` is the one list of verbs, in the order `quoracy --help` shows them.
"""

from __future__ import annotations

import importlib

import click

from quoracy import __version__
from quoracy.cli.exits import EXPLAINED, Exit
from quoracy.cli.failures import carry_out, fail, while_read

__all__ = ["cli", "run"]

# Group -> verb -> the module it is in and what it does, so that listing verbs imports none of them.
_GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Server": {
        "serve": ("serve", "Open a store and serve it."),
        "status": ("status", "How endpoints are doing."),
        "cell": ("cell", "A whole cell on this machine, to try it out."),
        "bench": ("bench", "Put load on a store and measure it."),
    },
    "Data": {
        "put": ("put", "Write a key."),
        "get": ("get", "Read a key, or many."),
        "del": ("delete", "Delete a key, or many."),
        "ls": ("ls", "Show keys as a tree."),
        "watch": ("watch", "Follow changes as they happen."),
        "history": ("history", "Every version of a key that is kept."),
        "txn": ("txn", "Compare, then write, atomically."),
    },
    "Coordination": {
        "lock": ("lock", "Run a command while holding a lock."),
        "elect": ("elect", "Run a command while being the leader."),
        "lease": ("lease", "Grant, keep and end leases."),
    },
    "Membership": {
        "agent": ("agent", "Join a cluster of agents, and stay."),
        "members": ("members", "Who is in an agent's cluster."),
        "simulate": ("simulate", "Watch a simulated cluster fail and heal."),
    },
    "Upkeep": {
        "compact": ("compact", "Forget old history."),
        "snapshot": ("snapshot", "Copy a running store into a file."),
        "backup": ("backup", "Copy a store that is not running."),
        "restore": ("restore", "Make a store from a backup."),
        "doctor": ("doctor", "Check a data file."),
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
        command = importlib.import_module(f"quoracy.cli.{_VERBS[cmd_name][0]}").command
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
        # Not around all of click, which has its own idea of a reader that left.
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


@click.command(
    cls=_Verbs, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="quoracy %(version)s")
def cli() -> None:
    """Small, vital metadata: strongly consistent, watched and leased.

    `quoracy VERB --help` explains a verb. Those that need a store take -e URL, or find it in
    QUORACY_ENDPOINT: a Quoracy server, an etcd, or a data file (sqlite:PATH).
    """


def run() -> int:
    """Carry out the command line; the exit code."""
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
