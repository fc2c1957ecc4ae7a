"""The model card of a run: a header that the hub reads, figures with intervals, and a command that repeats the run."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

import opera
from opera.config.recipe import make_recipe, recipe
from opera.run.model_card import metadata, repeat_command
from small_runs import SMALL


@pytest.fixture(scope="module")
def run(tmp_path_factory, beir, static_model) -> opera.Run:
    home = tmp_path_factory.mktemp("card")
    shutil.copytree(beir, home / "my words")
    settings = {**SMALL, "query_prompt": "t3w1: 'x' ", "negatives": "hard", "range": "2:9", "matryoshka": [8]}
    return opera.adapt(home / "my words", model=static_model, out=home / "run", method="sp", k=0.75, **settings)


def test_the_hub_reads_its_header(run):
    card = ModelCard.load(run.model_path / "README.md")
    assert card.data.library_name == "sentence-transformers"
    assert card.data.pipeline_tag == "sentence-similarity"
    assert card.data.base_model is None, "a folder of this machine is no model that others have"
    assert card.data.language is None, "it is never guessed"
    assert card.data.eval_results is not None
    values = {result.metric_name: result.metric_value for result in card.data.eval_results}
    assert values["nDCG@10"] == round(run.measures["final"]["nDCG@10"], 5)
    assert {result.dataset_name for result in card.data.eval_results} == {"my words"}


def test_it_holds_no_place_of_this_machine(run):
    text = (run.model_path / "README.md").read_text()
    assert not re.search(r"(^|[\s`'\"])/\w+/", text.replace("path/to/this/folder", ""))
    assert run.path.parent.name not in text


def test_its_recipe_asks_for_the_same_settings(run):
    words = shlex.split(repeat_command(run.record).replace("\\\n", ""))
    model = Path(run.record.model.source).name
    assert words == ["opera", "train", "my words", "--model", model, "--config", "recipe.yaml", "--out", "run"]
    again = make_recipe(recipe(run.model_path / "recipe.yaml")).flat()
    identity = run.record.identity
    assert {name: again[name] for name in identity if name in again} == {
        name: value for name, value in identity.items() if name in again
    }
    assert again["k"] == 0.75


def test_a_dataset_and_a_model_of_the_hub_are_named(run):
    data = run.record.data.model_copy(update={"source": "hf:mteb/nfcorpus@1f2e"})
    model = run.record.model.model_copy(update={"source": "BAAI/bge-small-en-v1.5"})
    card = metadata(run.record.model_copy(update={"data": data, "model": model}), {"nDCG@10": 0.5})
    assert (card.datasets, card.base_model) == (["mteb/nfcorpus"], "BAAI/bge-small-en-v1.5")
