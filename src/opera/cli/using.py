"""Commands that use a model: evaluate, search; score, mine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opera.cli.options import DataArgument, JsonOption, ModelArgument, ModelOption, RelevantOption, SeedOption
from opera.errors import SettingError

if TYPE_CHECKING:
    from opera.data import RetrievalData


def evaluate(
    model: ModelArgument,
    data: DataArgument,
    split: Annotated[str, typer.Option("--split", help="which judgements to use")] = "test",
    measures: Annotated[str | None, typer.Option("--measures", help="comma-separated, such as nDCG@10,R@100")] = None,
    full: Annotated[bool, typer.Option("--full", help="all measures at 1, 5, 10, 20, 50 and 100")] = False,
    relevant_grade: Annotated[
        int | None,
        typer.Option("--relevant-grade", help="lowest score that counts as relevant; auto: a run's own, or 1", min=1),
    ] = None,
    run_file: Annotated[Path | None, typer.Option("--run-file", help="also write the ranking as a TREC run")] = None,
    json_: JsonOption = False,
) -> None:
    """Measure a model on a split of a data set."""
    from opera.data import load_data
    from opera.measures import DEFAULT_MEASURES, FULL_MEASURES, check_measures

    names = tuple(measures.split(",")) if measures else FULL_MEASURES if full else DEFAULT_MEASURES
    check_measures(names)
    loaded = load_data(data)

    from opera.api import evaluate as evaluate_model
    from opera.files import check_suffix
    from opera.outputs import write_trec_run
    from opera.show import console, print_measures

    if run_file:
        check_suffix(run_file, (".trec", ".run", ".txt"))
    result = evaluate_model(model, loaded, split, names, relevant_grade=relevant_grade)
    if run_file:
        write_trec_run(run_file, result, loaded)
    if json_:
        facts = {"model": model, "data": data, "split": split, "queries": len(result.query_ids)}
        print(json.dumps({**facts, "measures": result.measures}, indent=2))
    else:
        print_measures(console(), result.measures, f"{model} on {data}, {split}: {len(result.query_ids)} queries")


def score(
    data: DataArgument,
    model: ModelOption,
    out: Annotated[Path, typer.Option("--out", help="file to write: .parquet, .tsv or .jsonl")],
    cbs: Annotated[bool, typer.Option("--cbs", help="also rank each pair among random documents (CBS)")] = False,
    cbs_pool: Annotated[
        int | None, typer.Option("--cbs-pool", help="how many random documents; default 10,000", min=1)
    ] = None,
    relevant_grade: RelevantOption = 1,
    seed: SeedOption = 0,
) -> None:
    """Write the pretrained similarity and stand-in loss of every training pair: what SP ranks by and DP starts from."""
    from opera.files import SCORE_FORMATS, check_suffix

    if cbs_pool and not cbs:
        raise SettingError("--cbs-pool: needs --cbs")
    check_suffix(out, SCORE_FORMATS)
    loaded = _training_data(data, model, relevant_grade)

    from opera.methods.static import CBS_POOL
    from opera.outputs import score_pairs
    from opera.show import console, print_measures

    summary, note = score_pairs(loaded, model, out, seed, (cbs_pool or CBS_POOL) if cbs else 0)
    print_measures(console(), summary, f"similarity of {data}'s training pairs; {out} has them all")
    if note:
        print(note)


def mine(
    data: DataArgument,
    model: ModelOption,
    out: Annotated[Path, typer.Option("--out", help="file to write: .jsonl (FlagEmbedding) or .tsv (ids)")],
    range_: Annotated[str, typer.Option("--range", help="ranks LO:HI to take negatives from")] = "10:100",
    keep: Annotated[int, typer.Option("--keep", help="most negatives a query", min=1)] = 15,
    relevant_grade: RelevantOption = 1,
    seed: SeedOption = 0,
) -> None:
    """Mine hard negatives for the training queries; the .jsonl trains with this and with FlagEmbedding."""
    from opera.config import TrainSettings
    from opera.files import NEGATIVES_FORMATS, check_suffix
    from opera.mine import check_range

    check_suffix(out, NEGATIVES_FORMATS)
    ranks = TrainSettings.parse({"negatives": "hard", "range": range_}).mining_range
    loaded = _training_data(data, model, relevant_grade)
    check_range(ranks, len(loaded.corpus))

    from opera.outputs import mine_negatives

    count = mine_negatives(loaded, model, out, ranks, keep, seed)
    print(f"{out}: {count:,} negatives")


def search(
    model: ModelArgument,
    data: DataArgument,
    query: Annotated[str, typer.Argument(help="what to look for")],
    top: Annotated[int, typer.Option("--top", help="how many documents", min=1)] = 5,
    json_: JsonOption = False,
) -> None:
    """Search a corpus with a model."""
    from opera.data import load_data
    from opera.errors import DataError

    if not query.strip():
        raise DataError("query: must not be empty")
    loaded = load_data(data)

    from opera.api import open_encoder, text_choice
    from opera.evaluation import found_documents
    from opera.show import console, print_found

    found = found_documents(open_encoder(model), loaded, query, top, text_choice(model))
    if json_:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        print_found(console(), found, f"“{query}” in {data}")


def _training_data(source: str, model: str, relevant_grade: int) -> RetrievalData:
    """Load data that has training pairs, and look where the model is, before torch is loaded, which takes seconds."""
    from opera.data import load_data
    from opera.locate import locate_model

    locate_model(model)
    loaded = load_data(source).with_relevant_grade(relevant_grade)
    loaded.training_split()
    return loaded
