"""The command itself: finds the verb, and turns every expected failure into one line.

Exit codes: 0 done, 1 it could not be done, 2 it was asked for wrongly, 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys

import click

from quorate.errors import QuorateError

__all__ = ["cli", "main"]

# Verbs are imported when they are used: `quorate --version` should not wait for a web server to load.
_VERBS = ("backup", "doctor", "restore", "serve")


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (the name is click's)
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _VERBS:
            return None
        command = importlib.import_module(f"quorate.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command


@click.command(
    cls=_Verbs, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="quorate", message="quorate %(version)s")
def cli() -> None:
    """Small, vital metadata: strongly consistent, watched and leased."""


def main() -> None:
    """The entry point."""
    sys.exit(_run())


def _run() -> int:
    try:
        outcome = cli.main(prog_name="quorate", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        return _fail(_one_line(error), code=2)
    except click.ClickException as error:
        return _fail(error.format_message(), code=1)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", code=130)
    except QuorateError as error:
        return _fail(str(error), code=1)
    except OSError as error:
        return _fail(f"{error.filename or 'the system'}: {error.strerror or error}.", code=1)
    return outcome if isinstance(outcome, int) else 0


def _one_line(error: click.UsageError) -> str:
    message = " ".join(error.format_message().split())
    where = error.ctx.command_path if error.ctx is not None else "quorate"
    return (
        f"{message if message.endswith('.') else message + '.'} `{where} --help` shows what there is."
    )


def _fail(message: str, *, code: int) -> int:
    click.echo(f"quorate: {message}", err=True)
    return code
