"""Packed texts: the embeddings and gradients of padded ones, and a model that leaves as it came."""

from contextlib import suppress

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from backbones import write_backbone
from opera.encoder import TokenModel
from opera.encoder import _token_model as packing_module
from opera.encoder._attention import NAME
from opera.encoder._token_model import packing, packs
from opera.encoder._token_source import TokenIds, token_ids
from opera.retrieval.models import checkpoint_gradients, load_model

TEXTS = ["t1w1 common3 t2w2", "common1 " * 40, "t3w1", "t1w1 t2w2 common3", "common2 t5w2 t3w3 common1"]


@pytest.fixture(scope="module", params=["bge", "bge-m3", "e5", "qwen3"])
def model(request, tmp_path_factory) -> SentenceTransformer:
    return load_model(write_backbone(request.param, tmp_path_factory.mktemp(request.param) / "model"), "cpu")


def embed(model: SentenceTransformer, texts: list[TokenIds]) -> Tensor:
    return model(TokenModel(model).features(texts, None))["sentence_embedding"]


def columns_of(model: SentenceTransformer, *columns: list[str]) -> list[tuple[list[TokenIds], None]]:
    return [(token_ids(model, column), None) for column in columns]


def gradients(model: nn.Module, values: list[Tensor]) -> Tensor:
    torch.stack([(part * torch.linspace(-1, 1, part.numel()).view_as(part)).sum() for part in values]).sum().backward()
    gradient = torch.cat([part.grad.flatten() for part in model.parameters() if part.grad is not None])
    model.zero_grad()
    return gradient


def test_packed_texts_have_the_embeddings_of_padded_ones(model, tmp_path):
    ids, kinds = token_ids(model, TEXTS), [type(module) for module in model.modules()]
    expected = torch.from_numpy(model.encode(TEXTS))
    with suppress(KeyboardInterrupt), packing(model), torch.no_grad():
        assert packs(model)
        packed = embed(model, ids)
        with packing(model):  # once more, as where a run evaluates while it trains
            again = embed(model, ids)
        assert packs(model)
        assert torch.equal(packed, again)
        inside = torch.from_numpy(model.encode(TEXTS))  # padded texts go through torch's attention, with their mask
        model.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
        raise KeyboardInterrupt
    torch.testing.assert_close(nn.functional.normalize(packed, dim=-1), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(inside, expected, rtol=0, atol=1e-6)
    assert [type(module) for module in model.modules()] == kinds
    assert model[0].auto_model.config._attn_implementation == "sdpa"
    assert NAME not in (tmp_path / "saved" / "config.json").read_text()


def test_columns_have_the_gradients_of_the_plain_path(model, monkeypatch):
    """Without dropout; packed and padded, in several batches, each text once."""
    columns, embedded = [TEXTS[:2], TEXTS[2:4], TEXTS[1:3]], []
    model.eval()
    plain = [model(model.preprocess(column))["sentence_embedding"] for column in columns]
    expected = gradients(model, plain)
    features = TokenModel.features
    monkeypatch.setattr(
        TokenModel, "features", lambda self, texts, *rest: embedded.append(len(texts)) or features(self, texts, *rest)
    )
    monkeypatch.setattr("opera.encoder._token_model.TOKENS_AT_ONCE", 45)
    for may_pack in (True, False):
        embedded.clear()
        token_model = TokenModel(model, may_pack=may_pack)
        with token_model.packing():
            ours = token_model.embed_columns(columns_of(model, *columns))
            for one, other in zip(ours, plain, strict=True):
                torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
            torch.testing.assert_close(gradients(model, ours), expected, rtol=1e-3, atol=1e-4)
        assert sum(embedded) == 4
        assert len(embedded) > 1


@pytest.mark.parametrize("hinder", ["reproducible", "plain", "positions", "float64", "eager"])
def test_what_does_not_pack_is_padded(hinder, bert_model, monkeypatch):
    model = load_model(bert_model, "cpu")
    ids, expected = token_ids(model, TEXTS), torch.from_numpy(model.encode(TEXTS, normalize_embeddings=True))
    if hinder in ("reproducible", "plain"):
        monkeypatch.setenv(f"OPERA_{hinder.upper()}", "1")
    elif hinder == "positions":  # a model that mixes texts is found out
        features, places = packing_module.packed_features, {"position_ids": torch.arange(24)[None]}
        monkeypatch.setattr(packing_module, "packed_features", lambda *given: {**features(*given), **places})
    elif hinder == "eager":
        model[0].auto_model.set_attn_implementation("eager")
    else:
        model.double()
    with packing(model), torch.no_grad():
        assert not packs(model)
        assert TokenModel(model).pads
        padded = nn.functional.normalize(embed(model, ids).float(), dim=-1)
        with pytest.raises(ValueError, match="have no tokens"):
            embed(model, [np.empty(0, np.int32)])
    torch.testing.assert_close(padded, expected, rtol=0, atol=1e-5)


def test_rotary_models_train_in_half_precision(tmp_path):
    """Their queries and keys leave autocast in float32, their values in bfloat16."""
    model = load_model(write_backbone("qwen3", tmp_path / "model"), "cpu").eval()
    columns = [TEXTS[:2], TEXTS[2:4]]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        plain = [model(model.preprocess(column))["sentence_embedding"] for column in columns]
    expected = gradients(model, plain)
    with packing(model):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            ours = TokenModel(model).embed_columns(columns_of(model, *columns))
        cosine = nn.functional.cosine_similarity(gradients(model, ours), expected, dim=0)
    assert cosine > 0.99  # both are rounded to 8 bits, in another order


def test_gradient_checkpointing_repeats_the_dropout(bert_model):
    model = load_model(bert_model, "cpu").train()
    results = []
    for checkpoints in (False, True):
        if checkpoints:
            checkpoint_gradients(model)
        torch.manual_seed(6)
        with packing(model):
            results.append(gradients(model, TokenModel(model).embed_columns(columns_of(model, TEXTS))))
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-7)


def test_a_window_shorter_than_a_text_is_not_packed(bert_model, tmp_path):
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
    with packing(model):
        assert not packs(model)
