"""One table decides what depends on the processor."""

import logging

import pytest
import torch

from opera.core import processor
from opera.core.processor import DEFAULTS, processor_defaults, processor_kind, torch_computes_all
from opera.retrieval.device import resolve_precision


@pytest.mark.parametrize(
    ("features", "kind"),
    [
        ({"avx2", "avx512_bf16", "amx_tile"}, "amx"),
        ({"avx2", "avx512_bf16"}, "avx512_bf16"),
        ({"avx2"}, "avx2"),
        (set(), "plain"),
    ],
)
def test_the_features_of_a_processor_decide_its_kind(features, kind, monkeypatch):
    for name in ("avx2", "avx512_bf16", "amx_tile"):
        monkeypatch.setattr(torch.cpu, f"_is_{name}_supported", lambda known=name in features: known)
    assert processor_kind() == kind
    assert processor_defaults() == DEFAULTS[kind]
    assert resolve_precision("auto", "cpu", is_transformer=True) == DEFAULTS[kind].precision


def test_torch_computes_all_on_an_unknown_processor_and_a_note_says_so(bert_model, monkeypatch, caplog):
    from opera.encoder._token_model import TokenModel
    from opera.retrieval.models import load_model

    model = TokenModel(load_model(bert_model, "cpu"))
    with model.packing():
        assert not model.pads
    assert not torch_computes_all()
    monkeypatch.setattr(processor, "processor_kind", lambda: "plain")
    processor._log_plain.cache_clear()
    with caplog.at_level(logging.INFO, "opera"), model.packing():
        assert model.pads
    assert torch_computes_all()
    assert caplog.messages == ["note: OPERA does not know this processor, so it computes as with OPERA_PLAIN=1"]
