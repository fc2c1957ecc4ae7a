"""Arguments and options that several commands share, and how all of them log and stop."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opera.config.training import TrainSettings
from opera.config.yaml import parse_assignments
from opera.core.arguments import MOST, MOST_SEED
from opera.core.errors import SettingError
from opera.core.paths import expand_user, user_path
from opera.core.terminal import say, shown

if TYPE_CHECKING:
    from opera.data import RetrievalData
    from opera.experiments.grid.run import Status


def parser_of(parse: Callable[..., Any], name: str) -> Callable[[str], Any]:
    """Return the parser of an argument or option that takes a path; older versions of typer refuse
    a ``partial``.
    """

    def path(value: str) -> Any:
        return parse(value, name=name)

    return path


def path_option(name: str, help: str, **more: Any) -> Any:
    """Declare an option that takes a path: ``~`` is expanded here, and what no path may be is
    refused.
    """
    return typer.Option(name, help=help, metavar="PATH", parser=parser_of(user_path, name), **more)


def source_option(name: str, help: str) -> Any:
    """Declare an option that takes a path or the name of something else, likewise."""
    return typer.Option(name, help=help, metavar="PATH|NAME", parser=parser_of(expand_user, name))


def setting_option(flag: str, name: str, path: bool = False) -> Any:
    """Declare the option of a training setting, with the setting's own help; its parameter has the
    setting's name.
    """
    words = str(TrainSettings.flat_fields[name].description)
    about: dict[str, Any] = (
        {"metavar": "PATH", "parser": parser_of(expand_user, flag)} if path else {}
    )
    return typer.Option(flag, help=f"{words.replace(f' ({flag})', '')} ({name})", **about)


expand_data = parser_of(expand_user, "DATA")
MODELS = "sentence-transformers folder or hub id, OPERA run, or 'minilm'"

DataArgument = Annotated[
    str | None,
    typer.Argument(
        help="BEIR folder, table of pairs (CSV, TSV, JSONL, Parquet, Arrow), FlagEmbedding .jsonl "
        "file, "
        "python:PACKAGE, paper:NAME, irds:ID, or hf:OWNER/NAME; or give --pairs",
        metavar="DATA",
    ),
]
PairsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pairs",
        help="table of pairs, or SPLIT=FILE; repeatable: CSV, TSV, JSONL, Parquet, Arrow, TREC "
        "qrels",
        metavar="FILE",
    ),
]
DocumentsOption = Annotated[
    str | None,
    typer.Option(
        "--documents", help="table of the documents whose ids are in --pairs", metavar="FILE"
    ),
]
QueriesOption = Annotated[
    str | None, typer.Option("--queries", help="table of the queries, likewise", metavar="FILE")
]
ColumnsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        help="which columns to read: query=q,document=doc_id,weight=clicks",
        metavar="ROLE=COLUMN",
    ),
]
ModelOption = Annotated[str, source_option("--model", MODELS)]
OptionalModelOption = Annotated[str | None, source_option("--model", f"{MODELS}; or vectors' name")]
RerankerOption = Annotated[
    str | None, source_option("--reranker", "cross-encoder: sentence-transformers folder or hub id")
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="replace the file if it exists")]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON on standard output")]
RelevantOption = Annotated[
    int,
    typer.Option("--relevant-grade", help="lowest grade that counts as relevant", min=1, max=MOST),
]
SeedOption = Annotated[
    int, typer.Option("--seed", help="seed of every random draw", min=0, max=MOST_SEED)
]

StepsOption = Annotated[int | None, setting_option("--steps", "max_steps")]
EpochsOption = Annotated[float | None, setting_option("--epochs", "epochs")]
PresetOption = Annotated[str | None, setting_option("--preset", "preset")]
BatchSizeOption = Annotated[
    int | None, setting_option("--batch-size", "per_device_train_batch_size")
]
LearningRateOption = Annotated[float | None, setting_option("--lr", "learning_rate")]
NegativesOption = Annotated[str | None, setting_option("--negatives", "negatives")]
RangeOption = Annotated[str | None, setting_option("--range", "range")]
TeacherOption = Annotated[str | None, setting_option("--teacher", "teacher_scores", path=True)]
FutureOption = Annotated[str | None, setting_option("--future", "future")]
PublicOption = Annotated[
    bool, typer.Option("--public", help="make a new repository public; the default is private")
]
LanguageOption = Annotated[
    str | None,
    typer.Option(
        "--language", help="languages of the texts for the model card, such as en,de; auto: none"
    ),
]
QueryPromptOption = Annotated[
    str | None,
    typer.Option(
        "--query-prompt", help="text before each query, empty for none; auto: the data's or model's"
    ),
]
DocumentPromptOption = Annotated[
    str | None, typer.Option("--document-prompt", help="text before each document, likewise")
]
IndexOption = Annotated[
    str,
    typer.Option(
        "--index", help="how to search: exact, or approximately by FAISS (extra faiss): hnsw, ivf"
    ),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="any setting, as key=value; repeatable")
]
TrainerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trainer", help="another field of the trainer's arguments, as key=value; repeatable"
    ),
]
EXAMPLES = {"seeds": "0,1,2", "steps": "100,1000"}
"""Of options that take several numbers."""
ConfigOption = Annotated[
    list[str] | None,
    source_option(
        "--config", "YAML recipe: a file, or the name of one of OPERA's; repeatable, later ones win"
    ),
]


def given_settings(context: typer.Context) -> dict[str, Any]:
    """Return the settings that a command's options gave; their parameters have the settings'
    names.
    """
    known = ("method", *TrainSettings.flat_fields)
    return {
        name: value
        for name, value in context.params.items()
        if name in known and value not in (None, ())
    }


def collect_values(
    config: list[str] | None, assignments: list[str] | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Merge the settings of a command: recipes in their order, then ``--set``, then the options
    that were given.

    Raises:
        SettingError: for a recipe that cannot be read, or a setting given by ``--set`` and by its
            own option.
    """
    from opera.config.recipe import override, read_recipes, with_full_names

    given = {name: value for name, value in options.items() if value is not None}
    if "trainer" in given:
        given["trainer"] = parse_assignments(given["trainer"], "--trainer", "adam_beta2=0.98")
    assigned = with_full_names(parse_assignments(assignments or []))
    if twice := given.keys() & assigned.keys():
        raise SettingError(
            f"given twice, by its own option and by --set: {', '.join(sorted(twice))}"
        )
    values = {**assigned, **given}
    return override(read_recipes(config or [], values.get("preset")), values)


def one_source(
    data: str | None,
    pairs: list[str] | None,
    documents: str | None,
    queries: str | None,
    columns: list[str] | None,
) -> str:
    """Return one string for a data set, or for the tables in its place."""
    from opera.data.loading import data_source
    from opera.data.names import TABLES

    if data is not None and not data.startswith(TABLES):
        data = expand_user(data, "DATA")
    return data_source(
        data, pairs=pairs or (), documents=documents, queries=queries, columns=columns or ()
    )


def listed(text: str) -> list[str]:
    """Split an option at its commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def numbers(name: str, text: str) -> list[int]:
    """Read whole numbers separated by commas.

    Raises:
        SettingError: naming the option ``--name``, with an example.
    """
    parts = listed(text)
    if bad := [part for part in parts if not re.fullmatch(r"[0-9]{1,10}", part)]:
        raise SettingError(
            f"--{name}: must be whole numbers separated by commas, such as {EXAMPLES[name]}, got "
            f"{shown(bad[0])}"
        )
    return [int(part) for part in parts]


def load_training_data(source: str, *models: str) -> RetrievalData:
    """Load data and locate the models before torch is loaded, which takes seconds."""
    from opera.data import load_data
    from opera.retrieval.locate import locate_model

    for model in models:
        locate_model(model)
    loaded = load_data(source)
    loaded.training_split()
    return loaded


def check_launcher() -> None:
    """Check what torchrun tells its processes; a shell may hold something else under these names.

    Raises:
        SettingError: naming the variable.
    """
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_PORT"):
        value = os.environ.get(name, "0")
        if not re.fullmatch(r"-?[0-9]{1,9}", value):
            raise SettingError(
                f"{name}: must be a whole number, got {shown(value)}; unset it, or start with "
                "torchrun"
            )


def several_processes() -> bool:
    """Whether torchrun started this process beside others; what is no number is
    :func:`check_launcher`'s to refuse.
    """
    size = os.environ.get("WORLD_SIZE", "1")
    return size.isdecimal() and int(size) > 1


def is_main_process() -> bool:
    """Whether this process prints results: the only one, or the first of those that torchrun
    started.
    """
    return not several_processes() or os.environ.get("RANK", "0") == "0"


@contextmanager
def interruptible(advice: Callable[[], str]) -> Iterator[None]:
    """Turn Ctrl-C into a sentence on how to continue, and exit status 130."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"\nopera: interrupted; {advice()}", file=sys.stderr)
        raise typer.Exit(130) from None


def how_to_continue(status: Status) -> str:
    """Say after Ctrl-C how far a grid came."""
    done = f"{len(status.done)} of {len(status.cells)} cells are done"
    return f"{done}; the same command continues where it stopped"


def end_if_failed(status: Status) -> None:
    """End with exit status 1 where cells of a grid failed."""
    if count := len(status.failed):
        say(
            f"{count} cell{'s' * (count > 1)} failed, see above; the same command tries again",
            file=sys.stderr,
        )
        raise typer.Exit(1)
