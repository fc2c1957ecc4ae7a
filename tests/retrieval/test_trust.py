"""No model runs code: no pickle does, and no class or file that its folder names. Each attack works where unguarded."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer

from attacks import change, plant_bomb
from opera.core.errors import ModelError
from opera.retrieval import trust
from opera.retrieval.models import load_model
from opera.retrieval.trust import NO_PICKLE, check_model_folder, pickles_refused


@pytest.fixture
def folder(bert_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bert_model, tmp_path / "model"))


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """The folder that an attack makes when it succeeds."""
    return tmp_path / "code-ran"


def test_weights_that_are_pickles_only_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin: weights must be \.safetensors, and this is a pickle"):
        load_model(folder, "cpu")


def test_no_pickle_runs_even_if_the_model_asks_for_it(folder: Path, mark: Path) -> None:
    plant_bomb(folder, mark)
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(folder, "cpu")
    with pickles_refused(), pytest.raises(Exception, match="Weights only load failed"):
        SentenceTransformer(str(folder), device="cpu")
    assert not mark.exists()
    with pytest.raises(AttributeError, match="is_floating_point"):  # it has run the pickle and looks for a tensor
        SentenceTransformer(str(folder), device="cpu")
    assert mark.exists(), "the attack works, or this test shows nothing"


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "attack.Attack",
        "opera.core.errors.ModelError",
        "sentence_transformers.SentenceTransformer",  # would load the folder again, with settings from the folder
        "sentence_transformers.base.model.pickle",
        "sentence_transformers.base.modules.Missing",
        "sentence_transformers.",
        "",
        None,
        7,
    ],
)
@pytest.mark.parametrize("place", ["modules.json", "router_config.json", "config.json"])
def test_modules_are_those_of_sentence_transformers(folder: Path, mark: Path, name: Any, place: str) -> None:
    (folder / "attack.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    elsewhere = Path(shutil.copytree(folder, folder.parent / "elsewhere"))
    (folder / "1_Router").symlink_to(elsewhere)
    if place == "modules.json":
        (folder / place).write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": name}]))
    else:
        (elsewhere / place).write_text(json.dumps({"types": {"a": name}}))
    with pytest.raises(ModelError, match=rf"{place}: the type of a module must be"):
        load_model(folder, "cpu")
    assert not mark.exists()


@pytest.mark.parametrize("text", ["{]", "[" * 100_000, '{"a": 1}', "[1]", "\udc80"])
def test_a_list_of_modules_that_is_none_is_refused(folder: Path, text: str) -> None:
    (folder / "modules.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ModelError, match=r"modules\.json: (not JSON|must be a list)"):
        load_model(folder, "cpu")


def test_code_beside_a_configuration_is_not_run(folder: Path, mark: Path) -> None:
    (folder / "attack.py").write_text(f"import os\nos.mkdir({str(mark)!r})\nclass Attack: pass\n")
    change(folder / "config.json", auto_map={"AutoConfig": "attack.Attack"}, model_type="attack")
    change(folder / "sentence_bert_config.json", config_args={"trust_remote_code": True}, trust_remote_code=True)
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(folder, "cpu")
    assert not mark.exists()


def test_nothing_but_data_comes_from_the_hub(bert_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def download(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(bert_model)

    monkeypatch.setattr(trust, "snapshot_download", download)
    for name in ("somebody/some-model", "all-MiniLM-L6-v2", "bert-base-uncased"):
        load_model(name, "cpu")
    names, patterns = zip(*asked, strict=True)
    assert names == ("somebody/some-model", "sentence-transformers/all-MiniLM-L6-v2", "bert-base-uncased")
    for file in ("modeling.py", "pytorch_model.bin", "model.pt", "model.pkl", "model.onnx"):
        assert not any(Path(file).match(pattern) for pattern in patterns[0])


def test_a_folder_that_links_to_itself_is_read_once(folder: Path) -> None:
    (folder / "again").symlink_to(folder)
    check_model_folder(folder)


def test_torch_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (None, "0"):
        monkeypatch.setenv(NO_PICKLE, value) if value else monkeypatch.delenv(NO_PICKLE, raising=False)
        with pickles_refused():
            assert os.environ[NO_PICKLE] == "1"
        assert os.environ.get(NO_PICKLE) == value
