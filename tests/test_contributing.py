"""CONTRIBUTING.md: its examples of extensions run as printed, and work wherever OPERA takes their kind."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

import opera
from documents import ROOT
from opera.cli import app
from opera.methods import method_named
from opera.methods.testing import check_method
from opera.retrieval.measures import MEASURES, parse_measures, register_measure

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = {
    "A method": "softmax",
    "A data source": "FaqFile",
    "A kind of negatives": "narrowing",
    "A loss": "hinge",
    "A measure": "RBP80",
}
"""The sections on extensions, and the name that the code of each registers."""
FAST = {"max_steps": 4, "per_device_train_batch_size": 8, "guard": False}

Example = Callable[[str], dict[str, Any]]


def code_below(heading: str) -> str:
    """Return the Python block of a section."""
    (code,) = re.findall(
        r"^```python\n(.*?)^```$", PAGE.partition(f"\n### {heading}\n")[2].partition("\n### ")[0], re.M | re.S
    )
    return str(code)


def run_example(heading: str) -> dict[str, Any]:
    names = {"__name__": "my_extensions"}
    exec(compile(code_below(heading), f"CONTRIBUTING.md: {heading}", "exec"), names)
    return names


@pytest.fixture
def example(registries) -> Example:
    """Run the example of a section and return its names."""
    return run_example


def test_every_section_is_run_here():
    section = PAGE.partition("\n## Extending OPERA\n")[2].partition("\n## ")[0]
    assert re.findall(r"^### (.*)$", section, re.MULTILINE) == list(EXAMPLES)


@pytest.mark.parametrize("sharpness", [0.0, 20.0])
def test_the_method_passes_the_checks(sharpness, example):
    softmax = example("A method")["SoftmaxSampling"]
    check_method(softmax, softmax.settings_class.parse({"sharpness": sharpness}))


def test_training_takes_the_method_and_commands_list_it(example, beir, static_model, tmp_path):
    example("A method")
    run = opera.adapt(beir, model=static_model, method="SoftMax", out=tmp_path / "run", sharpness=2.0, **FAST)
    assert (run.finished, run.settings["method"], run.settings["sharpness"]) == (True, "softmax", 2.0)
    assert run.trace().column_names == ["step", "loss", "learning_rate", "seconds"]
    assert sum(run.pairs()["times_drawn"].to_pylist()) == 4 * 8
    listing = CliRunner().invoke(app, ["train", "--help-settings"], env={"COLUMNS": "200"})
    assert "sharpness" in listing.output
    with pytest.raises(opera.SettingError, match="did you mean 'softmax'"):
        method_named("sofmax")


def test_the_data_source_is_read_by_functions_and_commands(example, static_model, tmp_path):
    example("A data source")
    path = tmp_path / "help.faq"
    path.write_text("\n".join(f"t{topic}w5 t{topic}w6?\tt{topic}w1, t{topic}w2" for topic in range(10)))
    data = opera.load_data(path)
    assert (data.name, data.source) == ("help", str(path))
    assert (data.queries.texts()[3], data.corpus.texts()[3]) == ("t3w5 t3w6?", "t3w1, t3w2")
    done = CliRunner().invoke(app, ["inspect", str(path), "--model", str(static_model), "--json"])
    assert json.loads(done.output)["counts"]["train_pairs"] == 10
    run = opera.adapt(path, model=static_model, method="ft", out=tmp_path / "run", max_steps=2)
    after = opera.evaluate(path, model=run.path).measures["nDCG@10"]
    assert after == pytest.approx(run.measures["final"]["nDCG@10"])
    with pytest.raises(opera.DataError, match="a registered source reads it"):
        opera.evaluate(run.path)
    with pytest.raises(opera.SettingError, match="--encoding: applies only to tables in files"):
        opera.load_data(path, encoding="cp1252")
    with pytest.raises(opera.DataError, match=r"pass a BEIR folder .* a \.faq file, a question, a tab and an answer"):
        opera.load_data(path.with_suffix(".docx"))


def test_training_takes_the_negatives(train, example, beir, static_model, tmp_path):
    drawn = []
    kind = example("A kind of negatives")["NarrowingNegatives"]
    draw = kind.draw
    kind.draw = lambda self, queries, count, seed, step: (
        drawn.append((step, queries.shape, count)) or draw(self, queries, count, seed, step)
    )
    settings = {"negatives": "narrowing", "train_group_size": 3, **FAST}
    run = opera.adapt(beir, model=static_model, method="dp", out=tmp_path / "run", **settings)
    assert drawn == [(step, (8,), 2) for step in range(4)]
    assert run.record.negatives.kind == run.settings["negatives"] == "narrowing"
    with pytest.raises(opera.SettingError, match="narrowing"):
        train("other", negatives="narowing")


def test_training_takes_the_loss(train, example):
    example("A loss")
    run = train(loss="hinge", **FAST)
    assert run.settings["loss"] == "hinge"
    assert all(0 < value < 2.2 for value in run.trace()["loss"].to_pylist())  # 0.2 and at most two cosines apart


def test_evaluate_takes_the_measure(example, beir, static_model):
    example("A measure")
    found = opera.evaluate(beir, model=static_model, measures=["RBP80@10", "nDCG@10"])
    assert list(found.measures) == ["RBP80@10", "nDCG@10"]
    assert parse_measures(["rbp80@10"])[0].computed_by is MEASURES["RBP80"]
    with pytest.raises(ValueError, match="part of ir_measures"):
        register_measure("ndcg")
    with pytest.raises(opera.SettingError, match=r"did you mean 'RBP80@10'\?"):
        parse_measures(["RBP8@10"])


def test_the_sql_of_a_data_set_runs_by_itself(capsys):
    database = run_example("The SQL of a data set")["database"]
    assert database.sql("SELECT table_row, query_row, doc_row FROM numbered").fetchall() == [(2, 0, 0), (3, 0, 1)]
    assert "query" in capsys.readouterr().out
