"""The command ``opera-paper``."""

from __future__ import annotations

import sys

import typer

import opera

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _about() -> None:
    """Reproduce the tables of the OPERA paper (COLM 2026)."""


def main() -> None:
    """Run the command line; wrong input ends with one message and exit status 2."""
    try:
        app(prog_name="opera-paper")
    except opera.OperaError as error:
        print("opera-paper: error:", "\n".join(error.lines), file=sys.stderr)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        print("\nopera-paper: interrupted", file=sys.stderr)
        sys.exit(130)
