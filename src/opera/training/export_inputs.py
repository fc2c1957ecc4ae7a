"""The arguments and output files of ``opera score`` and ``opera mine``. Does not import torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import pyarrow as pa

from opera.config.negatives import MiningSettings
from opera.core.arguments import expand_user, flag, user_path, whole_number
from opera.core.errors import SettingError
from opera.core.files import check_output, replace_file, write_parquet
from opera.data import Source, check_stays_out
from opera.data.spreadsheets import with_apostrophes
from opera.retrieval.locate import Model, checked_model
from opera.retrieval.prompts import LENGTH_SETTINGS

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

SCORE_FORMATS = (".parquet", ".tsv", ".jsonl")
NEGATIVES_FORMATS = (".jsonl", ".tsv")


class ScoreInputs(NamedTuple):
    """The checked arguments of :func:`opera.score`.

    Attributes:
        model: the model that scores the pairs, or that mines for the reranker.
        reranker: the model that scores the pairs, if any.
        negatives: the negatives that a teacher scores; ``None``: those of the data, if any.
        mining: the settings of mining.
        cbs_pool: random documents per pair, 0 for no CBS.
        max_length: tokens that the reranker reads.
    """

    model: str | SentenceTransformer | None
    reranker: str | None
    negatives: int | Literal["given"] | None
    mining: MiningSettings
    cbs_pool: int
    max_length: int | None

    @classmethod
    def checked(
        cls,
        model: Model | None,
        reranker: str | Path | None,
        negatives: Any,
        ranks: Any,
        cbs_pool: int,
        max_length: int | None,
        settings: Mapping[str, Any],
    ) -> Self:
        """Check that the arguments fit together.

        Raises:
            SettingError: with the argument and its requirement.
        """
        if isinstance(negatives, str) and negatives.isdecimal():
            negatives = int(negatives)
        if negatives is not None and negatives != "given":
            negatives = whole_number(negatives, "negatives", 1)
        cbs_pool = whole_number(cbs_pool, "cbs_pool", 0)
        teacher, mined = reranker is not None or negatives is not None, isinstance(negatives, int)
        mining = {"range": ranks, **({"keep": negatives} if mined else {})}
        for wrong, message in (
            (model is None and reranker is None, "model: pass a model, or a reranker"),
            (model is None and mined, f"negatives={negatives}: needs a model that mines them"),
            (
                model is not None and reranker is not None and not mined,
                "model: with a reranker, the model only mines; pass negatives=N, or leave the "
                "model out",
            ),
            (cbs_pool and teacher, "cbs_pool: a teacher does not compute CBS; leave it out"),
            (
                model is None and not settings.keys().isdisjoint(LENGTH_SETTINGS.values()),
                f"model: pass a model, or leave {' and '.join(LENGTH_SETTINGS.values())} out; "
                "max_length is the reranker's",
            ),
            (
                max_length is not None and reranker is None,
                f"max_length={max_length}: needs a reranker",
            ),
        ):
            if wrong:
                raise SettingError(message)
        return cls(
            None if model is None else checked_model(model),
            None if reranker is None else expand_user(reranker, "reranker"),
            negatives,
            MiningSettings.parse(mining),
            cbs_pool,
            max_length,
        )


def checked_output(
    out: str | Path | None,
    formats: Sequence[str],
    overwrite: bool,
    data: Source,
    reads: Iterable[Path],
    name: str = "--out",
) -> Path | None:
    """Check the output file before any work, and return its path, if any.

    Raises:
        SettingError: if it cannot be written, would replace an input, or is inside the data.
    """
    if out is None:
        return None
    path, overwrite = user_path(out, name), flag(overwrite, "overwrite")
    check_output(path, name, formats, overwrite=overwrite, reads=reads)
    check_stays_out(path, name, data)
    return path


def write_table(
    path: Path, table: pa.Table, records: Iterable[Mapping[str, Any]] | None = None
) -> None:
    """Write a table as ``.parquet``, ``.tsv``, ``.csv`` or ``.jsonl``, by the suffix.

    A ``.jsonl`` file has an object per line: the ``records``, or the rows of the table.
    """

    def write_jsonl(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            for row in table.to_pylist() if records is None else records:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")

    if path.suffix == ".parquet":
        write_parquet(path, table)
    elif path.suffix == ".jsonl":
        replace_file(path, write_jsonl)
    else:
        lines = partial(
            with_apostrophes(table).to_pandas().to_csv,
            sep="\t" if path.suffix == ".tsv" else ",",
            index=False,
            lineterminator="\n",
        )
        replace_file(path, lines)
