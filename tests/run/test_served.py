"""What a run reports is what sentence-transformers gives: the base model's folder before, the saved folder after."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer

import opera
from opera.config.recipe import make_recipe
from opera.engine.pair_rows import read_all
from opera.guard.dev_corpus import best_documents, reduced_corpus, untrained_values
from opera.retrieval.measures import Ranking, parse_measures, per_query
from opera.runs.folder import Run
from opera.training_set.prepare import load_and_check
from small_runs import SMALL

MEASURE = "nDCG@10"
KEPT: dict[str, Any] = {**SMALL, "method": "ft", "learning_rate": 0.3}
NO_GUARD: dict[str, Any] = {**SMALL, "method": "ft", "guard": False}


def served(folder: Path, data: Any, split: str = "test") -> float:
    """The measure of a folder by sentence-transformers alone."""
    model, loaded = SentenceTransformer(str(folder), device="cpu"), opera.load_data(data)
    qrels = loaded.judged_qrels(split)
    queries = model.encode_query(loaded.queries.texts(qrels.query_rows), show_progress_bar=False)
    documents = model.encode_document(loaded.corpus.texts(), show_progress_bar=False)
    scores = model.similarity(queries, documents).numpy()
    rows = np.lexsort((np.broadcast_to(-loaded.corpus.id_rank, scores.shape), -scores))[:, :10]
    ranking = Ranking(rows.astype(np.int32), np.take_along_axis(scores, rows, axis=1))
    return float(per_query(ranking, qrels, parse_measures(MEASURE))[MEASURE].mean())


def assert_served(run: Run, folder: Path, data: Path) -> None:
    reported = [run.measures[when][MEASURE] for when in ("before", "after")]
    assert reported == pytest.approx([served(folder, data), served(run.model_path, data)], abs=1e-9)


@pytest.fixture
def folder_of(static_model: Path, bert_model: Path, tmp_path: Path) -> Callable[..., Path]:
    """Save a small model without its Normalize, with another similarity, prompts or lengths."""

    def save(kind: str, similarity: str, **lengths: int) -> Path:
        model = SentenceTransformer(str({"static": static_model, "bert": bert_model}[kind]), device="cpu")
        modules = [module for module in model if type(module).__name__ != "Normalize"]
        if kind == "static":  # lengths that decide a ranking
            factors = np.random.default_rng(0).uniform(0.2, 5, len(model[0].embedding.weight))
            model[0].embedding.weight.data *= model[0].embedding.weight.new_tensor(factors)[:, None]
        for name, length in lengths.items():
            setattr(modules[0], name, length)
        bare = SentenceTransformer(
            modules=modules, device="cpu", similarity_fn_name=similarity, prompts=dict(model.prompts)
        )
        bare.save_pretrained(str(tmp_path / kind), create_model_card=False)
        return tmp_path / kind

    return save


@pytest.mark.parametrize("similarity", ["cosine", "dot", "manhattan"])
def test_figures_are_those_of_the_folders_by_any_similarity(
    similarity: str, folder_of: Callable[..., Path], beir: Path, tmp_path: Path
) -> None:
    folder = folder_of("static", similarity)
    run = opera.adapt(beir, model=folder, out=tmp_path / "run", **NO_GUARD)
    assert_served(run, folder, beir)
    assert SentenceTransformer(str(run.model_path)).similarity_fn_name == "cosine"
    assert opera.evaluate(beir, model=folder).measures[MEASURE] == run.measures["before"][MEASURE]
    assert opera.evaluate(beir, model=run.path).measures[MEASURE] == run.measures["after"][MEASURE]


@pytest.fixture
def _keeps_the_base_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opera.guard.choice.choose_share", lambda *_: 0.0)


@pytest.mark.usefixtures("_keeps_the_base_model")
@pytest.mark.parametrize("adapter", [None, "query"])
def test_a_base_model_that_is_kept_keeps_its_settings(
    adapter: str | None, folder_of: Callable[..., Path], beir: Path, tmp_path: Path
) -> None:
    folder = folder_of("static", "dot")
    run = opera.adapt(beir, model=folder, out=tmp_path / "run", **KEPT, adapter=adapter)
    assert run.measures["after"] == run.measures["before"] != run.measures["fine_tuned"]
    assert_served(run, folder, beir)
    base, final = (SentenceTransformer(str(place)) for place in (folder, run.model_path))
    assert final.similarity_fn_name == "dot"
    assert np.array_equal(base.encode_document("t1w1 t2w2"), final.encode_document("t1w1 t2w2"))
    assert "holds the base model with its own settings" in (run.model_path / "README.md").read_text()


CHANGES = {"query_prompt": "common5 t3w1 ", "max_query_length": 7, "max_passage_length": 6}


@pytest.mark.parametrize("more", [{}, {"adapter": "both"}, {"lora": {"r": 2}}], ids=["all", "adapter", "lora"])
def test_figures_are_those_of_the_folders_with_other_prompts_and_lengths(
    more: dict[str, Any], folder_of: Callable[..., Path], beir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = folder_of("bert", "manhattan", max_seq_length=20, query_length=9)
    with caplog.at_level(logging.INFO, logger="opera"):
        run = opera.adapt(beir, model=folder, out=tmp_path / "run", **NO_GUARD, **CHANGES, **more)
    assert_served(run, folder, beir)
    final = SentenceTransformer(str(run.model_path))
    assert (final[0].query_length, final[0].document_length, final.max_seq_length) == (7, 6, 20)
    assert final.prompts == {"query": "common5 t3w1 ", "document": "common2 "}
    (note,) = [record.getMessage() for record in caplog.records if "the run uses" in record.getMessage()]
    for change in (
        "similarity 'cosine' (folder: 'manhattan')",
        "max_query_length 7 (folder: 9)",
        "max_passage_length 6 (folder: 20)",
        "query_prompt 'common5 t3w1 ' (folder: 'common1 ')",
    ):
        assert change in note
    assert opera.evaluate(beir, model=run.path).measures[MEASURE] == pytest.approx(run.measures["after"][MEASURE])


def test_the_guard_compares_the_folder_as_it_is(
    folder_of: Callable[..., Path], make_beir: Callable[..., Path], tmp_path: Path
) -> None:
    data, folder = make_beir(dev=True), folder_of("bert", "dot", max_seq_length=20)
    run = opera.adapt(data, model=folder, out=tmp_path / "run", **SMALL)
    assert run.record.guard is not None
    assert run.record.guard.curve[0].mean == pytest.approx(served(folder, data, "dev"), abs=1e-9)
    assert_served(run, folder, data)


def test_the_guard_compares_the_folder_as_it_is_among_a_part_of_the_documents(
    folder_of: Callable[..., Path], make_beir: Callable[..., Path]
) -> None:
    data, folder = opera.load_data(make_beir(dev=True, n_test=3)), folder_of("bert", "dot", max_seq_length=20)
    prepared = load_and_check(data, str(folder), make_recipe(SMALL))
    (best,) = best_documents(prepared.model.served, data, prepared.settings)
    reduced = reduced_corpus(data, best, 60, prepared.settings)
    assert len(reduced.data.corpus) == 60
    values = untrained_values(prepared.model.served, data, reduced, prepared.settings)
    assert values.mean() == pytest.approx(served(folder, reduced.data, "dev"), abs=1e-9)


@pytest.mark.usefixtures("_keeps_the_base_model")
def test_a_prompt_that_the_folder_lacks_is_added_to_the_base_model(
    folder_of: Callable[..., Path], beir: Path, tmp_path: Path
) -> None:
    folder = folder_of("static", "dot")
    run = opera.adapt(beir, model=folder, out=tmp_path / "run", **KEPT, query_prompt="t3w1 ")
    assert run.measures["before"][MEASURE] == opera.evaluate(beir, model=folder, query_prompt="t3w1 ").measures[MEASURE]
    assert run.measures["after"][MEASURE] == pytest.approx(served(run.model_path, beir), abs=1e-9)


def test_first_dimensions_are_measured_as_they_are_served(
    folder_of: Callable[..., Path], beir: Path, tmp_path: Path
) -> None:
    folder = folder_of("bert", "dot")
    run = opera.adapt(beir, model=folder, out=tmp_path / "run", matryoshka="4,8,32", **NO_GUARD)
    assert run.settings["matryoshka"] == [8, 4], "the whole always counts"
    assert json.loads((run.model_path / "config.json").read_text())["matryoshka_dimensions"] == [32, 8, 4]
    for place, when in ((folder, "before"), (run.model_path, "after")):
        cut = SentenceTransformer(str(place), truncate_dim=8)
        cut.save_pretrained(str(tmp_path / when), create_model_card=False)
        (size,) = [size for size in run.record.matryoshka or () if size.size == 8]
        assert getattr(size, when)[MEASURE] == pytest.approx(served(tmp_path / when, beir), abs=1e-9)


def test_what_trains_is_chosen_by_the_cosine(folder_of: Callable[..., Path], beir: Path) -> None:
    """Scores, negatives and the diagnosis are for training, which uses the cosine."""
    uses: list[Callable[[Path], Any]] = [
        lambda folder: opera.score(beir, model=folder).drop_columns([]),
        lambda folder: opera.mine(beir, model=folder, range=(1, 9)),
        lambda folder: opera.inspect(beir, model=folder).similarities,
    ]
    results = [[use(folder_of("static", similarity)) for use in uses] for similarity in ("cosine", "euclidean")]
    assert results[0] == results[1]


def test_pair_pruning_scores_by_the_cosine_and_leaves_the_model(folder_of: Callable[..., Path]) -> None:
    rows = {"query": [f"t{n}w1" for n in range(8)], "document": [f"t{n}w1 common{n}" for n in range(8)]}
    model = SentenceTransformer(str(folder_of("static", "dot")), device="cpu")
    for vectors in read_all(Dataset.from_dict(rows))[0].encode(model, None):
        assert np.linalg.norm(vectors[:], axis=1) == pytest.approx(np.ones(8), abs=1e-6)
    assert model.similarity_fn_name == "dot"


def test_the_prompt_of_the_data_does_not_replace_a_folders_own(
    folder_of: Callable[..., Path], beir: Path, tmp_path: Path
) -> None:
    folder = folder_of("bert", "cosine")
    data = replace(opera.load_data(beir), query_prompt="t3w1 t3w2 ")
    run = opera.adapt(data, model=folder, out=tmp_path / "run", **NO_GUARD)
    assert_served(run, folder, beir)
