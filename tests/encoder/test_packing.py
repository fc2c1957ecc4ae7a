"""Packed texts: the embeddings and gradients of padded ones, and a model that leaves as it came."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from backbones import write_backbone
from opera.encoder import packing as packing_module
from opera.encoder.attention import NAME
from opera.encoder.forward import Column, embed_columns, embed_tokens, pays_for_padding
from opera.encoder.packing import packing
from opera.encoder.token_ids import token_ids
from opera.retrieval.models import checkpoint_gradients, load_model

TEXTS = ["t1w1 common3 t2w2", "common1 " * 40, "t3w1", "t1w1 t2w2 common3", "common2 t5w2 t3w3 common1"]


@pytest.fixture(scope="module", params=["bge", "bge-m3", "e5", "qwen3"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SentenceTransformer:
    return load_model(write_backbone(request.param, tmp_path_factory.mktemp(request.param) / "model"), "cpu")


def gradients(model: nn.Module, values: list[Tensor]) -> Tensor:
    torch.stack([(part * torch.linspace(-1, 1, part.numel()).view_as(part)).sum() for part in values]).sum().backward()
    found = torch.cat([part.grad.flatten() for part in model.parameters() if part.grad is not None])
    model.zero_grad()
    return found


def test_packed_texts_have_the_embeddings_of_padded_ones(model: SentenceTransformer) -> None:
    ids = token_ids(model, TEXTS)
    expected = torch.from_numpy(model.encode(TEXTS))
    with packing(model) as packed, torch.no_grad():
        assert packed
        assert model[0].auto_model.config._attn_implementation == NAME
        found = embed_tokens(model, ids)
        assert not pays_for_padding(model)
        inside = torch.from_numpy(model.encode(TEXTS))  # padded texts go through torch's attention, with their mask
    torch.testing.assert_close(nn.functional.normalize(found, dim=-1), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(inside, expected, rtol=0, atol=1e-6)


def test_columns_have_the_gradients_of_the_plain_path(model: SentenceTransformer) -> None:
    """Without dropout; packed, in several batches, each text once."""
    columns = [TEXTS[:2], TEXTS[2:4], TEXTS[1:3]]
    model.eval()
    plain = [model(model.preprocess(column))["sentence_embedding"] for column in columns]
    expected = gradients(model, plain)
    for packs in (True, False):
        with packing(model) if packs else nullcontext(), pytest.MonkeyPatch.context() as patch:
            patch.setattr("opera.encoder.forward.TOKENS_AT_ONCE", 45)
            found = embed_columns(model, [Column(token_ids(model, column)) for column in columns], packs=packs)
            for one, other in zip(found, plain, strict=True):
                torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
            torch.testing.assert_close(gradients(model, found), expected, rtol=1e-3, atol=1e-4)


def test_a_text_is_embedded_once(model: SentenceTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(
        "opera.encoder.forward.embed_tokens",
        lambda model, lists, *rest, **more: seen.append(len(lists)) or embed_tokens(model, lists, *rest, **more),
    )
    ids = token_ids(model, TEXTS)
    with torch.no_grad():
        columns = embed_columns(model, [Column(ids), Column(ids[::-1])])
    assert sum(seen) == len(TEXTS)
    assert torch.equal(columns[0], columns[1].flip(0))


def test_the_model_leaves_as_it_came(model: SentenceTransformer, tmp_path: Path) -> None:
    kinds = [type(module) for module in model.modules()]
    with packing(model):
        model.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    assert [type(module) for module in model.modules()] == kinds
    assert model[0].auto_model.config._attn_implementation == "sdpa"
    assert NAME not in (tmp_path / "saved" / "config.json").read_text()
    assert json.loads((tmp_path / "saved" / "modules.json").read_text())


def test_dropout_repeats_with_the_generator(model: SentenceTransformer) -> None:
    ids = token_ids(model, TEXTS)
    rates = [module for module in model.modules() if isinstance(module, nn.Dropout) and module.p > 0]
    model.train()
    with packing(model), torch.no_grad():
        torch.manual_seed(4)
        first = embed_tokens(model, ids)
        second = embed_tokens(model, ids)
        torch.manual_seed(4)
        assert torch.equal(embed_tokens(model, ids), first)
    model.eval()
    assert torch.equal(first, second) == (not rates)


def test_what_does_not_pack_is_padded(bert_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model(bert_model, "cpu")
    ids, expected = token_ids(model, TEXTS), torch.from_numpy(model.encode(TEXTS, normalize_embeddings=True))
    for hinder in ("reproducible", "inexact", "float64", "eager"):
        with monkeypatch.context() as patch:
            if hinder == "reproducible":
                patch.setattr(packing_module, "is_reproducible", lambda: True)
            if hinder == "inexact":  # a text would see its neighbours
                patch.setattr(packing_module, "_packs_exactly", {model[0].auto_model: False})
            if hinder == "eager":
                model[0].auto_model.set_attn_implementation("eager")
            if hinder == "float64":
                model.double()
            with packing(model) as packed, torch.no_grad():
                assert not packed
                found = nn.functional.normalize(embed_tokens(model, ids).float(), dim=-1)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
            model.float()[0].auto_model.set_attn_implementation("sdpa")


def test_a_model_that_mixes_texts_is_found_out(bert_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model(bert_model, "cpu")
    packed_features = packing_module.packed_features
    monkeypatch.setattr(
        packing_module,
        "packed_features",
        lambda model, lists: {**packed_features(model, lists), "position_ids": torch.arange(24)[None]},
    )
    with packing(model) as packed:
        assert not packed


def test_rotary_models_train_in_half_precision(tmp_path: Path) -> None:
    """Their queries and keys leave autocast in float32, their values in bfloat16."""
    model = load_model(write_backbone("qwen3", tmp_path / "model"), "cpu").eval()
    columns = [TEXTS[:2], TEXTS[2:4]]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        plain = [model(model.preprocess(column))["sentence_embedding"] for column in columns]
    expected = gradients(model, plain)
    with packing(model) as packed:
        assert packed
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = embed_columns(model, [Column(token_ids(model, column)) for column in columns])
        cosine = nn.functional.cosine_similarity(gradients(model, found), expected, dim=0)
    assert cosine > 0.99  # both are rounded to 8 bits, in another order


def test_a_window_shorter_than_a_text_is_not_packed(bert_model: Path, tmp_path: Path) -> None:
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from transformers import AutoTokenizer, MistralConfig, MistralModel

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    tokenizer = AutoTokenizer.from_pretrained(bert_model)
    config = MistralConfig(vocab_size=len(tokenizer), sliding_window=4, num_key_value_heads=1, **sizes)
    MistralModel(config).save_pretrained(tmp_path / "plain")
    tokenizer.save_pretrained(tmp_path / "plain")
    transformer = Transformer(str(tmp_path / "plain"))
    model = SentenceTransformer(modules=[transformer, Pooling(16, "mean")], device="cpu")
    with packing(model) as packed:
        assert not packed


def test_threads_that_share_a_model_do_not_mix_texts(model: SentenceTransformer) -> None:
    """One leaves while the other is inside."""
    ids, first, second = token_ids(model, TEXTS), packing(model), packing(model)
    with torch.no_grad():
        expected = embed_tokens(model, ids)
        first.__enter__()
        assert second.__enter__()
        first.__exit__(None, None, None)
        assert torch.equal(embed_tokens(model, ids), expected)
        second.__exit__(None, None, None)
    assert model[0].auto_model.config._attn_implementation == "sdpa"


def test_gradient_checkpointing_repeats_the_dropout(bert_model: Path) -> None:
    model = load_model(bert_model, "cpu").train()
    ids = [Column(token_ids(model, TEXTS))]
    found = []
    for checkpoints in (False, True):
        if checkpoints:
            checkpoint_gradients(model)
        torch.manual_seed(6)
        with packing(model) as packed:
            assert packed
            found.append(gradients(model, embed_columns(model, ids)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-7)


def test_an_error_inside_leaves_the_model_as_it_came(model: SentenceTransformer) -> None:
    with pytest.raises(KeyboardInterrupt), packing(model):
        raise KeyboardInterrupt
    assert not any(type(module).__name__ == "HashedDropout" for module in model.modules())


def test_a_text_without_tokens_stands_alone(model: SentenceTransformer) -> None:
    with packing(model), torch.no_grad(), pytest.raises(ValueError, match="without a single token"):
        embed_tokens(model, [torch.empty(0, dtype=torch.int32).numpy()])
