"""The command ``opera-paper``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

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


@app.command()
def noise(
    data: Annotated[str, typer.Argument(help="a data set, as for opera train", metavar="DATA")],
    kind: Annotated[str, typer.Option(help="random, hard, clicks, neighbour or grade")],
    out: Annotated[Path, typer.Option(help="a new folder", metavar="FOLDER")],
    share: Annotated[
        float | None, typer.Option(help="share of a split's pairs that is wrong afterwards: 0.3")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="the base model, whose ranking hard and clicks draw from")
    ] = None,
    grade: Annotated[
        int | None, typer.Option(help="kind grade: the lowest grade that becomes relevant")
    ] = None,
    relevant_grade: Annotated[
        int | None,
        typer.Option(min=1, help="lowest grade that is relevant; default 1, or one above --grade"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="of the draws")] = 0,
) -> None:
    """Add wrong pairs to train and dev, and write the data as a BEIR folder."""
    from opera.data import check_stays_out
    from opera_paper.noise import WRONG_PAIRS, add_wrong_pairs, write_noisy

    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise opera.RunFolderError(f"--out {out}: is not an empty folder; give a new one")
    check_stays_out(out, "--out", data, folder=True)
    noisy, wrong = add_wrong_pairs(
        opera.load_data(data), kind, share, seed, model=model, grade=grade,
        relevant_grade=relevant_grade,
    )  # fmt: skip
    write_noisy(noisy, wrong, out)
    print(*noisy.notes, f"{out / WRONG_PAIRS} lists the wrong pairs; next:", sep="\n")
    print(f"  opera train {out} --model {model or 'MODEL'} --out run")


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
