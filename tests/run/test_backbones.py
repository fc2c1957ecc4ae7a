"""BERT, XLM-R and a Qwen3 decoder, tiny: they train, and what is saved gives what was measured."""

from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import TrainerCallback

import opera
from attacks import change
from backbones import write_backbone
from opera.retrieval.encoder import open_encoder
from opera.retrieval.models import load_model
from tiny_world import write_beir

QUICK = {
    "max_steps": 2,
    "per_device_train_batch_size": 4,
    "learning_rate": 1e-2,
    "precision": "fp32",
    "guard": False,
    "save_steps": 2,
}
LENGTHS = {name: {"max_query_length": 6, "max_passage_length": 7} for name in ("bge", "bge-m3", "qwen3")}
"""So short that documents and queries are cut. Pieces of words are shorter than words."""
LENGTHS["qwen3"] = {"max_query_length": 36, "max_passage_length": 30}
TEXTS = ["t1w1 t1w2 common5", "t2w3", " ".join(f"t{n % 12}w{n % 8}" for n in range(90))]
"""A text, a short one, and one that every model cuts."""


class Embeds(TrainerCallback):
    """Embeds some texts when training ends, with the model that trained."""

    def on_train_end(self, args: Any, state: Any, control: Any, model: SentenceTransformer, **kwargs: Any) -> None:
        """Keep the embeddings of queries and of documents."""
        self.embeddings = (model.encode_query(TEXTS), model.encode_document(TEXTS))


@pytest.mark.parametrize("backbone", ["bge", "qwen3", pytest.param("bge-m3", marks=pytest.mark.slow)])
def test_each_backbone_trains(backbone, tmp_path):
    topics = write_beir(tmp_path / "topics", n_docs=30, n_train=8, n_test=4)
    model, trained = write_backbone(backbone, tmp_path / "model"), Embeds()
    settings = {**QUICK, **LENGTHS[backbone], "gradient_checkpointing": True, "callbacks": [trained]}
    opera.adapt(topics, model=model, out=tmp_path / "run", method="dp", **settings)
    encoder = open_encoder(tmp_path / "run", "fp32")
    assert np.array_equal(encoder.model.encode_query(TEXTS), trained.embeddings[0])
    assert np.array_equal(encoder.model.encode_document(TEXTS), trained.embeddings[1])
    before, after = (dict(load_model(place, "cpu").named_parameters()) for place in (model, tmp_path / "run"))
    same = {name for name, weight in before.items() if torch.equal(weight, after[name])}
    assert all("pooler" in name for name in same), "all but what no embedding depends on has moved"


@pytest.mark.parametrize("side", ["left", pytest.param("right", marks=pytest.mark.slow)])
def test_a_decoder_without_a_padding_token_pads_with_its_end_of_text_token(side, tmp_path):
    topics = write_beir(tmp_path / "topics", n_docs=30, n_train=8, n_test=4)
    model = write_backbone("qwen3", tmp_path / "model")
    change(model / "tokenizer_config.json", pad_token=None, padding_side=side)
    with pytest.raises(ValueError, match="does not have a padding token"):
        SentenceTransformer(str(model), device="cpu").encode(TEXTS)
    base = open_encoder(model, "fp32").model
    one_by_one = np.concatenate([base.encode([text]) for text in TEXTS])
    # padding changes the order of sums in fp32
    np.testing.assert_allclose(base.encode(TEXTS), one_by_one, atol=1e-5)
    opera.adapt(topics, model=model, out=tmp_path / "run", **QUICK, **LENGTHS["qwen3"])
    saved = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    assert saved.tokenizer.padding_side == side
    trained = open_encoder(tmp_path / "run", "fp32").model
    assert np.array_equal(saved.encode_document(TEXTS), trained.encode_document(TEXTS))
