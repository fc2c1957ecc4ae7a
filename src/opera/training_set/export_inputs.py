"""What ``opera score`` and ``opera mine`` are asked for, and the files they write. Nothing here
needs torch.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import pyarrow as pa

from opera.config.encoding import checked_index
from opera.config.negatives import MiningSettings
from opera.core.arguments import flag, whole_number
from opera.core.errors import SettingError
from opera.core.files import check_output, replace_file, write_parquet
from opera.core.paths import expand_user, user_path
from opera.core.terminal import shown
from opera.data import RetrievalData, check_stays_out, files_read
from opera.retrieval.locate import locate_model

SCORE_FORMATS = (".parquet", ".tsv", ".jsonl")
NEGATIVES_FORMATS = (".jsonl", ".tsv")


def mining_settings(
    ranks: Any,
    relative_margin: float | None = None,
    absolute_margin: float | None = None,
    max_score: float | None = None,
    reranker: str | Path | None = None,
    index: str = "exact",
) -> MiningSettings:
    """Check how a function or a command mines; what is ``None`` has its default.

    Raises:
        SettingError: naming the option, the rule and the value.
        MissingExtraError: if the index needs FAISS, which is not installed.
    """
    settings = {
        "range": ranks,
        "relative_margin": relative_margin,
        "absolute_margin": absolute_margin,
        "max_score": max_score,
        "reranker": None if reranker is None else expand_user(reranker, "--reranker"),
        "index": checked_index(index),
    }
    values = {name: value for name, value in settings.items() if value is not None}
    try:
        return MiningSettings.parse(values)
    except SettingError as error:
        raise SettingError(*(f"--{line}".replace("_", "-", 1) for line in error.lines)) from None


class ScoreInputs(NamedTuple):
    """What :func:`opera.score` was asked for, checked.

    Attributes:
        model: scores the pairs, or mines for the reranker.
        reranker: scores the pairs.
        negatives: which documents a teacher scores beside the positives; ``None`` for those given,
            if there are any.
        mining: where they are mined from.
        cbs_pool: random documents per pair, 0 for no CBS.
        max_length: tokens that the reranker reads.
    """

    model: str | None
    reranker: str | None
    negatives: int | Literal["given"] | None
    mining: MiningSettings
    cbs_pool: int
    max_length: int | None

    @classmethod
    def checked(
        cls,
        model: str | Path | None,
        reranker: str | Path | None,
        negatives: Any,
        ranks: Any,
        cbs_pool: int,
        max_length: int | None,
    ) -> Self:
        """Check the arguments against each other.

        Raises:
            SettingError: naming the argument, and what it needs.
        """
        if isinstance(negatives, str) and negatives != "given":
            if not negatives.isdecimal():
                raise SettingError(
                    f"negatives: must be 'given' or how many to mine, got {shown(negatives)}"
                )
            negatives = int(negatives)
        if negatives is not None and negatives != "given":
            negatives = whole_number(negatives, "negatives", 1)
        cbs_pool = whole_number(cbs_pool, "cbs_pool", 0)
        teacher, mined = reranker is not None or negatives is not None, isinstance(negatives, int)
        for wrong, message in (
            (model is None and reranker is None, "model: give a model, or a reranker"),
            (model is None and mined, f"negatives={negatives}: needs a model that mines them"),
            (
                model is not None and reranker is not None and not mined,
                "model: beside a reranker a model mines; give negatives=N, or leave the model out",
            ),
            (cbs_pool and teacher, "cbs_pool: a teacher gives no CBS; leave it out"),
            (
                max_length is not None and reranker is None,
                f"max_length={max_length}: needs a reranker",
            ),
        ):
            if wrong:
                raise SettingError(message)
        return cls(
            None if model is None else expand_user(model, "model"),
            None if reranker is None else expand_user(reranker, "reranker"),
            negatives,
            mining_settings(ranks),
            cbs_pool,
            max_length,
        )

    @property
    def by_teacher(self) -> bool:
        """Whether a teacher scores, and not a model the pairs that it would train on."""
        return self.reranker is not None or self.negatives is not None

    def reads(self, data: str | Path | RetrievalData) -> list[Path]:
        """Files and folders that no output may replace."""
        models = [
            Path(locate_model(model)) for model in (self.model, self.reranker) if model is not None
        ]
        return [*files_read(data), *models]


ROWS_AT_ONCE = 1000
"""Rows of a table that are Python objects while it is written."""


def checked_output(
    out: str | Path | None,
    formats: Sequence[str],
    overwrite: bool,
    data: str | Path | RetrievalData,
    reads: Iterable[Path],
    name: str = "out",
) -> Path | None:
    """Return the file to write, checked before any work; ``None`` where none is asked for.

    Raises:
        SettingError: if it cannot be written, would replace what is read, or would be read as data.
    """
    if out is None:
        return None
    path, overwrite = user_path(out, name), flag(overwrite, "overwrite")
    check_output(path, name, formats, overwrite=overwrite, reads=reads)
    check_stays_out(path, name, data)
    return path


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table in the format of the suffix: ``.parquet``, ``.tsv`` or ``.csv`` with a header,
    or ``.jsonl``.
    """
    batches = table.to_batches(max_chunksize=ROWS_AT_ONCE)
    rows = (row for batch in batches for row in batch.to_pylist())

    def write_lines(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            sign = "\t" if path.suffix == ".tsv" else ","
            lines = csv.writer(file, delimiter=sign, lineterminator="\n")
            lines.writerow(table.column_names)
            lines.writerows(row.values() for row in rows)

    if path.suffix == ".parquet":
        write_parquet(path, table)
    elif path.suffix in (".tsv", ".csv"):
        replace_file(path, write_lines)
    else:
        write_jsonl(path, rows)


def write_jsonl(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write a JSON object per line."""

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            for record in records:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")

    replace_file(path, write)
