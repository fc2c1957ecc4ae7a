"""CONTRIBUTING.md: its examples of extensions run as printed, and work wherever OPERA takes their kind."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import opera
from opera.cli import app
from opera.config.negatives import NEGATIVES
from opera.config.optimisation import LOSSES
from opera.core.errors import DataError, SettingError
from opera.data import Qrels
from opera.data.sources import SOURCES
from opera.methods import METHODS, Method, method_named
from opera.methods.contract import check_method
from opera.retrieval.measures import OWN_MEASURES, Ranking, parse_measures, per_query
from opera.training import loss  # noqa: F401 - fills the registry that forgotten_afterwards restores
from opera.training_set import negatives  # noqa: F401 - as above
from processes import start

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
FAST: dict[str, Any] = {"max_steps": 4, "per_device_train_batch_size": 8, "guard": False}

Example = Callable[[str], dict[str, Any]]


def code_below(heading: str) -> str:
    """Return the Python block of a section."""
    page = PAGE.read_text(encoding="utf-8")
    (section,) = re.findall(rf"^### {heading}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    (code,) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return code


@contextmanager
def forgotten_afterwards() -> Iterator[None]:
    """Restore every registry at the end."""
    tables = [(table, dict(table)) for table in (METHODS, NEGATIVES, LOSSES, OWN_MEASURES)]
    sources = list(SOURCES)
    try:
        yield
    finally:
        for table, before in tables:
            table.clear()
            table.update(before)
        SOURCES[:] = sources


@pytest.fixture
def example() -> Iterator[Example]:
    """Run the example of a section and return its names; afterwards nothing that it registered is left."""
    with forgotten_afterwards():
        yield run_example


def run_example(heading: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "my_extensions"}
    exec(compile(code_below(heading), f"{PAGE.name}: {heading}", "exec"), names)
    return names


def registered() -> set[str]:
    names = {name for registry in (METHODS, NEGATIVES, LOSSES, OWN_MEASURES) for name in registry.names}
    return names | {type(source).__name__ for source in SOURCES}


def test_every_block_of_code_is_an_example_that_registers_something() -> None:
    page = PAGE.read_text(encoding="utf-8")
    headings = re.findall(r"^### (.*)$", page, re.MULTILINE)
    assert page.count("```python") == len(headings)
    added, before = [], registered()
    for heading in headings:
        with forgotten_afterwards():
            run_example(heading)
            added.append(registered() - before)
        assert registered() == before
    assert added == [{"softmax"}, {"QuestionAnswerCsv"}, {"narrowing"}, {"hinge"}, {"RBP80"}]


class TestMethod:
    @pytest.fixture
    def softmax(self, example: Example) -> type[Method[Any]]:
        method: type[Method[Any]] = example("A method")["SoftmaxSampling"]
        return method

    @pytest.mark.parametrize("sharpness", [0.0, 5.0, 20.0])
    def test_it_passes_the_contract(self, softmax: type[Method[Any]], sharpness: float) -> None:
        check_method(softmax, softmax.settings_class.parse({"sharpness": sharpness}))

    def test_training_takes_it_in_any_case(
        self, softmax: type[Method[Any]], beir: Path, static_model: Path, tmp_path: Path
    ) -> None:
        run = opera.adapt(beir, model=static_model, method="SoftMax", out=tmp_path / "run", sharpness=2.0, **FAST)
        assert run.finished
        assert (run.settings["method"], run.settings["sharpness"]) == ("softmax", 2.0)
        assert run.trace().column_names == ["step", "loss", "learning_rate", "seconds"]
        assert sum(run.pairs()["times_drawn"].to_pylist()) == 4 * 8
        record = run.sampling()
        assert record is not None
        assert record.steps.tolist() == [0, 3]

    def test_commands_list_its_settings_and_correct_its_name(self, softmax: type[Method[Any]]) -> None:
        listing = CliRunner().invoke(app, ["train", "--help-settings"], env={"COLUMNS": "200"})
        assert listing.exit_code == 0, listing.output
        assert "sharpness" in listing.output
        with pytest.raises(SettingError, match="did you mean 'softmax'"):
            method_named("sofmax")


class TestDataSource:
    @pytest.fixture
    def table(self, example: Example, tmp_path: Path) -> Path:
        example("A data source")
        path = tmp_path / "faq.csv"
        lines = [f'"t{topic}w5 t{topic}w6?","t{topic}w1, t{topic}w2"' for topic in range(10)]
        path.write_text("\n".join(["question,answer", *lines]))
        return path

    def test_the_registered_source_is_read(self, table: Path) -> None:
        data = opera.load_data(table)
        assert (data.name, data.source) == ("faq", str(table))
        assert data.counts() == {"documents": 10, "train_queries": 10, "train_pairs": 10}
        assert data.queries.texts()[3] == "t3w5 t3w6?"
        assert data.corpus.texts()[3] == "t3w1, t3w2"

    def test_the_error_for_unknown_data_names_it(self, table: Path) -> None:
        with pytest.raises(DataError, match=r"pass a \.csv file with the columns question and answer, a BEIR folder"):
            opera.load_data(table.with_suffix(".xlsx"))

    def test_commands_take_it(self, table: Path, static_model: Path) -> None:
        done = CliRunner().invoke(app, ["inspect", str(table), "--model", str(static_model), "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.output)["counts"]["train_pairs"] == 10

    def test_training_takes_it(self, table: Path, static_model: Path, tmp_path: Path) -> None:
        run = opera.adapt(table, model=static_model, method="ft", out=tmp_path / "run", max_steps=2)
        assert run.finished
        after = opera.evaluate(table, model=run.path).measures["nDCG@10"]
        assert after == pytest.approx(run.measures["after"]["nDCG@10"])


class TestNegatives:
    def test_training_takes_them(self, example: Example, beir: Path, static_model: Path, tmp_path: Path) -> None:
        steps_drawn = []
        kind = example("A kind of negatives")["NarrowingNegatives"]
        draw = kind.draw
        kind.draw = lambda self, queries, count, seed, step: (
            steps_drawn.append((step, queries.shape, count)) or draw(self, queries, count, seed, step)
        )
        settings = {"negatives": "narrowing", "train_group_size": 3, **FAST}
        run = opera.adapt(beir, model=static_model, method="dp", out=tmp_path / "run", **settings)
        assert run.finished
        assert steps_drawn == [(step, (8,), 2) for step in range(4)]
        assert run.record.negatives is not None
        assert run.record.negatives.kind == run.settings["negatives"] == "narrowing"

    def test_they_come_from_fewer_and_fewer_of_the_best_documents(self, example: Example) -> None:
        kind = example("A kind of negatives")["NarrowingNegatives"]
        made = kind.__new__(kind)
        made.doc_rows, made.max_steps = np.arange(200).reshape(2, 100).astype(np.int32), 10
        queries = np.array([1, 0] * 500)
        for step, depth in ((0, 100), (5, 32), (10, 10)):
            drawn = made.draw(queries, 2, 0, step)
            assert (drawn.dtype, drawn.shape) == (np.int64, (1000, 2))
            assert set((drawn - 100 * queries[:, None]).ravel()) == set(range(depth))

    def test_a_typo_is_refused(self, example: Example, beir: Path, static_model: Path, tmp_path: Path) -> None:
        example("A kind of negatives")
        with pytest.raises(SettingError, match="narrowing"):
            opera.adapt(beir, model=static_model, out=tmp_path / "run", negatives="narowing")


class TestLoss:
    def test_its_values_are_those_of_the_definition(self, example: Example) -> None:
        hinge = example("A loss")["HingeLoss"].pair_losses
        similarity = torch.tensor([[0.9, 0.5, 0.8, 0.1], [0.3, 0.7, 0.6, 0.2]])
        excluded = torch.tensor([[False, False, True, False], [False] * 4])
        assert hinge(None, similarity, None, 0).tolist() == pytest.approx([0.1, 0.1])
        assert hinge(None, similarity, excluded, 0).tolist() == pytest.approx([0.0, 0.1])
        assert hinge(None, similarity, None, 2).tolist() == pytest.approx([0.3, 0.7])
        assert hinge(None, similarity, torch.ones(2, 4, dtype=torch.bool), 0).tolist() == [0, 0]

    def test_training_takes_it(self, example: Example, beir: Path, static_model: Path, tmp_path: Path) -> None:
        example("A loss")
        options = ["--model", str(static_model), "--steps", "4", "--batch-size", "8"]
        losses = {}
        for name in ("hinge", "infonce"):
            folder = tmp_path / name
            command = ["train", str(beir), *options, "--set", f"loss={name}", "--out", str(folder)]
            done = CliRunner().invoke(app, command)
            assert done.exit_code == 0, done.output
            run = opera.Run.open(folder)
            assert run.settings["loss"] == name
            losses[name] = run.trace()["loss"].to_pylist()
        assert len(losses["hinge"]) == 4
        assert all(0 < value < 2.2 for value in losses["hinge"])  # 0.2 and at most the distance of two cosines
        assert losses["hinge"] != losses["infonce"]

    def test_the_cells_of_a_grid_take_it(
        self, beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "extensions").mkdir()
        (tmp_path / "extensions" / "my_hinge.py").write_text(code_below("A loss"))
        monkeypatch.syspath_prepend(tmp_path / "extensions")  # of the command, which is forked off this process
        environment = {
            "OPERA_EXTENSIONS": "my_hinge",
            "PYTHONPATH": os.pathsep.join([str(tmp_path / "extensions"), os.environ.get("PYTHONPATH", "")]),
        }
        options = ["--methods", "ft", "--seeds", "0", "--steps", "4", "--batch-size", "8", "--set", "loss=hinge"]
        command = ["-m", "opera", "compare", str(beir), "--model", str(static_model), *options]
        out, log = tmp_path / "grid", tmp_path / "log"
        assert start([*command, "--out", str(out)], log, **environment).wait() == 0, log.read_text()
        assert opera.Run.open(out / beir.name / "ft" / "steps4" / "seed0").settings["loss"] == "hinge"
        assert "hinge" not in LOSSES.names


class TestMeasure:
    def test_its_values_are_those_of_the_definition(self, example: Example) -> None:
        example("A measure")
        ranking = Ranking(np.array([[4, 1, 0], [2, 3, 0]], dtype=np.int32), np.ones((2, 3), dtype=np.float32))
        qrels = Qrels.from_arrays(np.array([0, 0, 1]), np.array([4, 0, 9]), np.array([1, 2, 1]))
        values = per_query(ranking, qrels, parse_measures(["RBP80@10", "RBP80@2", "R@3"]))
        assert values["RBP80@10"] == pytest.approx([0.2 * (1 + 0.8**2), 0])
        assert values["RBP80@2"] == pytest.approx([0.2, 0])

    def test_evaluate_takes_it(self, example: Example, beir: Path, static_model: Path) -> None:
        example("A measure")
        found = opera.evaluate(beir, model=static_model, measures=["RBP80@10", "nDCG@10"])
        assert list(found.measures) == ["RBP80@10", "nDCG@10"]
        assert 0 < found.measures["RBP80@10"] < 1

    def test_a_typo_in_its_name_is_corrected(self, example: Example) -> None:
        example("A measure")
        with pytest.raises(SettingError, match=r"did you mean 'RBP80@10'\?"):
            parse_measures(["RBP8@10"])
