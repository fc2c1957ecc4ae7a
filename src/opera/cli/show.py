"""``opera show``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from opera.cli.options import (
    MODELS,
    JsonOption,
    OverwriteOption,
    parser_of,
    path_option,
    source_option,
)
from opera.cli.options import show as print_result
from opera.core.arguments import user_path
from opera.core.errors import SettingError, raise_first
from opera.core.terminal import say, shown_path


def show(
    run: Annotated[
        Path,
        typer.Argument(help="a finished run", metavar="RUN", parser=parser_of(user_path, "RUN")),
    ],
    out: Annotated[
        Path | None, path_option("--out", "file to write; default: show.html in the run")
    ] = None,
    data: Annotated[
        list[str] | None,
        source_option(
            "--data",
            "the data of the run, if its record does not suffice to read them, such as "
            "python:PACKAGE; repeatable for several data sets",
        ),
    ] = None,
    serve: Annotated[
        bool,
        typer.Option("--serve", help="serve the page on this machine; it answers your questions"),
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", help="port of --serve; default: 8000, or a free one", min=1024, max=65535
        ),
    ] = None,
    base: Annotated[
        str | None,
        source_option("--base", f"{MODELS}: the base model of --serve; auto: the run's"),
    ] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a page with the test queries and their best documents before and after training. The
    page opens from disk.

    With --serve, the page also answers questions, until Ctrl-C.
    """
    raise_first(
        SettingError,
        (serve and out is not None, "--serve --out: the server writes no file; pass only one"),
        (port is not None and not serve, "--port: is the port of --serve; pass both"),
        (base is not None and not serve, "--base: is the base model of --serve; pass both"),
    )
    sources = data[0] if data and len(data) == 1 else data or None
    if serve:
        _serve(run, sources, base, port, as_json)
        return

    from opera.run.show import show as write_page

    file = write_page(run, data=sources, out=out, overwrite=overwrite)
    print_result(
        as_json,
        lambda: {"file": str(file)},
        lambda screen: screen.lines(f"{shown_path(file)}: open it in a browser (self-contained)"),
    )


def _serve(
    folder: Path, data: list[str] | str | None, base: str | None, port: int | None, as_json: bool
) -> None:
    """Serve the page of a run until Ctrl-C."""
    from opera.run.serve import PageServer, Searches
    from opera.run.show import run_texts
    from opera.run_folder.folder import Run

    run = Run.open(folder)
    searches = Searches(run, run_texts(run, data), base)
    with PageServer(run, searches, port) as server:
        try:
            print_result(
                as_json,
                lambda: {"url": server.url},
                lambda screen: screen.lines(f"{server.url}: open it in a browser; Ctrl-C ends"),
            )
            server.serve_forever()
        except KeyboardInterrupt:
            say("\nopera: ended", file=sys.stderr)
