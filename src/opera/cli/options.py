"""Arguments and options that several commands share, and how all of them speak and stop."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from opera.data import RetrievalData

DataArgument = Annotated[
    str, typer.Argument(help="BEIR folder, FlagEmbedding .jsonl file, or python:PACKAGE", metavar="DATA")
]
ModelArgument = Annotated[
    str,
    typer.Argument(help="sentence-transformers folder or hub id, OPERA run, or 'minilm'", metavar="MODEL"),
]
ModelOption = Annotated[
    str, typer.Option("--model", help="sentence-transformers folder or hub id, OPERA run, or 'minilm'")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON on standard output")]
RelevantOption = Annotated[int, typer.Option("--relevant-grade", help="lowest score that counts as relevant", min=1)]
SeedOption = Annotated[int, typer.Option("--seed", help="of every random draw", min=0)]


def speaks() -> bool:
    """Whether this is the one process of several, started by torchrun, that prints results."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def interruptible(advice: Callable[[], str]) -> Iterator[None]:
    """Turn Ctrl-C into a sentence that says how to go on, and exit status 130."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nopera: interrupted; {advice()}", file=sys.stderr)
        raise typer.Exit(130) from None


def load_training_data(source: str, model: str, relevant_grade: int) -> RetrievalData:
    """Load data that has training pairs, and locate the model, before torch is loaded, which takes seconds."""
    from opera.data import load_data
    from opera.retrieval.locate import locate_model

    locate_model(model)
    loaded = load_data(source).with_relevant_grade(relevant_grade)
    loaded.training_split()
    return loaded
