"""The parts of the guide that are made from the table of settings.

Run as a program it writes them; the tests compare them.
"""

from __future__ import annotations

from pathlib import Path

from quoracy.server.settings import GROUPS, Setting, in_group

__all__ = ["EXAMPLE", "GUIDE", "REWRITE", "in_guide", "make_example", "make_table"]

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "server.md"
EXAMPLE = GUIDE.with_name("quoracy.toml")
REWRITE = "python -m tests.support.settings_table"

_BEGIN = "<!-- settings: made by tests/support/settings_table.py -->\n"
_END = "<!-- end of settings -->\n"
# For settings that have no default to show.
_EXAMPLES = {
    "advertise-etcd": "quoracy.example:2379",
    "cell": "a=10.0.0.1,b=10.0.0.2,c=10.0.0.3",
    "cell-ca": "/etc/quoracy/cell-ca.pem",
    "cell-cert": "/etc/quoracy/cell.pem",
    "cell-key": "/etc/quoracy/cell.key",
    "data-dir": "/var/lib/quoracy",
    "engine": "sqlite:/var/lib/quoracy/quoracy.db",
    "etcd-flags": "--heartbeat-interval=200 --election-timeout=2000",
    "etcd-program": "/usr/local/bin/etcd",
    "node": "a",
    "tls-cert": "/etc/quoracy/server.pem",
    "tls-key": "/etc/quoracy/server.key",
    "tls-client-ca": "/etc/quoracy/client-ca.pem",
    "zookeeper-min-session-timeout": "4000",
    "zookeeper-max-session-timeout": "40000",
    "zookeeper-super-digest": "super:PYIKMvaBmWYQJkCRPKlP34EmIeM=",
}


def make_table() -> str:
    lines = []
    for group in GROUPS:
        lines += [f"**{group}**", "", "| setting | default | |", "|---|---|---|"]
        lines += [_row(setting) for setting in in_group(group)]
        lines.append("")
    return "\n".join(lines)


def _row(setting: Setting[object]) -> str:
    value = setting.metavar.replace("|", "\\|")
    return f"| `{setting.name}` {value} | {setting.default_for_people} | {setting.help} |"


def make_example() -> str:
    lines = [
        "# Settings of `quoracy serve --config quoracy.toml`, all of them commented out.",
        "# Each is shown with its default, or with an example where there is none.",
    ]
    for group in GROUPS:
        lines += ["", f"# -- {group}"]
        for setting in in_group(group):
            text = _EXAMPLES.get(setting.name, setting.default_text)
            lines += ["", f"# {setting.help}", f'# {setting.name} = "{text}"']
    return "\n".join(lines) + "\n"


def in_guide(guide: str) -> str:
    return guide.partition(_BEGIN)[2].partition(_END)[0]


def main() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    before, begin, rest = guide.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    assert begin, f"{GUIDE} has no place for the table"
    assert end, f"{GUIDE} has no end of the table"
    GUIDE.write_text(before + begin + make_table() + end + after, encoding="utf-8")
    EXAMPLE.write_text(make_example(), encoding="utf-8")


if __name__ == "__main__":
    main()
