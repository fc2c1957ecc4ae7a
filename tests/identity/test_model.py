"""What alters an embedding alters the identity of its model, and what does not does not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Router, Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from tokenizers.normalizers import Lowercase, Replace, Sequence
from torch import nn

import opera
from opera.config.training import LoraOptions
from opera.core.cache import cache_folder
from opera.identity.model import may_cache
from opera.retrieval.encoder import Encoder
from opera.retrieval.lora import add_lora
from opera.retrieval.models import load_model, set_dropout, set_lengths
from opera.retrieval.prompts import set_prompts

TEXTS = ["t1w1 common3 t2w2 t3w1 t4w4 common1 t5w2", "T1W1 common2"]
Change = Callable[[SentenceTransformer], object]


@pytest.fixture(scope="module")
def folder(bert_model, tmp_path_factory) -> Path:
    """A model with a route for queries and a route for documents, which share no module."""
    query, document = ([Transformer(str(bert_model)), Pooling(32, "mean")] for _ in range(2))
    document.append(Dense(32, 32, activation_function=nn.LeakyReLU(0.2)))
    folder = tmp_path_factory.mktemp("router") / "model"
    modules = [Router.for_query_document(query, document), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder), create_model_card=False)
    return folder


def route(model: SentenceTransformer, role: str = "document") -> Any:
    return model[0].sub_modules[role]


def vectors(model: SentenceTransformer) -> torch.Tensor:
    return torch.from_numpy(np.stack([model.encode_query(TEXTS), model.encode_document(TEXTS)]))


@pytest.fixture(scope="module")
def unaltered(folder) -> tuple[torch.Tensor, str]:
    """The embeddings of the model, and its fingerprint."""
    model = load_model(folder, "cpu")
    return vectors(model), Encoder(model).fingerprint


def permute_weights(part: nn.Module) -> None:
    with torch.no_grad():
        weights = next(part.parameters())
        weights.copy_(weights.roll(1, 0))


def normalise(*normalizers: Any) -> Change:
    def change(model: SentenceTransformer) -> None:
        backend = route(model)[0].tokenizer.backend_tokenizer
        backend.normalizer = Sequence([*normalizers])

    return change


def add_adapter(model: SentenceTransformer) -> None:
    """Add LoRA to the transformer of the documents, with matrices that are not 0."""
    nested = SentenceTransformer(modules=[route(model)[0]], device="cpu")
    add_lora(nested, LoraOptions(r=2), 0, "base")
    for name, part in nested.named_parameters():
        if "lora_B" in name:
            part.data += 0.1


def scale_adapter(model: SentenceTransformer) -> None:
    add_adapter(model)
    for part in model.modules():
        if hasattr(part, "lora_A"):
            part.scaling["default"] *= 3


ALTER: dict[str, Change] = {
    "weights": lambda model: permute_weights(route(model)[0]),
    "weights of another module": lambda model: permute_weights(route(model)[2]),
    "pooling": lambda model: setattr(route(model)[1], "pooling_mode", "cls"),
    "an activation": lambda model: setattr(route(model)[2], "activation_function", nn.Tanh()),
    "its slope": lambda model: setattr(route(model)[2], "activation_function", nn.LeakyReLU(0.5)),
    "the limit of a route": lambda model: setattr(route(model)[0], "max_seq_length", 6),
    "the length of queries": lambda model: setattr(route(model, "query")[0], "query_length", 6),
    "the length of documents": lambda model: setattr(route(model)[0], "document_length", 6),
    "a normaliser": normalise(Replace("common3", "common1")),
    "case": normalise(Lowercase(), Replace("t1w1", "t2w2")),
    "the side to cut": lambda model: [
        setattr(route(model)[0].tokenizer, "truncation_side", "left"),
        setattr(route(model)[0], "max_seq_length", 6),
    ],
    "the route": lambda model: setattr(model[0], "route_mappings", {("document", None): "query"}),
    "exchanged routes": lambda model: model[0].sub_modules.update(
        {"query": route(model), "document": route(model, "query")}
    ),
    "a module less": lambda model: route(model).pop(2),
    "an epsilon": lambda model: setattr(route(model)[0].auto_model.embeddings.LayerNorm, "eps", 9.0),
    "an adapter": add_adapter,
    "an adapter's scale": scale_adapter,
    "a prompt": lambda model: set_prompts(model, None, "common2 "),
    "dimensions": lambda model: setattr(model, "truncate_dim", 8),
}


@pytest.mark.parametrize("change", ALTER)
def test_what_alters_an_embedding_alters_the_identity(folder, unaltered, change):
    model, (expected, fingerprint) = load_model(folder, "cpu"), unaltered
    ALTER[change](model)
    changed = vectors(model)
    assert changed.shape != expected.shape or not torch.allclose(changed, expected, atol=1e-4)
    assert Encoder(model).fingerprint != fingerprint
    if change == "an adapter's scale":
        unscaled = load_model(folder, "cpu")
        add_adapter(unscaled)
        assert Encoder(model).fingerprint != Encoder(unscaled).fingerprint


def test_similarity_and_precision_are_parts_of_a_cache_key(folder, bert_model, beir, tmp_path):
    data, rows = opera.load_data(beir), np.arange(3)

    def entries() -> int:
        return len(list((cache_folder() / "vectors").iterdir()))

    Encoder(load_model(bert_model, "cpu"), "fp32").encode_queries(data, rows)
    count = entries()
    Encoder(load_model(bert_model, "cpu"), "bf16").encode_queries(data, rows)
    assert entries() == count + 1
    dot = load_model(bert_model, "cpu")
    dot.similarity_fn_name = "dot"
    Encoder(dot, "fp32").encode_queries(data, rows)
    assert entries() == count + 2
    short = load_model(bert_model, "cpu")
    set_lengths(short, {"max_query_length": None, "max_passage_length": 9})
    set_prompts(short, None, "common1 ")
    Encoder(short, "fp32").encode_queries(data, rows)
    assert entries() == count + 2, "queries do not depend on the prompt and length of documents"


def other_copy(folder: Path, tmp_path: Path) -> SentenceTransformer:
    """Load a copy that another version of the libraries wrote, with another rate of dropout."""
    copy = shutil.copytree(folder, tmp_path / "copy")
    for file in copy.rglob("config.json"):
        config = json.loads(file.read_text())
        if "model_type" in config:
            new = {"transformers_version": "4.0.0", "_name_or_path": "/elsewhere", "hidden_dropout_prob": 0.4}
            file.write_text(json.dumps({**config, **new}))
    return load_model(copy, "cpu")


KEEP: dict[str, Change] = {
    "nothing": lambda model: None,
    "a batch": vectors,
    "training mode": lambda model: model.train(),
    "dropout": lambda model: set_dropout(model, 0.3),
    "frozen weights": lambda model: model.requires_grad_(False),
    "a card": lambda model: setattr(model.model_card_data, "language", ["de"]),
    "the explicit limit": lambda model: setattr(route(model)[0], "document_length", 64),
}


@pytest.mark.parametrize("change", KEEP)
def test_what_alters_no_embedding_keeps_the_identity(folder, unaltered, change):
    model = load_model(folder, "cpu")
    KEEP[change](model)
    assert torch.equal(vectors(model.eval()), unaltered[0])
    assert Encoder(model).fingerprint == unaltered[1]


def test_a_copy_of_a_folder_is_the_same_model(folder, tmp_path):
    model, copy = load_model(folder, "cpu"), other_copy(folder, tmp_path)
    assert torch.equal(vectors(model), vectors(copy))
    assert Encoder(model).fingerprint == Encoder(copy).fingerprint


class Doubled(Pooling):
    """A module of a user, whose code OPERA cannot see."""


def with_hidden_code(folder: Path) -> SentenceTransformer:
    model = load_model(folder, "cpu")
    route(model)[1] = Doubled(32, "mean")
    return model


def with_replaced_method(folder: Path) -> SentenceTransformer:
    model = load_model(folder, "cpu")
    route(model)[1].forward = route(model)[1].forward
    return model


@pytest.mark.parametrize(("make", "part"), [(with_hidden_code, "Doubled"), (with_replaced_method, "Pooling")])
def test_a_model_with_a_hidden_part_is_not_cached(make, part, folder, beir, caplog):
    model, data = make(folder), opera.load_data(beir)
    assert may_cache(load_model(folder, "cpu"))
    before = set((cache_folder() / "vectors").glob("*"))
    with caplog.at_level("INFO", logger="opera"):
        for _ in range(2):
            Encoder(model).encode_corpus(data)
    assert set((cache_folder() / "vectors").glob("*")) == before
    assert caplog.text.count(f"cannot see all of {part}") == 1


def test_routes_do_not_share_cached_embeddings(folder, beir):
    other = load_model(folder, "cpu")
    route(other)[1].pooling_mode = "cls"
    data = opera.load_data(beir)
    results = [Encoder(model).encode_corpus(data).rows[:] for model in (load_model(folder, "cpu"), other)]
    alone = Encoder(other, use_cache=False).encode_corpus(data).rows[:]
    assert np.array_equal(results[1], alone)
    assert not np.allclose(results[0], alone, atol=1e-3)
    assert opera.load_data(beir).fingerprint == data.fingerprint
