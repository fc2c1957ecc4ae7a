"""What a run reports is what sentence-transformers gives: the base model's folder before, the saved folder after."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

import opera
from opera.retrieval.measures import Ranking, parse_measures, per_query
from small_runs import SMALL

MEASURE = "nDCG@10"
NO_GUARD = {**SMALL, "method": "ft", "guard": False}


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


def assert_served(run: opera.Run, folder: Path, data: Path) -> None:
    assert run.settings["precision"] == "fp32", "sentence-transformers computes in fp32"
    reported = [run.measures[when][MEASURE] for when in ("base", "final")]
    assert reported == pytest.approx([served(folder, data), served(run.model_path, data)], abs=1e-9)


@pytest.fixture
def folder_of(static_model, bert_model, tmp_path) -> Callable[..., Path]:
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


@pytest.mark.parametrize("similarity", ["cosine", "dot", pytest.param("manhattan", marks=pytest.mark.slow)])
def test_figures_are_those_of_the_folders_by_any_similarity(similarity, folder_of, beir, tmp_path):
    folder = folder_of("static", similarity)
    run = opera.adapt(beir, model=folder, out=tmp_path / "run", **NO_GUARD)
    assert_served(run, folder, beir)
    assert SentenceTransformer(str(run.model_path)).similarity_fn_name == "cosine"
    assert opera.evaluate(beir, model=folder).measures[MEASURE] == run.measures["base"][MEASURE]
    assert opera.evaluate(beir, model=run.path).measures[MEASURE] == run.measures["final"][MEASURE]


@pytest.mark.parametrize("adapter", [None, "query"])
def test_a_base_model_that_is_kept_keeps_its_settings(adapter, folder_of, beir, tmp_path, monkeypatch):
    monkeypatch.setattr("opera.guard.choice.choose_weight", lambda *_: 0.0)
    folder = folder_of("static", "dot")
    run = opera.adapt(beir, model=folder, out=tmp_path / "run", **SMALL, method="ft", adapter=adapter)
    assert run.measures["final"] == run.measures["base"] != run.measures["fine_tuned"]
    assert_served(run, folder, beir)
    base, final = (SentenceTransformer(str(place)) for place in (folder, run.model_path))
    assert final.similarity_fn_name == "dot"
    assert np.array_equal(base.encode_document("t1w1 t2w2"), final.encode_document("t1w1 t2w2"))


CHANGES = {"query_prompt": "common5 t3w1 ", "max_query_length": 7, "max_passage_length": 6}


@pytest.mark.parametrize("more", [{}, {"adapter": "both"}, {"lora": {"r": 2}}], ids=["all", "adapter", "lora"])
def test_figures_are_those_of_the_folders_with_other_prompts_and_lengths(more, folder_of, beir, tmp_path):
    folder = folder_of("bert", "manhattan", max_seq_length=20, query_length=9)
    run = opera.adapt(beir, model=folder, out=tmp_path / "run", **NO_GUARD, **CHANGES, **more)
    assert_served(run, folder, beir)
    final = SentenceTransformer(str(run.model_path))
    assert (final[0].query_length, final[0].document_length, final.max_seq_length) == (7, 6, 20)
    assert final.prompts == {"query": "common5 t3w1 ", "document": "common2 "}
    evaluation = opera.evaluate(beir, model=run.path, precision="fp32")
    assert evaluation.measures[MEASURE] == pytest.approx(run.measures["final"][MEASURE])


def test_the_guard_compares_the_folder_as_it_is(folder_of, make_beir, tmp_path):
    data, folder = make_beir(dev=True), folder_of("bert", "dot", max_seq_length=20)
    run = opera.adapt(data, model=folder, out=tmp_path / "run", **SMALL)
    assert run.record.guard.curve[0].mean == pytest.approx(served(folder, data, "dev"), abs=1e-9)
    assert_served(run, folder, data)


def test_first_dimensions_are_measured_as_they_are_served(folder_of, beir, tmp_path):
    folder = folder_of("bert", "dot")
    run = opera.adapt(beir, model=folder, out=tmp_path / "run", matryoshka="4,8,32", **NO_GUARD)
    assert run.settings["matryoshka"] == [8, 4], "the whole always counts"
    assert json.loads((run.model_path / "config.json").read_text())["matryoshka_dimensions"] == [32, 8, 4]
    for place, when in ((folder, "base"), (run.model_path, "final")):
        cut = SentenceTransformer(str(place), truncate_dim=8)
        cut.save_pretrained(str(tmp_path / when), create_model_card=False)
        (size,) = [size for size in run.record.matryoshka or () if size.size == 8]
        assert getattr(size, when)[MEASURE] == pytest.approx(served(tmp_path / when, beir), abs=1e-9)


def test_what_trains_is_chosen_by_the_cosine(folder_of, beir):
    """Scores, negatives and the diagnosis are for training, which uses the cosine."""
    uses = [
        lambda folder: opera.score(beir, model=folder).drop_columns([]),
        lambda folder: opera.mine(beir, model=folder, range=(1, 9)),
        lambda folder: opera.inspect(beir, model=folder).suspicious,
    ]
    results = [[use(folder_of("static", similarity)) for use in uses] for similarity in ("cosine", "euclidean")]
    assert results[0] == results[1]


@pytest.fixture(scope="module")
def small_bert(shared, tmp_path_factory) -> Path:
    """A trained BERT of two layers with mean pooling. It reads 32 tokens: emulated bfloat16 is slow."""
    transformer = Transformer(str(shared / "models" / "splade-tiny"), max_seq_length=32)
    pooling = Pooling(transformer.get_embedding_dimension(), "mean")
    folder = tmp_path_factory.mktemp("small") / "model"
    model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["toollens", "scifact", "nfcorpus", "entailmentbank"])
def test_the_folder_in_fp32_gives_the_final_figure_to_within_a_fifth_of_a_point(
    name, precision, shared, small_bert, tmp_path
):
    """docs/deploy.md says so. bfloat16 keeps 8 bits, which swaps only documents with nearly the same score."""
    data, model = shared / "data" / name, {"fp32": shared / "models" / "potion-base-4m", "bf16": small_bert}[precision]
    settings = {**NO_GUARD, "temperature": 0.05, "precision": precision}
    run = opera.adapt(data, model=model, out=tmp_path / "run", **settings)
    assert run.settings["precision"] == precision
    assert served(run.model_path, data) == pytest.approx(run.measures["final"][MEASURE], abs=0.002)
