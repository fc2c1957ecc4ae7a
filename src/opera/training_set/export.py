"""Files that single commands write: pair scores, mined negatives, TREC runs. Each is written whole or not at all."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from opera.config.recipe import TrainSettings
from opera.core.errors import DataError
from opera.core.files import replace_file
from opera.data import RetrievalData
from opera.data.pairs import TrainingPairs
from opera.retrieval.encoder import Encoder, open_encoder
from opera.retrieval.evaluation import Evaluation
from opera.retrieval.run_model import run_corpus_text
from opera.retrieval.search import search_corpus
from opera.training_set.cbs import rank_among_random
from opera.training_set.known_positives import KnownPositives
from opera.training_set.negatives import ListedNegatives, mine_hard_negatives
from opera.training_set.pretrained_scores import pretrained_scores


def score_pairs(
    data: RetrievalData, model: str, out: Path, seed: int, cbs_pool: int = 0
) -> tuple[dict[str, float], str]:
    """Write a row a training pair: query id, document id, grade, similarity, stand-in loss, and CBS where asked for.

    Args:
        data: the data.
        model: the model that scores.
        out: the file to write, of one of ``SCORE_FORMATS``.
        seed: of the random documents.
        cbs_pool: how many random documents to rank each pair among for its CBS; 0 leaves CBS out.

    Returns:
        Quantiles of the similarity, and a note where there were fewer documents than ``cbs_pool``.
    """
    encoder, pairs, query_rows, grades = _training(data, model)
    known = KnownPositives(pairs, len(data.corpus))
    defaults = TrainSettings()
    queries, corpus = encoder.encode_queries(data, query_rows), encoder.encode_corpus(data, run_corpus_text(model))
    scores = pretrained_scores(
        pairs,
        queries,
        corpus,
        defaults.temperature,
        defaults.per_device_train_batch_size * defaults.train_group_size,
        seed,
        known,
    )
    columns = {
        "query_id": data.queries.ids(query_rows[pairs.pair_query]),
        "doc_id": data.corpus.ids(pairs.pair_doc),
        "grade": grades,
        "similarity": scores.similarity,
        "loss": scores.loss,
    }
    note = ""
    if cbs_pool:
        consistency = rank_among_random(pairs, queries, corpus, cbs_pool, seed)
        columns["cbs"] = consistency.cbs
        note = consistency.small_pool_note(cbs_pool)
    table = pa.table(columns)
    if out.suffix == ".parquet":
        replace_file(out, lambda temporary: pq.write_table(table, temporary))
    elif out.suffix == ".tsv":
        _write_tsv(out, table.column_names, (row.values() for row in table.to_pylist()))
    else:
        _write_jsonl(out, table.to_pylist())
    quantiles = np.quantile(scores.similarity, [0, 0.25, 0.5, 0.75, 1])
    return dict(zip(("lowest", "25%", "median", "75%", "highest"), quantiles.tolist(), strict=True)), note


def mine_negatives(data: RetrievalData, model: str, out: Path, lo_hi: tuple[int, int], keep: int, seed: int) -> int:
    """Write mined negatives: FlagEmbedding's JSON Lines, or query and document ids.

    Args:
        data: the data.
        model: the model that ranks.
        out: the file to write, of one of ``NEGATIVES_FORMATS``.
        lo_hi: the ranks to take negatives from.
        keep: most negatives a query.
        seed: of the random choice among them.

    Returns:
        How many there are.
    """
    encoder, pairs, query_rows, _ = _training(data, model)
    ranking = search_corpus(encoder, data, query_rows, lo_hi[1], run_corpus_text(model))
    mined = mine_hard_negatives(ranking, KnownPositives(pairs, len(data.corpus)), lo_hi, keep, seed)
    if out.suffix == ".tsv":
        ids = zip(
            data.queries.ids(np.repeat(query_rows, np.diff(mined.offsets))),
            data.corpus.ids(mined.doc_rows),
            strict=True,
        )
        _write_tsv(out, ["query-id", "corpus-id"], ids)
    else:
        _write_jsonl(out, _flag_records(data, pairs, query_rows, mined))
    return len(mined.doc_rows)


def write_trec_run(path: Path, result: Evaluation, data: RetrievalData) -> None:
    """Write a ranking in TREC's run format: query, Q0, document, rank, score, tag.

    Raises:
        DataError: for an id with white space, which the format cannot hold.
    """
    for identifier in (*result.query_ids, *data.corpus.ids()):
        if len(identifier.split()) != 1:
            raise DataError(f"{path}: TREC's format cannot hold the id {identifier!r}: it has white space")

    def lines() -> Iterable[str]:
        for at, query in enumerate(result.query_ids):
            docs = data.corpus.ids(result.ranking.doc_rows[at])
            for rank, (doc, score) in enumerate(zip(docs, result.ranking.scores[at], strict=True), start=1):
                yield f"{query} Q0 {doc} {rank} {score:.8g} opera\n"

    replace_file(path, lambda temporary: temporary.write_text("".join(lines()), encoding="utf-8"))


def _training(data: RetrievalData, model: str) -> tuple[Encoder, TrainingPairs, np.ndarray, np.ndarray]:
    training = data.training_split()
    return open_encoder(model), training.pairs(), training.query_rows, training.grades


def _flag_records(
    data: RetrievalData, pairs: TrainingPairs, query_rows: np.ndarray, mined: ListedNegatives
) -> Iterable[dict[str, object]]:
    for number, query in enumerate(data.queries.texts(query_rows)):
        positives = pairs.pair_doc[pairs.query_offsets[number] : pairs.query_offsets[number + 1]]
        negatives = mined.doc_rows[mined.offsets[number] : mined.offsets[number + 1]]
        yield {"query": query, "pos": data.corpus.texts(positives), "neg": data.corpus.texts(negatives)}


def _write_tsv(path: Path, header: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file, delimiter="\t", lineterminator="\n")
            lines.writerow(header)
            lines.writerows(rows)

    replace_file(path, write)


def _write_jsonl(path: Path, records: Iterable[dict[str, object]]) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            for record in records:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")

    replace_file(path, write)
