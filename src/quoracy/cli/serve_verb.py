"""`quoracy serve` as a click command: its options are the table of settings, its help explains them."""

from __future__ import annotations

from pathlib import Path

import click

from quoracy.cli.serve import serve, show_config
from quoracy.server.settings import GROUPS, SETTINGS, in_group
from quoracy.server.sources import CONFIG_VARIABLE

__all__ = ["command"]


class _Serve(click.Command):
    """A command with an option for each setting, and a help page that groups them."""

    def __init__(self, name: str | None, *, params: list[click.Parameter], **rest: object) -> None:
        of_settings: list[click.Parameter] = [
            click.Option(
                [setting.flag],
                metavar=setting.metavar,
                help=f"{setting.help}  [default: {setting.default_for_people}]",
            )
            for setting in SETTINGS
            if not setting.secret
        ]
        super().__init__(name, params=of_settings + params, **rest)  # type: ignore[arg-type]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {each.name: each.get_help_record(ctx) for each in self.get_params(ctx)}
        for group in GROUPS:
            with formatter.section(group):
                formatter.write_dl(
                    [record for each in in_group(group) if (record := records.pop(each.key, None))]
                )
        with formatter.section("Others"):
            formatter.write_dl([record for record in records.values() if record])


@click.command(
    "serve", cls=_Serve, epilog="Sizes are written as 500MB or 2GiB, times as 90s, 30m or 1h30m."
)
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar=CONFIG_VARIABLE,
    show_envvar=True,
    help='A TOML file with settings by name, as in: listen-etcd = "0.0.0.0:2379".',
)
@click.option(
    "--show-config",
    "show_config_only",
    is_flag=True,
    help="Print every setting and where it comes from, and end.",
)
def command(file: Path | None, show_config_only: bool, **flags: str | None) -> None:
    """Open a store and serve it until SIGINT or SIGTERM.

    Each option of the first groups can also be given in the environment (--listen-etcd as
    QUORACY_LISTEN_ETCD) or in the file of --config (as listen-etcd).  An option beats the environment,
    the environment beats the file.  SIGHUP reads certificates and the log level again.
    """
    given = {name.replace("_", "-"): text for name, text in flags.items() if text is not None}
    if show_config_only:
        show_config(given, file)
    else:
        serve(given, file)
