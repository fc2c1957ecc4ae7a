"""``opera review``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opera.cli.options import JsonOption, OverwriteOption, parser_of, path_option, show
from opera.core.arguments import user_path
from opera.core.terminal import place


def review(
    run: Annotated[
        Path,
        typer.Argument(help="a finished run", metavar="RUN", parser=parser_of(user_path, "RUN")),
    ],
    out: Annotated[
        Path | None,
        path_option(
            "--out",
            "file to write: .html, or .csv for a table with an empty column decision; default: "
            "review.html in the run",
        ),
    ] = None,
    items: Annotated[int, typer.Option("--items", help="maximum number of items")] = 200,
    split: Annotated[
        str,
        typer.Option(
            "--split", help="train; or test, to correct the labels that the run was measured with"
        ),
    ] = "train",
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a page to review labels that look wrong, missing labels, and test queries that changed.
    The page opens from disk and saves your decisions.
    """
    from opera.run_folder.folder import Run
    from opera.run_folder.review import review as write_review

    file = write_review(run, out, items=items, split=split, overwrite=overwrite)
    if file.suffix == ".csv":
        name, advice = file.name, "fill the column decision with wrong or correct"
    else:
        name = "test_decisions.csv" if split == "test" else "decisions.csv"
        advice = "open it in a browser, decide, and save the decisions"
    earlier = [] if split == "test" else Run.open(run).settings["decisions"] or []
    if name in [Path(path).name for path in earlier]:
        name = f"decisions{len(earlier) + 1}.csv"
        advice += f" as {name}"
    command = f"opera report {place(run)}" if split == "test" else "train with"
    options = " ".join(f"--decisions {place(path)}" for path in (*earlier, name))
    show(
        as_json,
        lambda: {"file": str(file), "next": f"{advice}; then {command} {options}"},
        lambda screen: screen.lines(f"{place(file)}: {advice}; then {command} {options}"),
    )
