"""Data sources: a BEIR folder, a FlagEmbedding JSONL file, or the source code of a Python package."""

from __future__ import annotations

from pathlib import Path

from opera.core.errors import DataError
from opera.data.beir import load_beir
from opera.data.flagembedding import load_flag
from opera.data.python_source import load_python
from opera.data.qrels import GivenNegatives, Qrels
from opera.data.retrieval_data import RetrievalData
from opera.data.store import cache_folder
from opera.data.texts import TextTable

__all__ = [
    "GivenNegatives",
    "Qrels",
    "RetrievalData",
    "TextTable",
    "cache_folder",
    "load_data",
    "load_python",
]


def load_data(source: str | Path) -> RetrievalData:
    """Read a data set from wherever ``source`` says.

    Args:
        source: a BEIR folder, a ``.jsonl`` file in FlagEmbedding's format, or ``python:PACKAGE`` for the source code
            of an installed package (``python:stdlib`` for the standard library).

    Raises:
        DataError: naming the file, the line, the rule and the value.
    """
    text = str(source)
    if text.startswith("python:"):
        return load_python(text.removeprefix("python:"))
    path = Path(source)
    if path.is_dir():
        return load_beir(path)
    if path.is_file() and path.suffix == ".jsonl":
        return load_flag(path)
    what = "a file, but not a .jsonl file" if path.exists() else "no such file or folder"
    raise DataError(
        f"{text}: {what}; data is a BEIR folder (corpus.jsonl, queries.jsonl, qrels/), a FlagEmbedding .jsonl file, "
        "or python:PACKAGE"
    )
