"""Documents as passages: how they are split, searched and trained."""

import json
import logging
import re
from contextlib import contextmanager
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

import opera
from opera.core.errors import ModelError, SettingError
from opera.data import TextTable
from opera.labels.estimate import calibrated
from opera.retrieval import nearest, vectors
from opera.retrieval.encoder import Encoder, open_encoder
from opera.retrieval.models import load_model
from opera.retrieval.nearest import NearestDocuments, exact_search
from opera.retrieval.passages import DocumentVectors, uncut_tokenizer
from opera.run.model_card import _passages
from opera.run.serve import Searches
from opera.run.show import run_texts
from opera.run_folder.folder import Run
from small_runs import SMALL, search_as_on_a_gpu, unit_vectors
from tiny_world import data_from_dicts

SENTENCES = {
    "english": "The first sentence is here. A second one follows it! Is there a third? Yes, there is.",
    "german": "Der erste Satz steht hier. Ein zweiter folgt ihm. Gibt es einen dritten? Ja, es gibt ihn.",
    "chinese": "第一句话在这里。第二句话跟着它。有第三句吗？有的。",
    "arabic": "الجملة الأولى هنا. الجملة الثانية تتبعها. هل هناك ثالثة؟ نعم.",
}


def table(count: int) -> TextTable:
    return TextTable(pa.table({"id": [f"{n:03d}" for n in range(count)], "title": [""] * count, "text": ["x"] * count}))


@st.composite
def corpora(draw: st.DrawFn) -> tuple[np.ndarray, DocumentVectors]:
    """Queries, and documents of one to six passages; some passages are copies."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    counts = rng.integers(1, draw(st.integers(2, 7)), draw(st.integers(1, 60)))
    rows = unit_vectors(rng, int(counts.sum()), 8)
    rows = rows[rng.integers(0, draw(st.integers(1, len(rows))), len(rows))]
    return unit_vectors(rng, draw(st.integers(1, 12)), 8), DocumentVectors(rows, np.cumsum([0, *counts]))


def best_scores(queries: np.ndarray, documents: DocumentVectors) -> np.ndarray:
    """The score of each document's best passage, in float64."""
    scores = queries.astype(np.float64) @ documents.rows.T.astype(np.float64)
    ranges = pairwise(documents.starts)
    return np.stack([scores[:, first:end].max(axis=1) for first, end in ranges], axis=1)


@pytest.mark.parametrize("on_gpu", [False, True], ids=["cpu", "the lines for GPUs"])
@given(corpus=corpora(), depth=st.integers(1, 70), tile=st.integers(1, 900), block=st.integers(1, 50))
@settings(deadline=None, max_examples=60)
def test_a_document_is_ranked_once_by_its_best_passage(corpus, depth, tile, block, on_gpu):
    queries, documents = corpus
    expected = best_scores(queries, documents).astype(np.float32)
    ids = table(len(documents))
    doc_rows = np.repeat(np.arange(len(documents)), np.diff(documents.starts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "TILE_BYTES", tile)
        patch.setattr(nearest, "GPU_DOCUMENTS" if on_gpu else "DOCUMENTS", block)
        if on_gpu:
            search_as_on_a_gpu(patch)
        ranking = exact_search(NearestDocuments(queries, ids, depth, doc_rows=doc_rows), documents.rows)
    for of_query, rows, scores in zip(expected, ranking.doc_rows, ranking.scores, strict=True):
        best = np.lexsort((np.arange(len(documents)), of_query))[::-1][:depth]
        assert rows.tolist() == best.tolist()
        assert np.array_equal(scores, of_query[best])


@given(corpus=corpora(), share=st.floats(0, 1))
@settings(deadline=None, max_examples=40)
def test_processes_may_share_the_passages_of_a_document(corpus, share):
    """Two searches of parts of the passages, merged, are one search of all."""
    queries, documents = corpus
    ids, border = table(len(documents)), int(share * len(documents.rows))
    doc_rows = np.repeat(np.arange(len(documents)), np.diff(documents.starts))
    whole, first, second = (NearestDocuments(queries, ids, 9, doc_rows=doc_rows) for _ in range(3))
    whole.add(0, documents.rows)
    first.add(0, documents.rows[:border])
    second.add(border, documents.rows[border:])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest, "everywhere", lambda work: [work(), second._best[: len(queries)].copy()])
        first.merge_processes()
    assert np.array_equal(first.ranking().doc_rows, whole.ranking().doc_rows)
    assert np.array_equal(first.ranking().scores, whole.ranking().scores)


@given(corpus=corpora(), data=st.data())
@settings(deadline=None, max_examples=40)
def test_similarities_are_those_of_the_best_passage(corpus, data):
    queries, documents = corpus
    doc_rows = np.array(data.draw(st.lists(st.integers(0, len(documents) - 1), min_size=1, max_size=20)))
    expected = best_scores(queries, documents)
    chosen = documents.select(doc_rows)
    np.testing.assert_allclose(chosen.similarities(queries), expected[:, doc_rows], atol=1e-5)
    of_query = np.repeat(queries[:1], len(doc_rows), axis=0)
    rows, cosines = documents.best_rows(of_query, doc_rows)
    np.testing.assert_allclose(cosines, expected[0, doc_rows], atol=1e-5)
    np.testing.assert_allclose(documents.rows[rows] @ queries[0], cosines, atol=1e-5)
    assert (documents.starts[doc_rows] <= rows).all()
    assert (rows < documents.starts[doc_rows + 1]).all()


@pytest.mark.parametrize("language", SENTENCES)
def test_a_passage_ends_with_a_sentence(language, bert_model):
    text = SENTENCES[language]
    passages = split({"d": text}, bert_model, longest_sentence(text, bert_model))
    assert len(passages) > 1
    assert all(passage[-1] in ".!?。？؟" for passage in passages)
    assert "".join(passages).replace(" ", "") == text.replace(" ", "")


def longest_sentence(text: str, model) -> int:
    tokenizer = uncut_tokenizer(load_model(model, "cpu"))
    sentences = re.split(r"(?<=[.!?。？؟])", text)
    return max(len(tokenizer.encode(sentence, add_special_tokens=False).ids) for sentence in sentences)


def split(corpus: dict[str, str], model, most_tokens: int) -> list[str]:
    data = data_from_dicts(f"split{most_tokens}", corpus=corpus, queries={"q": "x"}, qrels={"train": {}})
    passages = Encoder(load_model(model, "cpu"), passage_tokens=most_tokens).passages(data)
    assert passages is not None
    assert len(passages.starts) == len(corpus) + 1
    assert (np.diff(passages.starts) >= 1).all()
    return passages.table.texts(None, "text")


@pytest.mark.parametrize("model", ["bert_model", "static_model"])
def test_nothing_is_lost_and_no_passage_is_longer_than_the_limit(model, request):
    folder = request.getfixturevalue(model)
    tokenizer = uncut_tokenizer(load_model(folder, "cpu"))
    texts = ["short", "", "x" * 3000, "word " * 900, "line\n\nline " * 50, "  kept as it is  "]
    corpus = {f"d{number}": text for number, text in enumerate(texts)}
    passages = split(corpus, folder, 20)
    assert "".join("".join(passages).split()) == "".join("".join(texts).split())
    assert max(len(tokenizer.encode(text, add_special_tokens=False).ids) for text in passages) <= 20
    assert passages[:2] == ["short", ""]
    assert passages[-1] == texts[-1], "a document that fits stays as it is"


@pytest.fixture(scope="module")
def long_beir(beir, tmp_path_factory):
    """The small data, whose documents have other topics before and after their own."""
    folder = tmp_path_factory.mktemp("long") / "data"
    data = opera.load_data(beir)
    texts = data.corpus.texts()
    around = {
        identifier: f"{texts[row - 40]}. {texts[row]}. {texts[row - 80]}."
        for row, identifier in enumerate(data.corpus.ids())
    }
    data.write_beir(folder)
    lines = (json.dumps({"_id": identifier, "title": "", "text": text}) for identifier, text in around.items())
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    return folder


def test_a_run_reads_passages_everywhere(long_beir, static_model, tmp_path, caplog):
    caplog.set_level(logging.INFO, "opera")
    run = opera.adapt(long_beir, model=static_model, out=tmp_path / "run", passages=12, **SMALL)
    assert run.record.settings["passages"] == 12
    ids = opera.load_data(long_beir).corpus.ids()
    count = sum(len(passages_of(run, name)) for name in ids)
    assert f"note: split {len(ids)} documents into {count} passages" in caplog.messages
    whole = opera.adapt(long_beir, model=static_model, out=tmp_path / "whole", **SMALL)
    assert run.measures["base"]["nDCG@10"] > whole.measures["base"]["nDCG@10"]
    again = opera.evaluate(run.path, measures="nDCG@10")
    assert again.measures["nDCG@10"] == pytest.approx(run.measures["final"]["nDCG@10"], abs=1e-6)
    query = opera.load_data(long_beir).queries.texts(np.array([0]), "text")[0]
    best, *others = opera.search(run.path, query, top=4)
    assert best.passage is not None
    assert best.passage in best.text != best.passage
    assert len({document.id for document in (best, *others)}) == 4
    served = Searches(run, run_texts(run)).find(query, 0)["final"]
    assert (served[0]["doc_id"], served[0]["document"]) == (best.id, best.passage)
    assert card_passages(run, best.text) == [text for text in passages_of(run, best.id) if text]
    trained_again = opera.adapt(long_beir, model=run.path, out=tmp_path / "again", **SMALL)
    assert trained_again.record.settings["passages"] == 12
    assert trained_again.measures["base"]["nDCG@10"] == pytest.approx(again.measures["nDCG@10"], abs=1e-6)
    whole_again = opera.adapt(long_beir, model=run.path, out=tmp_path / "whole again", passages=0, **SMALL)
    assert whole_again.record.settings["passages"] is None
    assert opera.search(whole_again.path, query)[0].passage is None
    moved = opera.evaluate(long_beir, model=run.model_path, measures="nDCG@10")
    assert moved.measures == again.measures, "the model's folder says how it reads documents"


def test_progress_counts_passages(long_beir, static_model, monkeypatch):
    lines = []

    @contextmanager
    def progress(title, total, unit, **_):
        lines.append((title, total, unit))
        yield SimpleNamespace(update=lambda count: None)

    monkeypatch.setattr("opera.retrieval.encoder.progress", progress)
    model, data = load_model(static_model, "cpu"), opera.load_data(long_beir)
    encoder = Encoder(model, passage_tokens=12, use_cache=False)
    encoder.encode_corpus(data)
    assert lines == [("encoding passages", len(encoder.passages(data).table), "passages")]


def card_passages(run: Run, text: str) -> list[str]:
    """Run the lines of the model card that split a text."""
    card = (run.model_path / "README.md").read_text()
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", card, re.DOTALL) if "splitter" in block)
    names = {"title": "", "text": text}
    exec(code.replace('"tokenizer.json"', repr(str(run.model_path / "tokenizer.json"))), names)
    return names["passages"]


@pytest.mark.parametrize("corpus_text", ["title_text", "text"])
def test_the_card_splits_as_the_run_did(corpus_text):
    settings = {"passages": 7, "corpus_text": corpus_text}
    (code,) = re.findall(r"```python\n.*chunks\(text\)\n(.*?)```", _passages(settings), re.DOTALL)
    for text, chunks in (("", []), (" one ", ["one"]), ("one. two.", ["one.", "two."])):
        names = {"text": text, "title": "Title", "parts": chunks}
        exec(code, names)
        corpus = pa.table({"id": ["d"], "title": ["Title"], "text": [text]})
        expected = TextTable(corpus).texts(None, corpus_text) if len(chunks) < 2 else None
        assert names["passages"] == expected or (expected is None and len(names["passages"]) == 2)
        assert names["passages"][0].startswith("Title") == (corpus_text == "title_text")


def passages_of(run: Run, doc_id: str) -> list[str]:
    encoder, data = open_encoder(run.path), opera.load_data(run.record.data.source)
    passages, (doc_row,) = encoder.passages(data), data.corpus.find_rows([doc_id])
    return passages.table.texts(passages.rows_of(np.array([doc_row])))


@pytest.mark.parametrize("model", ["static_model", "bert_model"])
def test_a_batch_reads_the_best_passages_of_its_documents(model, request, long_beir):
    from opera.training.build import build_training_set, make_dataset
    from small_runs import prepare

    prepared = prepare(long_beir, request.getfixturevalue(model), passages=12, method="ft", **SMALL)
    training_set = build_training_set(prepared)
    dataset, _ = make_dataset(prepared.model.trained, training_set, prepared.settings)
    encoder, pairs = prepared.model.encoder, training_set.pairs
    passages = encoder.passages(training_set.data)
    queries = encoder.encode_queries(training_set.data, training_set.train.query_rows)[:]
    cosines = queries[pairs.pair_query[:20]] @ encoder.encode_corpus(training_set.data).rows[:].T
    of_document = passages.doc_rows == pairs.pair_doc[:20, None]
    expected = np.where(of_document, cosines, -2).argmax(axis=1)
    chosen = dataset.passages.rows(pairs.pair_query[:20], pairs.pair_doc[:20, None])
    assert chosen[:, 0].tolist() == expected.tolist()
    assert len(np.unique(chosen - passages.starts[pairs.pair_doc[:20, None]])) > 1, "not only first passages"


def test_a_random_document_is_a_wrong_label_however_many_passages_it_has(beir, static_model, tmp_path):
    rng, words = np.random.default_rng(0), opera.load_data(beir).corpus.texts()
    lengths = rng.integers(1, 9, 100)  # a longer document has more labels
    documents = [". ".join(rng.choice(words, length)) for length in lengths]
    labels = rng.choice(documents, 600, p=lengths / lengths.sum())
    queries = [" ".join(rng.choice(rng.choice(words).split(), 3)) + f" {number}" for number in range(600)]
    data = opera.load_data(pairs=pd.DataFrame({"query": queries, "document": labels}))
    settings = {**SMALL, "max_steps": 60, "guard": False}
    run = opera.adapt(data, model=static_model, out=tmp_path / "run", passages=12, method="ft", **settings)
    assert run.record.noisy_labels.noise_rate > 0.9


def test_p_values_are_calibrated_by_those_of_random_documents():
    rng = np.random.default_rng(0)
    p, null = rng.random((2, 400)) ** 3  # too small, both
    uniform = calibrated(p, null[:, None], np.ones((400, 1)), np.zeros(400, dtype=int))
    assert kstest(uniform, "uniform").pvalue > 0.01
    sets = np.array([0, 0, 1, 1, 2])
    null = np.array([[0.1, 0.3], [0.2, np.nan], [0.5, 0.5], [0.5, np.nan], [np.nan, np.nan]])
    p = calibrated(np.array([0.2, np.nan, 0.5, 0.1, 0.5]), null, np.ones((5, 2)), sets)
    np.testing.assert_allclose(p, [(1.5 + 0.5) / 4, np.nan, (1.5 + 0.5) / 4, 0.5 / 4, np.nan])
    # a document without a label does not count, one with three labels counts three times as often
    labels = np.array([[0], [3], [1]])
    p = calibrated(np.array([0.1, 0.3, 0.5]), np.array([[0.1], [0.2], [0.4]]), labels, np.zeros(3, dtype=int))
    np.testing.assert_allclose(p, [0.5 / 3, (1.5 + 0.5) / 3, (2 + 0.5) / 3])


def test_several_data_sets_and_a_second_training_read_passages(long_beir, second, static_model, tmp_path):
    run = opera.adapt(
        long_beir, also=[second], model=static_model, out=tmp_path / "run", passages=12, **{**SMALL, "refit": True}
    )
    assert opera.evaluate(run.path, measures="nDCG@10").measures["nDCG@10"] == pytest.approx(
        run.measures["final"]["nDCG@10"], abs=1e-6
    )


def test_what_cannot_read_passages_says_so(long_beir, bert_model, tmp_path):
    with pytest.raises(SettingError, match="an adapter reads one vector per document"):
        opera.adapt(long_beir, model=bert_model, out=tmp_path / "run", passages=12, adapter="query")
    with pytest.raises(SettingError, match="the model reads 16 tokens"):
        open_encoder(bert_model, passages=15, max_passage_length=16)
    encoder, data = open_encoder(bert_model, passages=10), opera.load_data(long_beir)
    encoder.model[0].tokenizer.__dict__["_tokenizer"] = None
    with pytest.raises(ModelError, match="no fast tokenizer"):
        encoder.passages(data)
