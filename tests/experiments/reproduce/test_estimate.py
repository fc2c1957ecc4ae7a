"""Hours and disk before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from opera.experiments.paper import find_table
from opera.experiments.paper.tables import BGE, HUB_IDS
from opera.experiments.reproduce.cells import TableSettings
from opera.experiments.reproduce.estimate import estimate
from opera.experiments.reproduce.hardware import KNOWN_SHAPES, a100s, model_shape, this_machine
from opera.experiments.reproduce.plan import ReproductionPlan, plan_reproduction
from opera.experiments.reproduce.scale import SCALES
from opera.experiments.reproduce.sets import choose_sets

LARGE = HUB_IDS[BGE]


def planned(model: str, table: str = "main") -> ReproductionPlan:
    found = find_table(table)
    shared = TableSettings(found, model, "paper", SCALES["full"], None, (0,), {})
    return plan_reproduction(shared, Path("nowhere"), choose_sets(found, SCALES["full"], None))


def test_a_model_on_disk_is_as_large_as_its_files_and_layers(bert_model: Path, static_model: Path) -> None:
    shape, static = model_shape(str(bert_model)), model_shape(str(static_model))
    assert shape is not None
    assert static is not None
    assert 0 < shape.computing < shape.parameters
    assert static.computing == 0 < static.parameters
    assert model_shape("nobody/has-this") is None


def test_the_papers_models_take_no_faster_steps_than_the_paper_and_others_what_they_compute() -> None:
    shape = KNOWN_SHAPES[LARGE]
    paper, other = a100s(shape, True), a100s(shape, False)
    assert (paper.least_step, other.least_step) == (pytest.approx(1 / 2.43), 0)
    assert paper.tokens == pytest.approx(8 * 312e12 * 0.35 / (2 * shape.computing))
    assert "Table 5" in paper.source
    assert "Table 5" not in other.source


def test_eight_a100s_take_the_papers_table_in_days() -> None:
    plan = planned(LARGE)
    expected = estimate(plan, plan.cells)
    here, cluster = expected.machines
    steps = sum(cell.steps or 0 for cell in plan.cells)
    assert steps / 2.43 < expected.seconds(cluster) < 2 * steps / 2.43
    assert expected.seconds(here) > 10 * expected.seconds(cluster)
    assert expected.disk["triviaqa"]["embeddings"] == 21_015_324 * 1024 * 4
    assert expected.disk["fiqa"]["models"] == 4 * 4 * KNOWN_SHAPES[LARGE].parameters
    assert any("the model itself is not here" in note for note in expected.notes)


def test_a_model_here_is_timed_by_texts(bert_model: Path) -> None:
    shape = model_shape(str(bert_model))
    assert shape is not None
    machine = this_machine(str(bert_model), shape)
    assert machine.tokens > 0
    assert "through the model measured here" in machine.source


def test_nothing_is_estimated_of_an_unknown_model() -> None:
    plan = planned("nobody/has-this", "components")
    unknown = estimate(plan, plan.cells)
    assert (unknown.machines, unknown.bytes) == ((), 0)
    assert unknown.notes[0].startswith("OPERA has no recipe of 'nobody/has-this'")
    assert unknown.notes[1:] == (
        "nobody/has-this is not here, and its size is not known: no time and no disk can be estimated",
    )
    assert len(unknown.as_dict()["cells"]) == 5
