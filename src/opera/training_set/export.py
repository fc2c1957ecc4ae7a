"""Pair scores and mined negatives as tables and files: ``opera.score`` and ``opera.mine``."""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from opera.config.automatic import Situation, resolve
from opera.config.training import TrainSettings
from opera.core.arguments import MOST_SEED, flag, whole_number
from opera.core.files import check_output, replace_file
from opera.core.parquet import write_parquet
from opera.core.paths import expand_user, user_path
from opera.core.settings import resolved
from opera.data import Qrels, RetrievalData, load_data
from opera.retrieval.encoder import given_prompts, open_encoder
from opera.retrieval.locate import inputs_of
from opera.retrieval.models import model_kind
from opera.retrieval.processes import process_index
from opera.retrieval.run_model import run_corpus_text
from opera.retrieval.search import search_corpus
from opera.training_set.cbs import rank_among_random
from opera.training_set.document_pool import DocumentPool
from opera.training_set.formats import NEGATIVES_FORMATS, SCORE_FORMATS
from opera.training_set.known_positives import KnownPositives
from opera.training_set.negatives import ListedNegatives, check_range, mine_hard_negatives
from opera.training_set.pretrained_scores import pair_encoder, pretrained_scores

log = logging.getLogger("opera")


def score(
    data: str | Path | RetrievalData,
    *,
    model: str | Path,
    out: str | Path | None = None,
    cbs_pool: int = 0,
    relevant_grade: int = 1,
    seed: int = 0,
    overwrite: bool = False,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
) -> pa.Table:
    """Score every training pair with a model: what SP ranks by and DP starts from.

    Args:
        data: anything :func:`opera.load_data` reads, or loaded data.
        model: a sentence-transformers folder or hub id, an OPERA run, or ``minilm``.
        out: file to write as well: ``.parquet``, ``.tsv`` or ``.jsonl``.
        cbs_pool: how many random documents to rank each pair among for its CBS (the paper: 10,000); 0 leaves CBS out.
        relevant_grade: lowest grade in the qrels that counts as relevant.
        seed: seed of the random documents.
        overwrite: replace ``out`` if it exists.
        query_prompt: text before each query, empty for none; the default is the model's own.
        document_prompt: text before each document, likewise.

    Returns:
        A row per pair: ``query_id``, ``doc_id``, ``grade``, ``similarity``, the estimated ``loss``, and ``cbs`` where
        requested. A pool smaller than ``cbs_pool`` is logged.

    Raises:
        InputError: for invalid input.
    """
    model, path = expand_user(model, "model"), _checked_output(out, SCORE_FORMATS, overwrite, data, model)
    prompts = given_prompts(query_prompt, document_prompt)
    cbs_pool, seed = whole_number(cbs_pool, "cbs_pool", 0), whole_number(seed, "seed", 0, MOST_SEED)
    loaded, qrels = _training_qrels(data, relevant_grade)
    encoder, pairs = pair_encoder(open_encoder(model, **prompts), model, prompts), qrels.pairs()
    situation = Situation(pairs.n_queries, model_kind(encoder.model), encoder.device)
    defaults = resolve(TrainSettings(), situation)
    corpus_text = run_corpus_text(model)
    query_embeddings = encoder.encode_queries(loaded, qrels.query_rows)
    document_embeddings = encoder.encode_corpus(loaded, corpus_text)
    pool = DocumentPool.of(loaded, corpus_text)
    scores = pretrained_scores(
        pairs,
        query_embeddings,
        document_embeddings,
        temperature=resolved(defaults.optimisation.temperature),
        set_size=defaults.batching.documents_per_pass(processes=1),
        seed=seed,
        known=KnownPositives(pairs, len(loaded.corpus)),
        pool=pool,
    )
    columns = {
        "query_id": loaded.queries.ids(qrels.query_rows[pairs.pair_query]),
        "doc_id": loaded.corpus.ids(pairs.pair_doc),
        "grade": qrels.grades,
        "similarity": scores.similarity,
        "loss": scores.loss,
    }
    if cbs_pool:
        ranks = rank_among_random(pairs, query_embeddings, document_embeddings, cbs_pool, seed, pool)
        columns["cbs"] = ranks.cbs
        if note := ranks.small_pool_note(cbs_pool):
            log.info("note: %s", note)
    table = pa.table(columns)
    if path is not None and process_index() == 0:
        _write_scores(path, table)
    return table


def mine(
    data: str | Path | RetrievalData,
    *,
    model: str | Path,
    out: str | Path | None = None,
    range: tuple[int, int] = (10, 100),
    keep: int = 15,
    relevant_grade: int = 1,
    seed: int = 0,
    overwrite: bool = False,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
) -> pa.Table:
    """Mine hard negatives for the training queries.

    Args:
        data: anything :func:`opera.load_data` reads, or loaded data.
        model: a sentence-transformers folder or hub id, an OPERA run, or ``minilm``.
        out: file to write as well: ``.jsonl`` (FlagEmbedding: query, pos, neg) or ``.tsv`` (query and document ids).
        range: ranks LO and HI of the model's ranking to take negatives from, 1-based, both included.
        keep: maximum negatives per query.
        relevant_grade: lowest grade in the qrels that counts as relevant.
        seed: seed of the random choice among them.
        overwrite: replace ``out`` if it exists.
        query_prompt: text before each query, empty for none; the default is the model's own.
        document_prompt: text before each document, likewise.

    Returns:
        A row per negative: ``query_id``, ``doc_id``.

    Raises:
        InputError: for invalid input.
    """
    model, path = expand_user(model, "model"), _checked_output(out, NEGATIVES_FORMATS, overwrite, data, model)
    prompts = given_prompts(query_prompt, document_prompt)
    keep, seed = whole_number(keep, "keep", 1), whole_number(seed, "seed", 0, MOST_SEED)
    ranks = TrainSettings.parse({"negatives": "hard", "range": range}).negative_sampling.mining_range
    loaded, qrels = _training_qrels(data, relevant_grade)
    check_range(ranks, len(loaded.corpus))
    encoder = open_encoder(model, **prompts)
    corpus_text = run_corpus_text(model)
    ranking = search_corpus(encoder, loaded, qrels.query_rows, ranks[1], corpus_text)
    known, pool = KnownPositives(qrels.pairs(), len(loaded.corpus)), DocumentPool.of(loaded, corpus_text)
    mined = mine_hard_negatives(ranking, known, ranks, keep, seed, pool)
    if mined.queries_without:
        log.info("note: %d of %d queries have no negative at these ranks", mined.queries_without, len(qrels.query_rows))
    table = pa.table(
        {
            "query_id": loaded.queries.ids(np.repeat(qrels.query_rows, np.diff(mined.offsets))),
            "doc_id": loaded.corpus.ids(mined.doc_rows),
        }
    )
    if path is None or process_index() > 0:
        return table
    if path.suffix == ".tsv":
        _write_tsv(path, ["query-id", "corpus-id"], zip(*table.to_pydict().values(), strict=True))
    else:
        _write_jsonl(path, _flagembedding_records(loaded, qrels, mined))
    return table


def _checked_output(
    out: str | Path | None, formats: Sequence[str], overwrite: bool, data: str | Path | RetrievalData, model: str
) -> Path | None:
    """Return the file to write, checked before any work; ``None`` where none is asked for."""
    if out is None:
        return None
    path, overwrite = user_path(out, "out"), flag(overwrite, "overwrite")
    check_output(path, "out", formats, overwrite=overwrite, reads=inputs_of(data, model))
    return path


def _training_qrels(data: str | Path | RetrievalData, relevant_grade: int) -> tuple[RetrievalData, Qrels]:
    loaded = load_data(data)
    loaded = loaded.with_relevant_grade(relevant_grade)
    return loaded, loaded.training_split()


def _flagembedding_records(
    data: RetrievalData, qrels: Qrels, mined: ListedNegatives
) -> Iterable[dict[str, str | list[str]]]:
    for at, query in enumerate(data.queries.texts(qrels.query_rows)):
        positives = qrels.doc_rows[qrels.offsets[at] : qrels.offsets[at + 1]]
        negatives = mined.doc_rows[mined.offsets[at] : mined.offsets[at + 1]]
        yield {"query": query, "pos": data.corpus.texts(positives), "neg": data.corpus.texts(negatives)}


def _write_scores(path: Path, table: pa.Table) -> None:
    if path.suffix == ".parquet":
        write_parquet(path, table)
    elif path.suffix == ".tsv":
        _write_tsv(path, table.column_names, (row.values() for row in table.to_pylist()))
    else:
        _write_jsonl(path, table.to_pylist())


def _write_tsv(path: Path, header: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file, delimiter="\t", lineterminator="\n")
            lines.writerow(header)
            lines.writerows(rows)

    replace_file(path, write)


def _write_jsonl(path: Path, records: Iterable[dict[str, str | list[str]]]) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            for record in records:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")

    replace_file(path, write)
