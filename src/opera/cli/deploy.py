"""``opera export`` and ``opera push``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from opera.cli.options import (
    MODELS,
    ColumnsOption,
    EncodingOption,
    JsonOption,
    OverwriteOption,
    Screen,
    SkipOption,
    listed,
    parser_of,
    path_option,
    show,
)
from opera.core.arguments import expand_user
from opera.core.figures import few_queries
from opera.core.files import check_folder
from opera.core.terminal import counted
from opera.deployment.record import Export, Form

KeepRunOption = Annotated[
    bool,
    typer.Option("--keep-run", help="include the hashes of the training queries"),
]


def export(
    model: Annotated[
        str,
        typer.Argument(
            help=f"the model: {MODELS}",
            metavar="RUN|MODEL",
            parser=parser_of(expand_user, "RUN|MODEL"),
        ),
    ],
    out: Annotated[Path, path_option("--out", "folder to write")],
    onnx: Annotated[
        bool,
        typer.Option("--onnx", help="write an ONNX file for sentence-transformers' ONNX backend"),
    ] = False,
    int8: Annotated[
        bool, typer.Option("--int8", help="write an ONNX file with 8-bit weights")
    ] = False,
    static: Annotated[
        bool,
        typer.Option("--static", help="write a static model: a vector per token, no transformer"),
    ] = False,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="data set whose test split is used to measure; auto: the run's data",
            metavar="DATA",
            parser=parser_of(expand_user, "DATA"),
        ),
    ] = None,
    columns: ColumnsOption = None,
    encoding: EncodingOption = None,
    skip_bad_rows: SkipOption = False,
    measure: Annotated[
        bool,
        typer.Option("--measure/--no-measure", help="compare each form with the trained model"),
    ] = True,
    overwrite: OverwriteOption = False,
    keep_run: KeepRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Export a trained model as ONNX, as 8-bit ONNX or as a static model, and compare each form
    with it.
    """
    check_folder(out, "--out")  # importing torch fails if the current folder was deleted

    from opera.deployment.export import export as export_model

    is_chosen: dict[Form, bool] = {"onnx": onnx, "int8": int8, "static": static}
    exported = export_model(
        model,
        out=out,
        forms=[form for form, chosen in is_chosen.items() if chosen],
        data=data,
        columns=columns,
        encoding=encoding,
        skip_bad_rows=skip_bad_rows,
        measure=measure,
        overwrite=overwrite,
        keep_run=keep_run,
    )
    show(as_json, exported.as_dict, partial(_print_export, exported=exported))


def _print_export(screen: Screen, exported: Export) -> None:
    """Print quality, speed and size of each form compared with the trained model."""
    from opera.deployment.record import HEADS, table_rows

    queries = exported.queries
    if queries:
        title = f"{exported.model} on {exported.data}, {counted(queries, 'test query')}"
        screen.heading(f"{title}; speed on {exported.processor}")
    screen.table(HEADS, table_rows(exported), words=2)
    screen.lines(
        few_queries(queries) if queries else None,
        f"\nwritten to {exported.folder}; its export.json holds all measurements",
    )


def push(
    model: Annotated[
        str,
        typer.Argument(
            help="a run, or a folder of opera export",
            metavar="RUN|FOLDER",
            parser=parser_of(expand_user, "RUN|FOLDER"),
        ),
    ],
    name: Annotated[str, typer.Argument(help="the repository", metavar="OWNER/NAME")],
    public: Annotated[
        bool, typer.Option("--public", help="make a new repository public; the default is private")
    ] = False,
    language: Annotated[
        str | None,
        typer.Option(
            "--language", help="languages of the texts, for the model card, such as en,de"
        ),
    ] = None,
    keep_run: KeepRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Upload a model and its card to the Hugging Face Hub. A new repository is private unless
    --public is given.
    """
    from opera.retrieval.locate import locate_model

    locate_model(model)

    from opera.deployment.push import push as push_model

    url = push_model(model, name, public=public, language=listed(language), keep_run=keep_run)
    show(as_json, lambda: {"url": url}, lambda screen: screen.lines(url))
