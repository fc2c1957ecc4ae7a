"""``opera.score`` and ``opera.mine``: pair scores and mined negatives, as tables and files.

The module imports torch only after the arguments and the data are checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, Unpack

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.config.arguments import (
    ModelArguments,
    checked_output,
    reading_of,
    with_group,
    write_table,
)
from opera.config.automatic import Situation, resolve
from opera.config.negatives import MiningSettings
from opera.config.training import EncodingSettings, TrainSettings
from opera.core.arguments import MOST_SEED, expand_user, whole_number
from opera.core.arrays import IntArray
from opera.core.errors import SettingError, raise_first
from opera.core.processes import process_index
from opera.core.settings import resolved
from opera.core.terminal import log
from opera.data import Qrels, RetrievalData, load_data
from opera.data.loading import log_notes, named_source
from opera.data.qrels import DocumentLists
from opera.data.texts import CorpusText
from opera.retrieval.locate import (
    Model,
    checked_model,
    inputs_of,
    run_corpus_text,
    with_grade,
)
from opera.retrieval.prompts import LENGTH_SETTINGS, with_data_prompt
from opera.training.documents import DocumentPool, KnownPositives
from opera.training.negatives import Miner, check_range, given_negatives

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@with_group(ModelArguments)
def score(
    data: Any,
    *,
    model: Model | None = None,
    reranker: str | Path | None = None,
    negatives: int | str | None = None,
    range: str | tuple[int, int] | None = None,
    out: str | Path | None = None,
    cbs_pool: int = 0,
    relevant_grade: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
    max_length: int | None = None,
    **arguments: Unpack[ModelArguments],
) -> pa.Table:
    """Score every training pair with a model or a teacher.

    A model's scores are the scores that SP ranks by and DP starts from, if a run reads texts of the
    same lengths. A teacher is a reranker, or a model that also scores negatives. ``loss=distill``
    trains on a teacher's scores.

    Args:
        data: anything :func:`opera.load_data` reads, or loaded data.
        model: a sentence-transformers folder or hub id, a loaded SentenceTransformer, an OPERA run,
            or ``minilm``. With a reranker, the model only mines negatives.
        reranker: folder or hub id of a cross-encoder that scores the pairs instead of the model.
        negatives: the negatives that a teacher scores. ``"given"`` are those that came with the
            data (the default if there are any). A number N mines N negatives per query with the
            model.
        range: ranks LO:HI of the model's ranking to mine from, 1-based and inclusive; the default
            is 10:100.
        out: output file, optional: ``.parquet``, ``.tsv`` or ``.jsonl``. A teacher's ``.jsonl`` is
            a FlagEmbedding training file with ``pos_scores`` and ``neg_scores``.
        cbs_pool: number of random documents in the ranking for CBS (10,000 in the paper); 0
            disables CBS.
        relevant_grade: lowest grade that counts as relevant; the default is the run's if ``model``
            is a run on these data, else 1.
        seed: seed of the random documents.
        overwrite: replace ``out`` if it exists.
        max_length: tokens of query and document together that the reranker reads; the default is
            the reranker's limit.
        arguments: how to read tables, and how the model reads texts (``ModelArguments``).

    Returns:
        A row per pair: ``query_id``, ``doc_id``, ``grade``, ``similarity``, the estimated ``loss``,
        and ``cbs`` if requested. A log line reports a pool smaller than ``cbs_pool``. For a
        teacher: ``query_id``, ``doc_id``, ``score``.

    Raises:
        InputError: for invalid input.

    Examples:
        >>> table = opera.score("example:faq", model="minilm", out="scores.parquet")
        >>> table.column_names[:4]
        ['query_id', 'doc_id', 'grade', 'similarity']
    """
    settings = EncodingSettings.chosen(**arguments)
    inputs = ScoreInputs.checked(model, reranker, negatives, range, cbs_pool, max_length, settings)
    seed, models = whole_number(seed, "seed", 0, MOST_SEED), (inputs.model, inputs.reranker)
    formats = ".parquet", ".tsv", ".jsonl"
    path, loaded = _opened(data, arguments, models, out, formats, overwrite, relevant_grade)
    qrels = loaded.training_split()
    if inputs.reranker is None and inputs.negatives is None:
        table, records = _score_pairs(inputs, loaded, qrels, settings, seed), None
    else:
        pairs, scores = _score_by_teacher(inputs, loaded, qrels, settings, seed)
        query_rows = pairs.query_rows[pairs.query_index]
        table = _table_of(loaded, query_rows, pairs.doc_rows, score=scores)
        records = _scored_records(loaded, pairs, scores)
    if path is not None and process_index() == 0:
        write_table(path, table, records)
    return table


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
    inputs: ScoreInputs, loaded: RetrievalData, qrels: Qrels, settings: dict[str, Any], seed: int
) -> pa.Table:
    """Score the training pairs as a run does: similarity, estimated loss, CBS."""
    from opera.retrieval.encoder import open_encoder
    from opera.retrieval.models import model_kind
    from opera.training.pretrained_scores import pretrained_scores

    model, pairs = inputs.model, qrels.pairs()
    assert model is not None
    encoder = open_encoder(model, **with_data_prompt(settings, loaded, model), as_in_training=True)
    corpus_text = run_corpus_text(model)
    kind = encoder.kind.name
    situation = Situation(pairs.n_queries, model_kind(encoder.model), encoder.device, kind=kind)
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


@with_group(ModelArguments)
def mine(
    data: Any,
    *,
    model: Model,
    out: str | Path | None = None,
    range: str | tuple[int, int] | None = None,
    keep: int = 15,
    relative_margin: float | None = None,
    absolute_margin: float | None = None,
    max_score: float | None = None,
    reranker: str | Path | None = None,
    relevant_grade: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
    **arguments: Unpack[ModelArguments],
) -> pa.Table:
    """Mine hard negatives for the training queries.

    Args:
        data: anything :func:`opera.load_data` reads, or loaded data.
        model: a sentence-transformers folder or hub id, a loaded SentenceTransformer, an OPERA run,
            or ``minilm``.
        out: output file, optional: ``.jsonl`` (FlagEmbedding: query, pos, neg) or ``.tsv`` (query
            and document ids).
        range: ranks LO:HI of the model's ranking to mine from, 1-based and inclusive; the default
            is 10:100.
        keep: maximum number of negatives per query.
        relative_margin: leave out documents with a similarity above ``p - relative_margin * |p|``,
            where p is the similarity of the query's least similar positive. They may be relevant
            without a label.
        absolute_margin: leave out documents with a similarity above ``p - absolute_margin``.
        max_score: leave out documents with a higher similarity.
        reranker: cross-encoder. Leave out documents that it scores as high as the query's worst
            positive.
        relevant_grade: lowest grade that counts as relevant; the default is the run's if ``model``
            is a run on these data, else 1.
        seed: seed of the random choice among the candidates.
        overwrite: replace ``out`` if it exists.
        arguments: how to read tables, and how the model reads texts (``ModelArguments``).

    Returns:
        A row per negative: ``query_id``, ``doc_id``.

    Raises:
        InputError: for invalid input.

    Examples:
        >>> table = opera.mine("example:faq", model="minilm", range="5:20", keep=2)
        >>> table.num_rows
        600
    """
    model = checked_model(model)
    settings = EncodingSettings.chosen(**arguments)
    mining = MiningSettings.parse(
        {
            "range": range,
            "keep": keep,
            "relative_margin": relative_margin,
            "absolute_margin": absolute_margin,
            "max_score": max_score,
            "reranker": reranker,
        }
    )
    seed, models = whole_number(seed, "seed", 0, MOST_SEED), (model, mining.reranker)
    formats = ".jsonl", ".tsv"
    path, loaded = _opened(data, arguments, models, out, formats, overwrite, relevant_grade)
    qrels = loaded.training_split()
    check_range(mining, len(loaded.corpus))
    from opera.retrieval.encoder import open_encoder

    encoder = open_encoder(model, **with_data_prompt(settings, loaded, model), as_in_training=True)
    miner, pairs = Miner.of(encoder, loaded, run_corpus_text(model), mining), qrels.pairs()
    known = KnownPositives.of(loaded, qrels.query_rows, pairs)
    mined = miner.mine(qrels.query_rows, pairs, known, seed)
    if mined.queries_without:
        log.info(
            "note: %d of %d queries have no negative at these ranks",
            *(mined.queries_without, qrels.n_queries),
        )
    table = _table_of(loaded, qrels.query_rows[mined.queries], mined.doc_rows)
    records = _mined_records(loaded, qrels, mined)
    if path is not None and process_index() == 0:
        write_table(path, table.rename_columns(["query-id", "corpus-id"]), records)
    return table


def _opened(
    data: Any,
    reading: Mapping[str, Any],
    models: Sequence[Model | None],
    out: str | Path | None,
    formats: Sequence[str],
    overwrite: bool,
    relevant_grade: int | None,
) -> tuple[Path | None, RetrievalData]:
    """Check the output file, and load the data; the first model may have a relevant grade."""
    source = named_source(data, **reading_of(reading))
    path = checked_output(out, formats, overwrite, source, inputs_of(source, *models))
    return path, with_grade(log_notes(load_data(source)), models[0], relevant_grade)


def _mined_records(
    data: RetrievalData, qrels: Qrels, mined: DocumentLists
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a FlagEmbedding training file."""
    positives = DocumentLists(qrels.offsets, qrels.doc_rows)
    for query_index, query in enumerate(data.queries.by_turns(qrels.query_rows)):
        pos, neg = (data.corpus.texts(lists.of_query(query_index)) for lists in (positives, mined))
        yield {"query": query, "pos": pos, "neg": neg}


def _scored_records(
    data: RetrievalData, pairs: Qrels, scores: NDArray[np.float32]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a FlagEmbedding training file with ``pos_scores`` and ``neg_scores``."""
    for query_index, query in enumerate(data.queries.by_turns(pairs.query_rows)):
        judgements = np.arange(*pairs.offsets[query_index : query_index + 2])
        relevant = pairs.grades[judgements] > 0
        kinds = {"pos": judgements[relevant], "neg": judgements[~relevant]}
        texts = {
            kind: data.corpus.texts(pairs.doc_rows[of_kind]) for kind, of_kind in kinds.items()
        }
        scored = {f"{kind}_scores": scores[of_kind].tolist() for kind, of_kind in kinds.items()}
        yield {"query": query, **texts, **scored}


def _score_by_teacher(
    inputs: ScoreInputs, data: RetrievalData, qrels: Qrels, settings: Mapping[str, Any], seed: int
) -> tuple[Qrels, NDArray[np.float32]]:
    """Score training pairs and negatives by a reranker, or by a model's cosine.

    Args:
        inputs: the teacher, and the negatives.
        data: the texts.
        qrels: the training pairs.
        settings: the settings of encoding; a reranker takes the prompts.
        seed: seed of the choice among mined negatives.

    Returns:
        The training pairs and the negatives with grade 0, and their scores: float32 ``[M]``.
    """
    if isinstance(inputs.negatives, int):
        check_range(inputs.mining, len(data.corpus))
    from opera.retrieval.encoder import open_encoder, pair_similarities
    from opera.retrieval.reranker import open_reranker, reranker_settings

    reranker = encoder = None
    if inputs.reranker is not None:
        of_reranker, settings = reranker_settings(settings)
        reranker = open_reranker(inputs.reranker, **of_reranker, max_length=inputs.max_length)
    text: CorpusText = "title_text"
    if inputs.model is not None:
        settings = with_data_prompt(settings, data, inputs.model)
        encoder = open_encoder(inputs.model, **settings, as_in_training=True)
        text = run_corpus_text(inputs.model)
    known = KnownPositives.of(data, qrels.query_rows, qrels.pairs())
    if isinstance(inputs.negatives, int) and encoder is not None:
        miner = Miner(encoder, data, text, inputs.mining)
        negatives = miner.mine(qrels.query_rows, qrels.pairs(), known, seed)
    elif inputs.negatives == "given" or data.given_negatives is not None:
        negatives = given_negatives(data, qrels.query_rows, known, DocumentPool.of(data, text))
    else:
        log.info("note: the data have no negatives; mine some with negatives=N")
        negatives = DocumentLists.of([])
    rows = [qrels.query_rows[negatives.queries], negatives.doc_rows]
    query_rows, doc_rows = np.unique(rows, axis=1)
    grades = np.zeros(len(doc_rows), dtype=np.int32)
    pairs = qrels.union(Qrels.from_arrays(query_rows, doc_rows, grades))
    if encoder is None or reranker is not None:
        assert reranker is not None
        pairs_to_score = pairs.query_rows[pairs.query_index], pairs.doc_rows
        return pairs, reranker.score_pairs(data, *pairs_to_score, text)
    query_vectors = encoder.encode_queries(data, pairs.query_rows)
    return pairs, pair_similarities(pairs.pairs(), query_vectors, encoder.encode_corpus(data, text))


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
        raise_first(
            SettingError,
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
                model is None and "passages" in settings,
                "passages: needs a model, because a reranker reads whole documents",
            ),
            (
                max_length is not None and reranker is None,
                f"max_length={max_length}: needs a reranker",
            ),
        )
        return cls(
            None if model is None else checked_model(model),
            None if reranker is None else expand_user(reranker, "reranker"),
            negatives,
            MiningSettings.parse(mining),
            cbs_pool,
            max_length,
        )
