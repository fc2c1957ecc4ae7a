"""``opera export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opera.cli.options import (
    MODELS,
    JsonOption,
    LanguageOption,
    OverwriteOption,
    PublicOption,
    expand_data,
    listed,
    path_option,
)
from opera.core.files import check_folder
from opera.core.paths import expand_user
from opera.core.terminal import json_text, say

if TYPE_CHECKING:
    from opera.deployment.record import Form


def export(
    model: Annotated[
        str,
        typer.Argument(
            help=f"the model: {MODELS}",
            metavar="RUN|MODEL",
            parser=lambda text: expand_user(text, "RUN|MODEL"),
        ),
    ],
    out: Annotated[Path, path_option("--out", "folder to write")],
    onnx: Annotated[
        bool,
        typer.Option("--onnx", help="an ONNX file, as sentence-transformers' backend reads it"),
    ] = False,
    int8: Annotated[
        bool, typer.Option("--int8", help="an ONNX file with weights of 8 bits")
    ] = False,
    static: Annotated[
        bool, typer.Option("--static", help="a static model: a vector per token, no transformer")
    ] = False,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="measure on this data set's test split; auto: the run's own data",
            metavar="DATA",
            parser=expand_data,
        ),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="measure each form beside the model")
    ] = True,
    push: Annotated[
        str | None,
        typer.Option(
            "--push",
            help="also upload it to the Hugging Face Hub, as opera push",
            metavar="OWNER/NAME",
        ),
    ] = None,
    public: PublicOption = False,
    language: LanguageOption = None,
    overwrite: OverwriteOption = False,
    json_: JsonOption = False,
) -> None:
    """Write a trained model as ONNX, as ONNX of 8 bits or as a static model, and measure each
    beside it.
    """
    chosen: dict[Form, bool] = {"onnx": onnx, "int8": int8, "static": static}
    check_folder(
        out, "--out"
    )  # before torch is loaded, which ends the process where the current folder is gone

    from opera.cli.printing.console import console
    from opera.cli.printing.export import print_export
    from opera.deployment.export import export as export_model

    forms: list[Form] = [form for form, wanted in chosen.items() if wanted]
    exported = export_model(
        model,
        out=out,
        forms=forms,
        data=data,
        measure=measure,
        push=push,
        public=public,
        language=listed(language or ""),
        overwrite=overwrite,
    )
    if json_:
        say(json_text(exported.as_dict()))
    else:
        print_export(console(), exported)
