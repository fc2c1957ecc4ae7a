"""Exported models: the same embeddings, measured again, in folders that others read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import opera
from backbones import write_backbone
from opera.deployment.onnx_file import write_onnx
from opera.deployment.onnx_model import load_onnx
from opera.deployment.portable import save_portable
from opera.deployment.record import Export
from opera.retrieval.models import load_model

TEXTS = ["t1w1 t2w2", "common1 common2 t3w3 t4w1 common5 t6w6 t7w7", "t5w5", " ".join(["t8w1"] * 60)]
SAME = 1e-5
"""Sums of a few hundred float32 products in another order differ by some 1e-7; two layers multiply that."""


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory, beir: Path, bert_model: Path) -> Export:
    out = tmp_path_factory.mktemp("exported") / "out"
    return opera.export(bert_model, out=out, forms=["int8", "onnx"], data=beir)


@pytest.mark.parametrize("name", ["bge", "e5", "bge-m3", "qwen3"])
def test_each_architecture_embeds_the_same(name: str, tmp_path: Path) -> None:
    model = load_model(write_backbone(name, tmp_path / "model"), "cpu")
    save_portable(model, tmp_path / "out")
    write_onnx(model, tmp_path / "out" / "model.onnx")
    loaded = load_onnx(tmp_path / "out", tmp_path / "out" / "model.onnx")
    for encode in ("encode_query", "encode_document"):
        before, after = (getattr(each, encode)(TEXTS) for each in (model, loaded))
        assert np.abs(before - after).max() < SAME


def test_the_figures_are_those_of_the_model_before_and_after(exported: Export, beir: Path, bert_model: Path) -> None:
    onnx, int8 = (form.figures for form in exported.forms)
    assert [form.form for form in exported.forms] == ["onnx", "int8"]
    assert onnx is not None
    assert int8 is not None
    assert onnx.before == opera.evaluate(beir, model=bert_model, precision="fp32").measures["nDCG@10"]
    assert onnx.least_cosine == pytest.approx(1, abs=SAME)
    assert int8.low <= int8.difference <= int8.high
    assert int8.after == pytest.approx(int8.before + int8.difference)
    assert exported.forms[1].megabytes < exported.forms[0].megabytes
    values = json.loads((exported.folder / "export.json").read_text())
    assert values["forms"][0]["verdict"] == "same"
    assert values["queries"] == 16


def test_the_folder_is_one_that_older_versions_and_servers_read(exported: Export) -> None:
    modules = json.loads((exported.folder / "modules.json").read_text())
    assert {module["type"].rpartition(".")[0] for module in modules} == {"sentence_transformers.models"}
    pooling = json.loads((exported.folder / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_mean_tokens"] is True
    assert pooling["pooling_mode_cls_token"] is False
    assert json.loads((exported.folder / "sentence_bert_config.json").read_text())["max_seq_length"] == 64
    assert sorted(path.name for path in (exported.folder / "onnx").iterdir())[0] == "model.onnx"


def test_the_folder_loads_with_sentence_transformers_as_before(exported: Export, bert_model: Path) -> None:
    one, other = (SentenceTransformer(str(folder), device="cpu") for folder in (bert_model, exported.folder))
    assert (one.encode_query(TEXTS) == other.encode_query(TEXTS)).all()
