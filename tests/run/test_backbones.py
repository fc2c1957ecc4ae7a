"""BERT, XLM-R and a Qwen3 decoder, tiny: they train, and what is saved gives what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import TrainerCallback

import opera
from backbones import POSITIONS, write_backbone
from opera.retrieval.encoder import open_encoder
from opera.retrieval.models import load_model
from opera.runs.folder import Run
from tiny_world import write_beir

BACKBONES = ("bge", "e5", "bge-m3", "qwen3")
QUICK: dict[str, Any] = {
    "max_steps": 2,
    "per_device_train_batch_size": 4,
    "learning_rate": 1e-2,
    "precision": "fp32",
    "guard": False,
    "save_steps": 2,
}
LENGTHS = {name: {"max_query_length": 6, "max_passage_length": 7} for name in BACKBONES}
"""So short that documents and queries are cut. Pieces of words are shorter than words."""
LENGTHS["qwen3"] = {"max_query_length": 36, "max_passage_length": 30}
QUERY_PROMPT = "common3 common4 "
TEXTS = ["t1w1 t1w2 common5", "t2w3", " ".join(f"t{n % 12}w{n % 8}" for n in range(90))]
"""A text, a short one, and one that every model cuts."""
ROUNDING = 1e-5
"""Unit vectors of a one-layer model in float32: some thousand additions in another order, 2**-24 each."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_beir(tmp_path_factory.mktemp("world") / "topics", n_docs=30, n_train=8, n_test=4)


@pytest.fixture(scope="module")
def backbones(tmp_path_factory: pytest.TempPathFactory, _libraries_are_not_garbage: None) -> dict[str, Path]:
    return {name: write_backbone(name, tmp_path_factory.mktemp(name) / "model") for name in BACKBONES}


class Embeds(TrainerCallback):  # type: ignore[misc]
    """Embeds some texts when training ends, with the model that trained."""

    def on_train_end(self, args: Any, state: Any, control: Any, model: SentenceTransformer, **kwargs: Any) -> None:
        """Keep the embeddings of queries and of documents."""
        self.embeddings = (model.encode_query(TEXTS), model.encode_document(TEXTS))


@pytest.mark.parametrize("backbone", ["bge", "bge-m3", "qwen3"])
def test_each_backbone_trains(backbone: str, world: Path, backbones: dict[str, Path], tmp_path: Path) -> None:
    trained = Embeds()
    settings = {**QUICK, **LENGTHS[backbone], "gradient_checkpointing": True, "callbacks": [trained]}
    opera.adapt(world, model=backbones[backbone], out=tmp_path / "run", method="dp", **settings)
    encoder = open_encoder(tmp_path / "run", "fp32")
    assert np.array_equal(encoder.model.encode_query(TEXTS), trained.embeddings[0])
    assert np.array_equal(encoder.model.encode_document(TEXTS), trained.embeddings[1])
    before, after = (
        dict(load_model(place, "cpu").named_parameters()) for place in (backbones[backbone], tmp_path / "run")
    )
    same = {name for name, weight in before.items() if torch.equal(weight, after[name])}
    assert all("pooler" in name for name in same), "all but what no embedding depends on has moved"


@pytest.fixture(scope="module")
def prompted(world: Path, backbones: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A run of each backbone with a prompt; the decoder has its own."""
    home = tmp_path_factory.mktemp("runs")
    given = {name: {} if name == "qwen3" else {"query_prompt": QUERY_PROMPT} for name in BACKBONES}
    return {
        name: opera.adapt(
            world, model=backbones[name], out=home / name, method="sp", **QUICK, **LENGTHS[name], **given[name]
        )
        for name in BACKBONES
    }


@pytest.mark.parametrize("backbone", BACKBONES)
def test_plain_encode_with_the_prompt_is_encode_query(backbone: str, prompted: dict[str, Run]) -> None:
    """Except for a text that is cut: only ``encode_query`` and ``encode_document`` use the run's lengths."""
    run, lengths = prompted[backbone], LENGTHS[backbone]
    model = SentenceTransformer(str(run.model_path), device="cpu")
    prompt = model.prompts["query"]
    assert (
        prompt
        == run.settings["query_prompt"]
        == ("Instruct: common1 common2\nQuery:" if backbone == "qwen3" else QUERY_PROMPT)
    )
    assert (model[0].query_length, model[0].document_length, model.max_seq_length) == (*lengths.values(), POSITIONS)
    for role, length in zip(("query", "document"), lengths.values(), strict=True):
        assert model.preprocess(TEXTS, task=role)["input_ids"].shape[1] == length
    model[0].query_length = model[0].document_length = None
    assert np.array_equal(model.encode_query(TEXTS), model.encode(TEXTS, prompt=prompt))
    assert np.array_equal(model.encode_query(TEXTS), model.encode([prompt + text for text in TEXTS]))
    assert not np.allclose(model.encode_query(TEXTS), model.encode(TEXTS), atol=1e-3)
    assert np.array_equal(model.encode_document(TEXTS), model.encode(TEXTS))


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_run_is_measured_with_the_lengths_that_its_folder_stores(
    backbone: str, world: Path, prompted: dict[str, Run]
) -> None:
    run, lengths = prompted[backbone], LENGTHS[backbone]

    def similarities(**given: Any) -> np.ndarray:
        return opera.evaluate(world, precision="fp32", **given).ranking.scores

    assert run.measures["after"] == pytest.approx(
        opera.evaluate(world, model=run.path, precision="fp32", measures=list(run.measures["after"])).measures
    )
    as_run = similarities(model=run.path)
    assert np.array_equal(as_run, similarities(model=run.model_path, **lengths))
    assert np.array_equal(as_run, similarities(model=run.model_path))
    whole = similarities(model=run.model_path, max_query_length=POSITIONS, max_passage_length=POSITIONS)
    assert not np.allclose(as_run, whole, atol=1e-3), "the run's lengths cut these texts"
    card = (run.model_path / "README.md").read_text()
    read = "read {max_query_length} tokens of a query and {max_passage_length} of a document".format(**lengths)
    assert read in card
    assert "This folder stores these settings" in card
    assert "queries with `" in card


@pytest.mark.parametrize("backbone", BACKBONES)
def test_an_embedding_does_not_depend_on_its_batch(backbone: str, backbones: dict[str, Path]) -> None:
    """Padding on the left moves a decoder's text; its positions and its last token must move with it."""
    model = load_model(backbones[backbone], "cpu")
    assert model[0].tokenizer.padding_side == ("left" if backbone == "qwen3" else "right")
    together = model.encode_query(TEXTS)
    alone = np.concatenate([model.encode_query([text]) for text in TEXTS])
    assert np.abs(together - alone).max() < ROUNDING
    pooled = {"bge": 0, "bge-m3": 0, "qwen3": -1}.get(backbone)
    if pooled is not None:  # which token is the embedding: the first, or the last
        features = model.preprocess(TEXTS[:1])
        states = model[0](dict(features))["token_embeddings"][0, pooled]
        expected = torch.nn.functional.normalize(states, dim=0).detach().numpy()
        assert np.abs(model.encode(TEXTS[0]) - expected).max() < ROUNDING
