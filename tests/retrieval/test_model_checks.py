"""A model whose files are not whole is refused, not filled up with random numbers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import opera
from opera.core.errors import ModelError
from opera.retrieval.models import load_model

Weights = dict[str, torch.Tensor]


@pytest.fixture
def bert(bert_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bert_model, tmp_path / "bert"))


def change_weights(model: Path, change: Callable[[Weights], Weights]) -> None:
    file = next(model.rglob("model.safetensors"))
    save_file(change(load_file(file)), file, metadata={"format": "pt"})


def change_json(file: Path, **changes: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: {f"foo.{name}": weight for name, weight in weights.items()}, r"its files lack \d+ of"),
        (lambda weights: {}, r"its files lack \d+ of the weights that its configuration asks for, such as"),
        (lambda weights: {n: w for n, w in weights.items() if "layer.0.output" not in n}, r"its files lack 4 of"),
    ],
)
def test_weights_that_are_missing_are_not_made_up(
    bert: Path, change: Callable[[Weights], Weights], message: str
) -> None:
    change_weights(bert, change)
    with pytest.raises(ModelError, match=message):
        load_model(bert, "cpu")


def test_a_pooler_that_nothing_depends_on_may_be_missing(bert: Path) -> None:
    change_weights(bert, lambda weights: {n: w for n, w in weights.items() if "pooler" not in n})
    assert load_model(bert, "cpu").encode_query(["common0"]).shape == (1, 32)


def test_a_tokenizer_without_its_file_is_refused(bert: Path) -> None:
    """The library makes one of the special tokens alone, to which all texts of as many words are the same."""
    (bert / "tokenizer.json").unlink()
    with pytest.raises(
        ModelError, match=r"its tokenizer knows 5 words, and its weights have rows for 121: a file of the"
    ):
        load_model(bert, "cpu")


@pytest.mark.parametrize("name", ["evil.bin", "../other.safetensors", "/model.safetensors", "absent.safetensors", 7])
def test_an_index_names_weights_of_its_own_folder_only(bert: Path, name: object) -> None:
    file = next(bert.rglob("model.safetensors"))
    names = list(load_file(file))
    shutil.copy(file, bert.parent / "other.safetensors")
    file.rename(file.with_name("evil.bin"))
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, name)}
    file.with_name("model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"index\.json: .*weights must be \.safetensors files in|cannot be loaded"):
        load_model(bert, "cpu")


def test_a_text_that_the_model_cannot_encode_is_named(beir: Path, bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opera.retrieval.models.check_model", lambda *arguments: None)
    change_weights(bert, lambda weights: {n: w[:20].clone() if "word_emb" in n else w for n, w in weights.items()})
    for config in bert.rglob("config.json"):
        if "vocab_size" in config.read_text():
            change_json(config, vocab_size=20)
    with pytest.raises(ModelError, match=r"the model cannot encode .*: index out of range in self; its files may not"):
        opera.evaluate(beir, model=bert)
