"""Commands that take another command after `--`: `quoracy lock NAME -- ./backup.sh --full`."""

from __future__ import annotations

import click

__all__ = ["CommandWithTail", "tail_of"]

_TAIL = "quoracy.cli.tail"


class CommandWithTail(click.Command):
    """What comes after the first `--` is kept apart, whatever it looks like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        head, tail = args, None
        if "--" in args:
            at = args.index("--")
            head, tail = args[:at], tuple(args[at + 1 :])
            if not tail:
                raise click.UsageError("there is no command after `--`.", ctx)
        ctx.meta[_TAIL] = tail or ()
        return super().parse_args(ctx, head)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND [ARGS]...]"]


def tail_of(ctx: click.Context) -> tuple[str, ...]:
    """The command after `--`; empty if there is none."""
    tail: tuple[str, ...] = ctx.meta[_TAIL]
    return tail
