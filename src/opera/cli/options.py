"""Arguments and options that several commands share, and how all of them speak and stop."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

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
