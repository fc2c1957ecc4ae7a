"""LoRA: what is added changes nothing, what is merged is the same model, and runs resume and mix exactly."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import opera
from opera.config.training import LoraOptions
from opera.guard.choice import Weights, mixed_weights
from opera.identity.model import fingerprint
from opera.retrieval.lora import add_lora, has_lora, lora_parameters, merged
from opera.retrieval.models import load_model
from small_runs import SMALL

TEXTS = ["t0w1 common3", "t5w2 t5w3 common1"]
FAST = {**SMALL, "learning_rate": 0.03, "lora": "r=4,dropout=0.1"}


@pytest.fixture
def tuned(bert_model) -> SentenceTransformer:
    """A model whose matrices B are no longer 0."""
    model = load_model(bert_model, "cpu")
    add_lora(model, LoraOptions(r=4), 0, "base")
    generator = torch.Generator().manual_seed(1)
    for name, part in model.named_parameters():
        if "lora_B" in name:
            part.data = 0.1 * torch.randn(part.shape, generator=generator)
    return model


def test_it_starts_as_the_pretrained_model_from_a_seed(bert_model):
    model, before = load_model(bert_model, "cpu"), torch.get_rng_state()
    expected = model.encode(TEXTS)
    add_lora(model, LoraOptions(r=4), 7, "base")
    assert has_lora(model)
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(model.encode(TEXTS), expected)
    trains = {name for name, part in model.named_parameters() if part.requires_grad}
    assert all("lora_" in name for name in trains)
    assert lora_parameters(model) == sum(p.numel() for p in model.parameters() if p.requires_grad) > 0
    again, other = load_model(bert_model, "cpu"), load_model(bert_model, "cpu")
    add_lora(again, LoraOptions(r=4), 7, "base")
    add_lora(other, LoraOptions(r=4), 8, "base")
    assert fingerprint(again) == fingerprint(model) != fingerprint(other)


def test_merged_it_is_a_plain_model_and_itself_again_afterwards(tuned, bert_model, tmp_path):
    with_matrices, before = tuned.encode(TEXTS), fingerprint(tuned)
    plain_names = load_model(bert_model, "cpu").state_dict().keys()
    with merged(tuned):
        assert tuned.state_dict().keys() == plain_names
        tuned.save_pretrained(str(tmp_path / "model"), create_model_card=False)
    assert not (tmp_path / "model" / "adapter_config.json").exists()
    saved = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(saved, with_matrices, rtol=0, atol=1e-5)  # two layers of sums of 32 and 64 float32
    assert np.abs(saved - load_model(bert_model, "cpu").encode(TEXTS)).max() > 0.01
    np.testing.assert_array_equal(tuned.encode(TEXTS), with_matrices)
    assert fingerprint(tuned) == before


def test_a_mixture_is_that_of_the_merged_weights(tuned, bert_model):
    base = load_model(bert_model, "cpu")
    add_lora(base, LoraOptions(r=4), 3, "base")
    with merged(tuned), merged(base):
        mixture = {name: 0.75 * base.state_dict()[name] + 0.25 * part for name, part in tuned.state_dict().items()}
    mixed_weights(Weights.of(base), Weights.of(tuned), 0.25).put_into(tuned)
    with merged(tuned):
        for name, part in tuned.state_dict().items():
            torch.testing.assert_close(part, mixture[name], rtol=0, atol=1e-6, msg=name)


@pytest.mark.slow  # tests/run/test_served.py has a run with matrices that are merged
@pytest.mark.parametrize("merge", ["true", "false"])
def test_a_run_hands_over_a_model_that_loads_by_itself(train, merge, beir, bert_model, tmp_path):
    lora = f"{FAST['lora']},merge={merge}"
    more = {**FAST, "lora": lora, "gradient_checkpointing": True}
    run = train(model=bert_model, **more)
    assert (run.model_path / "adapter_config.json").exists() == (merge == "false")
    assert run.settings["lora"] == lora
    base = SentenceTransformer(str(bert_model), device="cpu").encode(TEXTS)
    handed_over = SentenceTransformer(str(run.model_path), device="cpu").encode(TEXTS)
    assert np.abs(handed_over - base).max() > 1e-4
    assert run.record.model.parameters == sum(p.numel() for p in load_model(bert_model, "cpu").parameters())
    evaluation = opera.evaluate(beir, model=tmp_path / "run", precision="fp32")
    assert evaluation.measures["nDCG@10"] == run.measures["final"]["nDCG@10"]


def test_models_that_training_cannot_follow_are_refused(train, beir, bert_model, tmp_path):
    lora = train("lora", model=bert_model, **{**FAST, "lora": "r=2,merge=false"})
    cut = SentenceTransformer(str(bert_model), device="cpu", truncate_dim=16)
    cut.save_pretrained(str(tmp_path / "cut"), create_model_card=False)
    for model, problem in ((lora.path, "LoRA matrices that are not merged"), (tmp_path / "cut", "truncate_dim")):
        with pytest.raises(opera.ModelError, match=problem):
            opera.adapt(beir, model=model, out=tmp_path / "run", max_steps=1)
