"""``opera.score`` and ``opera.mine``: pair scores and mined negatives, as tables and files."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.config.automatic import Situation, resolve
from opera.config.training import TrainSettings
from opera.core.arguments import MOST_SEED, whole_number
from opera.core.arrays import IntArray
from opera.core.paths import expand_user
from opera.core.processes import process_index
from opera.core.settings import resolved
from opera.data import Qrels, RetrievalData, load_data
from opera.data.combined import one_set
from opera.data.texts import CorpusText
from opera.retrieval.encoder import Encoder, open_encoder, pair_similarities
from opera.retrieval.locate import inputs_of, run_corpus_text
from opera.retrieval.models import LENGTH_ATTRIBUTES, model_kind, set_lengths
from opera.retrieval.prompts import checked_prompts, with_data_prompt
from opera.retrieval.reranker import open_reranker
from opera.training_pairs.documents import DocumentLists, DocumentPool, KnownPositives
from opera.training_pairs.export_inputs import (
    NEGATIVES_FORMATS,
    SCORE_FORMATS,
    ScoreInputs,
    checked_output,
    mining_settings,
    write_jsonl,
    write_table,
)
from opera.training_pairs.mining import Miner, check_range
from opera.training_pairs.negatives import given_negatives
from opera.training_pairs.pretrained_scores import pretrained_scores

log = logging.getLogger("opera")


def score(
    data: str | Path | RetrievalData,
    *,
    model: str | Path | None = None,
    reranker: str | Path | None = None,
    negatives: int | str | None = None,
    range: tuple[int, int] = (10, 100),
    out: str | Path | None = None,
    cbs_pool: int = 0,
    relevant_grade: int = 1,
    seed: int = 0,
    overwrite: bool = False,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    max_length: int | None = None,
) -> pa.Table:
    """Score every training pair with a model or a teacher.

    A model's scores are the scores that SP ranks by and DP starts from. A teacher is a reranker, or
    a model that also scores negatives. ``loss=distill`` trains on a teacher's scores.

    Args:
        data: anything :func:`opera.load_data` reads, or loaded data.
        model: a sentence-transformers folder or hub id, an OPERA run, or ``minilm``. With a
            reranker, the model only mines negatives.
        reranker: folder or hub id of a cross-encoder that scores the pairs instead of the model.
        negatives: the negatives that a teacher scores. ``"given"`` are those that came with the
            data (the default if there are any). A number N mines N negatives per query with the
            model.
        range: ranks LO and HI of the model's ranking to mine from, 1-based and inclusive.
        out: output file, optional: ``.parquet``, ``.tsv`` or ``.jsonl``. A teacher's ``.jsonl`` is
            a FlagEmbedding training file with ``pos_scores`` and ``neg_scores``.
        cbs_pool: number of random documents in the ranking for CBS (10,000 in the paper); 0
            disables CBS.
        relevant_grade: lowest grade in the qrels that counts as relevant.
        seed: seed of the random documents.
        overwrite: replace ``out`` if it exists.
        query_prompt: text before each query, for the reranker if there is one; empty for none. The
            default is the data's prompt, or the model's.
        document_prompt: text before each document, with the same rules.
        max_length: tokens of query and document together that the reranker reads; the default is
            the reranker's limit.

    Returns:
        A row per pair: ``query_id``, ``doc_id``, ``grade``, ``similarity``, the estimated ``loss``,
        and ``cbs`` if requested. A log line reports a pool smaller than ``cbs_pool``. For a
        teacher: ``query_id``, ``doc_id``, ``score``.

    Raises:
        InputError: for invalid input.
    """
    inputs = ScoreInputs.checked(model, reranker, negatives, range, cbs_pool, max_length)
    reads = inputs_of(data, inputs.model, inputs.reranker)
    path = checked_output(out, SCORE_FORMATS, overwrite, data, reads)
    prompts = checked_prompts(query_prompt, document_prompt)
    seed = whole_number(seed, "seed", 0, MOST_SEED)
    loaded, qrels = _training_qrels(data, relevant_grade, "score")
    if not inputs.by_teacher:
        table, records = _score_pairs(inputs, loaded, qrels, prompts, seed), None
    else:
        pairs, scores = _score_by_teacher(inputs, loaded, qrels, prompts, seed)
        rows = pairs.query_rows[pairs.query_index]
        table = _table_of(loaded, rows, pairs.doc_rows, score=scores)
        records = _scored_records(loaded, pairs, scores)
    _write(path, table, records)
    return table


def _open_as_in_a_run(model: str | Path, prompts: dict[str, Any]) -> Encoder:
    """Open a model with cosine similarity and the lengths of a run with default settings."""
    encoder = open_encoder(model, **prompts, similarity="cosine")
    defaults = {name: TrainSettings.model_fields[name].default for name in LENGTH_ATTRIBUTES}
    set_lengths(encoder.model, defaults)
    return encoder


def _write(path: Path | None, table: pa.Table, records: Iterable[Mapping[str, Any]] | None) -> None:
    """Write a table in the main process; a JSON Lines file gets ``records`` instead, if given."""
    if path is None or process_index() != 0:
        return
    if records is not None and path.suffix == ".jsonl":
        write_jsonl(path, records)
    else:
        write_table(path, table)


def _table_of(
    data: RetrievalData, query_rows: IntArray, doc_rows: IntArray, **columns: Any
) -> pa.Table:
    """A table with a row per pair: its ids, and more columns."""
    ids = {
        "query_id": data.queries.id_column(query_rows),
        "doc_id": data.corpus.id_column(doc_rows),
    }
    return pa.table({**ids, **columns})


def _score_pairs(
    inputs: ScoreInputs, loaded: RetrievalData, qrels: Qrels, prompts: dict[str, Any], seed: int
) -> pa.Table:
    """Score the training pairs as a run does: similarity, estimated loss, CBS."""
    model, pairs = str(inputs.model), qrels.pairs()
    prompts = with_data_prompt(prompts, loaded, model)
    encoder = _open_as_in_a_run(model, prompts)
    corpus_text = run_corpus_text(model)
    situation = Situation(pairs.n_queries, model_kind(encoder.model), encoder.device)
    defaults = resolve(TrainSettings(), situation)
    scores = pretrained_scores(
        pairs,
        encoder.encode_queries(loaded, qrels.query_rows),
        encoder.encode_corpus(loaded, corpus_text),
        temperature=resolved(defaults.temperature),
        set_size=defaults.documents_per_pass(processes=1),
        seed=seed,
        known=KnownPositives.of(loaded, qrels.query_rows, pairs),
        pool=DocumentPool.of(loaded, corpus_text),
        cbs_pool=inputs.cbs_pool,
    )
    columns = {"grade": qrels.grades, "similarity": scores.similarity, "loss": scores.loss}
    if scores.cbs is not None:
        columns["cbs"] = scores.cbs
    return _table_of(loaded, qrels.query_rows[pairs.pair_query], pairs.pair_doc, **columns)


def mine(
    data: str | Path | RetrievalData,
    *,
    model: str | Path,
    out: str | Path | None = None,
    range: tuple[int, int] = (10, 100),
    keep: int = 15,
    relative_margin: float | None = None,
    absolute_margin: float | None = None,
    max_score: float | None = None,
    reranker: str | Path | None = None,
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
        out: output file, optional: ``.jsonl`` (FlagEmbedding: query, pos, neg) or ``.tsv`` (query
            and document ids).
        range: ranks LO and HI of the model's ranking to mine from, 1-based and inclusive.
        keep: maximum number of negatives per query.
        relative_margin: leave out documents with a similarity above ``p - relative_margin * |p|``,
            where p is the similarity of the query's least similar positive. They may be relevant
            without a label.
        absolute_margin: leave out documents with a similarity above ``p - absolute_margin``.
        max_score: leave out documents with a higher similarity.
        reranker: cross-encoder. Leave out documents that it scores as high as the query's worst
            positive.
        relevant_grade: lowest grade in the qrels that counts as relevant.
        seed: seed of the random choice among the candidates.
        overwrite: replace ``out`` if it exists.
        query_prompt: text before each query, empty for none. The default is the data's prompt, or
            the model's.
        document_prompt: text before each document, with the same rules.

    Returns:
        A row per negative: ``query_id``, ``doc_id``.

    Raises:
        InputError: for invalid input.
    """
    model, prompts = expand_user(model, "model"), checked_prompts(query_prompt, document_prompt)
    reads = inputs_of(data, model, reranker)
    path = checked_output(out, NEGATIVES_FORMATS, overwrite, data, reads)
    keep, seed = whole_number(keep, "keep", 1), whole_number(seed, "seed", 0, MOST_SEED)
    sampling = mining_settings(range, relative_margin, absolute_margin, max_score, reranker)
    loaded, qrels = _training_qrels(data, relevant_grade, "mine")
    check_range(sampling.range, len(loaded.corpus))
    judge = None if reranker is None else open_reranker(reranker)
    prompts = with_data_prompt(prompts, loaded, model)
    encoder, pairs = _open_as_in_a_run(model, prompts), qrels.pairs()
    miner = Miner(encoder, loaded, run_corpus_text(model), sampling, judge)
    known = KnownPositives.of(loaded, qrels.query_rows, pairs)
    mined = miner.mine(qrels.query_rows, pairs, known, keep, seed)
    if mined.queries_without:
        queries = mined.queries_without, len(qrels.query_rows)
        log.info("note: %d of %d queries have no negative at these ranks", *queries)
    table = _table_of(loaded, qrels.query_rows[mined.queries], mined.doc_rows)
    records = _mined_records(loaded, qrels, mined)
    _write(path, table.rename_columns(["query-id", "corpus-id"]), records)
    return table


def _training_qrels(
    data: str | Path | RetrievalData, relevant_grade: int, use: str
) -> tuple[RetrievalData, Qrels]:
    loaded = one_set(load_data(data), use)
    loaded = loaded.with_relevant_grade(relevant_grade)
    return loaded, loaded.training_split()


def _mined_records(
    data: RetrievalData, qrels: Qrels, mined: DocumentLists
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a FlagEmbedding training file."""
    positives = DocumentLists(qrels.offsets, qrels.doc_rows)
    for number, query in enumerate(data.queries.by_turns(qrels.query_rows)):
        pos, neg = (data.corpus.texts(lists.of_query(number)) for lists in (positives, mined))
        yield {"query": query, "pos": pos, "neg": neg}


def _scored_records(
    data: RetrievalData, pairs: Qrels, scores: NDArray[np.float32]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a FlagEmbedding training file with ``pos_scores`` and ``neg_scores``."""
    for number, query in enumerate(data.queries.by_turns(pairs.query_rows)):
        part = slice(*pairs.offsets[number : number + 2])
        kinds = {"pos": pairs.grades[part] > 0, "neg": pairs.grades[part] <= 0}
        texts = {
            kind: data.corpus.texts(pairs.doc_rows[part][rows]) for kind, rows in kinds.items()
        }
        scored = {f"{kind}_scores": scores[part][rows].tolist() for kind, rows in kinds.items()}
        yield {"query": query, **texts, **scored}


def _score_by_teacher(
    inputs: ScoreInputs, data: RetrievalData, qrels: Qrels, prompts: Mapping[str, Any], seed: int
) -> tuple[Qrels, NDArray[np.float32]]:
    """Score training pairs and negatives by a reranker, or by a model's cosine.

    Args:
        inputs: the teacher, and the negatives.
        data: the texts.
        qrels: the training pairs.
        prompts: the prompts of the reranker, or of the model without a reranker.
        seed: seed of the choice among mined negatives.

    Returns:
        The training pairs and the negatives with grade 0, and their scores: float32 ``[M]``.
    """
    if isinstance(inputs.negatives, int):
        check_range(inputs.mining.range, len(data.corpus))
    reranker = encoder = None
    if inputs.reranker is not None:
        reranker = open_reranker(inputs.reranker, **prompts, max_length=inputs.max_length)
        prompts = {}
    text: CorpusText = "title_text"
    if inputs.model is not None:
        prompts = with_data_prompt(prompts, data, inputs.model)
        encoder = _open_as_in_a_run(inputs.model, prompts)
        text = run_corpus_text(inputs.model)
    known = KnownPositives.of(data, qrels.query_rows, qrels.pairs())
    if isinstance(inputs.negatives, int) and encoder is not None:
        miner = Miner(encoder, data, text, inputs.mining)
        negatives = miner.mine(qrels.query_rows, qrels.pairs(), known, inputs.negatives, seed)
    elif inputs.negatives == "given" or data.given_negatives is not None:
        negatives = given_negatives(data, qrels.query_rows, known, DocumentPool.of(data, text))
    else:
        log.info("note: the data have no negatives; mine some with negatives=N")
        negatives = DocumentLists.of([])
    both = np.stack([qrels.query_rows[negatives.queries], negatives.doc_rows])
    query, doc = np.unique(both, axis=1)
    pairs = qrels.union(Qrels.from_arrays(query, doc, np.zeros(len(doc), dtype=np.int32)))
    if encoder is None or reranker is not None:
        assert reranker is not None
        query_rows = pairs.query_rows[pairs.query_index]
        return pairs, reranker.score_pairs(data, query_rows, pairs.doc_rows, text)
    queries = encoder.encode_queries(data, pairs.query_rows)
    return pairs, pair_similarities(pairs.pairs(), queries, encoder.encode_corpus(data, text))
