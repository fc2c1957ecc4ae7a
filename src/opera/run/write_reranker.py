"""Write the results of the training of a reranker."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from opera.core.terminal import json_text
from opera.data import RetrievalData
from opera.run.noisy_pairs import suspicious_table, visit_columns
from opera.run_folder.folder import (
    MODEL_FOLDER,
    PAIRS_FILE,
    PER_QUERY_FILE,
    RERANKER_FILE,
    SUSPICIOUS_FILE,
    RunWriter,
)
from opera.run_folder.reranker_run import RerankerRecord

if TYPE_CHECKING:
    from opera.retrieval.evaluation import Evaluation, Reranked
    from opera.training.reranker import RerankerFit


def result_tables(
    data: RetrievalData,
    first: Evaluation,
    before: Reranked | None,
    after: Reranked,
    fit: RerankerFit,
) -> dict[str, pa.Table]:
    """Return the tables of the folder by file.

    Args:
        data: the data with all splits.
        first: the result of the first stage.
        before: that of the base model; ``None`` if its head was new.
        after: that of the trained model.
        fit: the training.
    """
    return {PER_QUERY_FILE: _per_query(first, before, after), **_pair_tables(data, fit)}


def _per_query(first: Evaluation, before: Reranked | None, after: Reranked) -> pa.Table:
    """Return a row per test query: each measure of each search, and the best documents."""
    from opera.core.figures import column

    columns: dict[str, Any] = {"query_id": first.query_ids}
    for name, result in {"first_stage": first, "base": before, "final": after}.items():
        if result is not None:
            values = result.per_query.items()
            columns |= {column(name, measure): of_queries for measure, of_queries in values}
            columns[column(name, "documents")] = result.top_documents
    return pa.table(columns)


def _pair_tables(data: RetrievalData, fit: RerankerFit) -> dict[str, pa.Table]:
    """Return what the first visits say of the training pairs, by file."""
    train, noisy = data.training_split(), fit.noisy_labels
    pairs = train.pairs()
    query_rows = train.query_rows[pairs.pair_query]
    columns = {
        "query_id": data.queries.id_column(query_rows),
        "doc_id": data.corpus.id_column(pairs.pair_doc),
        **visit_columns(noisy, fit.visits),
    }
    tables = {PAIRS_FILE: pa.table(columns)}
    if noisy is not None:
        listed = suspicious_table(noisy, fit.visits, data, query_rows, pairs.pair_doc)
        tables[SUSPICIOUS_FILE] = listed
    return tables


def write_reranker(
    model: Path, record: RerankerRecord, tables: Mapping[str, pa.Table], folder: Path
) -> None:
    """Write everything into a folder, which gets its name when it is complete."""
    shutil.copytree(model, folder / MODEL_FOLDER)
    writer = RunWriter(folder, writes=True)
    for name, table in tables.items():
        if name == SUSPICIOUS_FILE:
            writer.write_csv(name, table)
        else:
            writer.write_tables(name, [table])
    text = json_text(record.model_dump(mode="json")) + "\n"
    (folder / RERANKER_FILE).write_text(text, encoding="utf-8")
