"""Keyword search in a run: measures, weights, index and verdict; and in evaluate and search."""

import json
import re
import shlex
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import opera
from commands import opera_here
from grids import guard_record, write_unfinished_run
from opera.cli.options import Screen
from opera.cli.train import print_next
from opera.data import Mixture
from opera.guard.rule import STATIC_KEYWORD_ANCHOR, QueryKind, choose_keyword_weights
from opera.retrieval.evaluation import KeywordSearch
from opera.retrieval.keywords import Fusion, KeywordIndex
from opera.retrieval.locate import run_keyword_index, run_keyword_weight
from opera.run_folder.record import KeywordsRecord
from opera.run_folder.summary import RunSummary, headlines
from small_runs import FAST
from tiny_world import data_from_dicts, write_beir

MEASURE = "nDCG@10"
HYBRID = {**FAST, "max_steps": 20, "bm25": True}


def write_words(folder: Path) -> Path:
    """Each query repeats two rare words of its document, which keyword search finds and a random model does not."""
    rng, queries, qrels = np.random.default_rng(1), {}, {}
    corpus = {f"d{row}": f"t{row % 12}w{row % 8} rare{row} odd{row} common{row % 20}" for row in range(120)}
    for split, size in {"train": 60, "test": 24}.items():
        rows = rng.permutation(120)[:size].tolist()
        qrels[split] = {f"{split}{number}": {f"d{row}": 1} for number, row in enumerate(rows)}
        queries |= {f"{split}{number}": f"rare{row} common{number % 20}" for number, row in enumerate(rows)}
    data_from_dicts("words", corpus=corpus, queries=queries, qrels=qrels).write_beir(folder)
    return folder


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> Path:
    return write_words(tmp_path_factory.mktemp("words") / "words")


@pytest.fixture(scope="module")
def run(tmp_path_factory, words, static_model) -> opera.Run:
    return opera.adapt(words, model=static_model, out=tmp_path_factory.mktemp("hybrid") / "run", **HYBRID)


def test_a_run_measures_keyword_search_alone_and_with_the_final_model(run):
    means = {model: values[MEASURE] for model, values in run.measures.items()}
    assert means["bm25"] > 0.9 > means["base"]
    assert means["hybrid"] > means["final"] + 0.3  # few dev queries keep w near its prior
    table = run.per_query()
    for model in ("bm25", "hybrid"):
        assert table[f"{model} {MEASURE}"].to_numpy().mean() == pytest.approx(means[model])
    record = run.record.keywords
    assert record.weights["words"] > 0
    assert record.hybrid > record.final
    assert record.bm25 > 0.9
    card = (run.model_path / "README.md").read_text()
    assert "Keyword search (BM25) alone is better than the final model" in card


def test_evaluate_and_search_use_the_weight_of_the_run(run, words):
    result = opera.evaluate(run.path, measures=[MEASURE], hybrid=True)
    assert result.hybrid.measures[MEASURE] == pytest.approx(run.measures["hybrid"][MEASURE])
    assert result.bm25.measures[MEASURE] == pytest.approx(run.measures["bm25"][MEASURE])
    assert run_keyword_index(str(run.path), opera.load_data(words)) == run.path / "bm25" / run.record.data.fingerprint
    best = result.hybrid.top_documents[0]
    data = opera.load_data(words)
    (query,) = data.queries.texts(data.queries.find_rows(result.query_ids[:1]), "text")
    fused = opera.search(run.path, query, top=10)
    assert [document.id for document in fused] == best
    alone = opera.search(run.path, query, hybrid=False)
    assert [document.score for document in alone] != [document.score for document in fused]
    assert opera.search(run.path, query, cutoff=-1)[0].score == alone[0].score
    with pytest.raises(opera.SettingError, match="--hybrid"):
        opera.search(run.path, query, hybrid=True, cutoff=0.3)


def test_another_model_gets_a_weight_from_dev(words, static_model):
    result = opera.evaluate(words, model=static_model, measures=[MEASURE], hybrid=True)
    assert result.keyword_weights["words"] > 0.5
    assert result.hybrid.measures[MEASURE] > result.measures[MEASURE] + 0.3
    with pytest.raises(opera.SettingError, match="no weight of keyword search"):
        opera.search(words, "rare1", model=static_model, hybrid=True)
    with pytest.raises(opera.SettingError, match=r"--hybrid: ranks 100 documents, too few for R@200"):
        opera.evaluate(words, model=static_model, measures="R@200", hybrid=True)


def test_without_bm25_nothing_is_measured(tmp_path, words, static_model):
    run = opera.adapt(words, model=static_model, out=tmp_path / "run", **FAST)
    assert run.measures.keys() == {"base", "fine_tuned", "final"}
    assert run.record.keywords is None
    assert not (run.path / "bm25").exists()
    assert opera.evaluate(run.path, bm25=False).bm25 is None
    with pytest.raises(opera.SettingError, match="was trained on these data without a weight of keyword search"):
        opera.evaluate(run.path, hybrid=True)  # dev trained again, so it would flatter the model
    with pytest.raises(opera.SettingError, match="--hybrid --no-bm25"):
        opera.evaluate(run.path, hybrid=True, bm25=False)


def test_hybrid_search_ranks_at_most_100_documents(run):
    with pytest.raises(opera.SettingError, match="--top: hybrid search ranks 100 documents, got 110"):
        opera.search(run.path, "rare1", top=110)
    assert len(opera.search(run.path, "rare1", top=110, hybrid=False)) == 110


def test_figures_on_the_split_that_chose_the_weight_get_a_warning(run, words, static_model, caplog):
    data = opera.load_data(words)
    dev = replace(data, splits={"dev": data.split("test")})
    result = opera.evaluate(dev, model=static_model, split="dev", measures=[MEASURE], hybrid=True)
    assert result.hybrid is not None
    assert "both together on dev may be too high" in caplog.text
    with pytest.raises(opera.DataError, match="has neither a dev nor a train split"):
        opera.evaluate(replace(data, splits={"test": data.split("test")}), model=static_model, hybrid=True)


def test_each_of_several_data_sets_has_its_weight(tmp_path, words, static_model, monkeypatch, capsys):
    topics = write_beir(tmp_path / "topics")
    run = opera.adapt(words, also=[topics], model=static_model, out=tmp_path / "run", **HYBRID)
    record = run.record.keywords
    assert record.weights["words"] > record.weights["topics"]
    fingerprints = {opera.load_data(folder).fingerprint for folder in (words, topics)}
    assert {folder.name for folder in (run.path / "bm25").iterdir()} == fingerprints
    alone = opera.evaluate(run.path, measures=[MEASURE], hybrid=True)
    assert alone.hybrid.measures[MEASURE] == pytest.approx(run.measures["hybrid"][MEASURE])
    weights = ", ".join(f"{weight:g} for {name}" for name, weight in record.weights.items())
    assert f"With keyword search (w = {weights})" in " ".join(run.headlines)
    out = StringIO()
    print_next(Screen(out, width=500), run)
    (search,) = re.findall(r"opera (search .*your question\")", out.getvalue())
    assert "rank" in opera_here(run.path, [*shlex.split(search), "--json"], monkeypatch, capsys).stdout


def test_the_first_sentence_counts_the_questions_with_a_right_document(run):
    table = run.per_query()
    base, final, words = (int(sum(table[f"{model} Success@10"].to_pylist())) for model in ("base", "final", "bm25"))
    before = "as before" if base == final else f"it was for {base} before"
    assert run.headlines[0] == (
        f"The right document is among the first ten for {final} of {len(table)} held-out questions; {before}. "
        f"Keyword search finds it for {words}."
    )


def test_data_sets_of_the_same_name_keep_their_weights_and_indexes(tmp_path, static_model):
    first, second = write_words(tmp_path / "a" / "same"), write_beir(tmp_path / "b" / "same")
    run = opera.adapt(first, also=[second], model=static_model, out=tmp_path / "run", **HYBRID)
    record = run.record.keywords
    for folder, weight in zip((first, second), record.weights.values(), strict=True):
        data = opera.load_data(folder)
        assert run_keyword_weight(str(run.path), data) == weight
        index = run_keyword_index(str(run.path), data)
        assert index is not None
        assert len(KeywordIndex.open(index, data.corpus).search(["common1"], 5).doc_rows) == 1
        assert opera.search(folder, "common1", model=run.path)


def test_a_name_is_not_a_path(tmp_path, static_model):
    data = replace(opera.load_data(write_words(tmp_path / "words")), name="../outside")
    run = opera.adapt(data, model=static_model, out=tmp_path / "run", **HYBRID)
    assert [path.parent for path in tmp_path.rglob("params.index.json")] == [run.path / "bm25" / data.fingerprint]


def test_without_a_gain_on_dev_the_weight_is_0(words, static_model):
    data = opera.load_data(words)
    keywords = KeywordSearch.of(Mixture.of(data), "title_text", None)
    evaluation = keywords.evaluate(Mixture.of(data), "test", [MEASURE])
    data = replace(data, splits={"dev": data.split("test")})
    kinds = [QueryKind(np.ones(len(evaluation.query_ids), dtype=bool), 1.0)]
    record = choose_keyword_weights(
        Mixture.of(data), evaluation, evaluation, kinds, STATIC_KEYWORD_ANCHOR, MEASURE
    )  # nothing to gain with itself
    assert record.weights == {"words": 0.0}
    assert record.hybrid == record.final == record.bm25


def test_a_weight_is_chosen_by_as_many_documents_as_the_measure_needs(words, monkeypatch):
    measure, depths = "retrieved_ideal_nDCG@10", set[int]()
    rank = Fusion.ranking
    monkeypatch.setattr(Fusion, "ranking", lambda self, weight, depth: depths.add(depth) or rank(self, weight, depth))
    data = opera.load_data(words)
    evaluation = KeywordSearch.of(Mixture.of(data), "title_text", None).evaluate(Mixture.of(data), "test", [measure])
    dev = Mixture.of(replace(data, splits={"dev": data.split("test")}))
    kinds = [QueryKind(np.ones(len(evaluation.query_ids), dtype=bool), 1.0)]
    choose_keyword_weights(dev, evaluation, evaluation, kinds, STATIC_KEYWORD_ANCHOR, measure)
    assert depths == {100}


def per_query(bm25: float, final: float, hybrid: float) -> pa.Table:
    noise = np.random.default_rng(0).normal(0, 0.02, (3, 120))
    means = {"base": 0.3, "final": final, "bm25": bm25, "hybrid": hybrid}
    values = {f"{model} {MEASURE}": mean + noise[number % 3] for number, (model, mean) in enumerate(means.items())}
    return pa.table(values)


@pytest.mark.parametrize(
    ("bm25", "weight", "first", "last"),
    [
        (0.5, 0.6, "Keyword search (BM25) alone is better", "against the final model; BM25 alone: 50.0."),
        (0.333, 0.6, "Keyword search (BM25) alone is at least as good as", "BM25 alone: 33.3."),
        (0.2, 0.3, "Better: ", "against the final model; BM25 alone: 20.0."),
        (0.2, 0.0, "Better: ", "no gain on dev, so its weight is 0; BM25 alone: 20.0."),
    ],
)
def test_the_verdict_says_first_that_keyword_search_is_no_worse(tmp_path, bm25, weight, first, last):
    keywords = KeywordsRecord(
        weights={"x": weight}, measure=MEASURE, queries=120, bm25=bm25, final=0.3, hybrid=0.4, low=0.05, high=0.15
    )
    values = {"bm25": bm25, "base": 0.3, "final": 0.33, "hybrid": 0.4}
    writer, _ = write_unfinished_run(tmp_path / "run", {}, data="data", chosen=guard_record())
    record = opera.Run(writer.path).record.model_copy(update={"keywords": keywords})
    measures = {model: {MEASURE: mean, "Success@10": 0.5} for model, mean in values.items()}
    lines = headlines(RunSummary.of(writer.path, record, measures, per_query(bm25, 0.33, 0.4)))
    assert lines[1].startswith(first)
    assert lines[-2].endswith(last)
    assert lines[-1] == "Next: search with the final model and keyword search together."


def test_evaluate_and_search_use_the_weight_of_a_run_and_say_so(run, monkeypatch, capsys):
    def printed(*arguments: str) -> str:
        return opera_here(run.path, arguments, monkeypatch, capsys).stdout

    evaluated = json.loads(printed("evaluate", str(run.path), "--hybrid", "--json"))
    assert evaluated["bm25"][MEASURE] == pytest.approx(run.measures["bm25"][MEASURE])
    assert evaluated["keyword_weights"].keys() == {"words"}
    assert "model + BM25" in printed("evaluate", str(run.path), "--hybrid")
    assert "with keyword search" in printed("search", str(run.path), "rare1")
    assert "with keyword search" not in printed("search", str(run.path), "rare1", "--no-hybrid")
