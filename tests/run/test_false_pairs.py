"""A run says which of its labels look wrong, whatever the method; two trainings and a resumed one say the same."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opera
from opera.cli.compare import print_results
from opera.cli.screen import Screen
from opera.experiments.analysis import analyse_runs
from opera.labels.visits import FirstVisits
from small_runs import assert_same_run
from tiny_world import write_beir

SETTINGS: dict[str, Any] = {
    "per_device_train_batch_size": 32, "max_steps": 60, "learning_rate": 0.1, "temperature": 0.1
}  # fmt: skip
WRONG = 9
"""The grade of the pairs that are wrong; no other pair has it."""


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random documents make up 40% of the training pairs."""
    folder = write_beir(tmp_path_factory.mktemp("data") / "topics", n_train=100, dev=True)
    path, rng = folder / "qrels" / "train.tsv", np.random.default_rng(0)
    right = {tuple(line.split("\t")[:2]) for line in path.read_text().splitlines()[1:]}
    others = sorted({(f"train{query}", f"d{doc}") for query in range(100) for doc in range(120)} - right)
    wrong = rng.permutation(others)[: round(len(right) * 0.4 / 0.6)]
    with path.open("a") as file:
        file.writelines(f"{query}\t{doc}\t{WRONG}\n" for query, doc in wrong)
    return folder


@pytest.fixture(scope="module")
def run(topics: Path, static_model: Path, tmp_path_factory: pytest.TempPathFactory) -> opera.Run:
    out = tmp_path_factory.mktemp("runs") / "run"
    return opera.adapt(topics, model=static_model, out=out, method="denoise", save_steps=20, **SETTINGS)


def test_it_finds_the_wrong_pairs_and_draws_them_less(run: opera.Run) -> None:
    found, pairs = run.record.false_pairs, run.pairs().to_pandas()
    assert found is not None
    assert found.visited == pairs.first_step.notna().sum() > 800
    assert found.unvisited == pairs.first_step.isna().sum() > 0
    assert found.pruned == 0
    # The first visits are of a model of random vectors, to which every pair looks wrong: too many, not too few.
    assert 0.35 < found.low < found.share < found.high < 0.55
    listed = pairs[pairs.probability_false > 0.5]
    assert len(listed) == found.suspicious
    wrong = pairs.grade == WRONG
    assert wrong[listed.index].mean() > 0.65  # chance: 0.4
    assert wrong[listed.index].sum() > 0.8 * wrong[pairs.first_step.notna()].sum()
    share_of_draws = pairs.times_drawn[wrong].sum() / pairs.times_drawn.sum()
    assert share_of_draws < 0.85 * wrong.mean()  # over all steps, the first sixth uniformly


def test_a_comparison_says_it_and_names_the_list(run: opera.Run) -> None:
    file = io.StringIO()
    print_results(Screen(file, 400), analyse_runs(run.path), Path("grid"))
    assert run.record.false_pairs is not None
    listed = f"{run.path / 'suspicious_pairs.csv'} lists {run.record.false_pairs.suspicious:,}"
    sentence = run.record.false_pairs.sentence
    assert f"{sentence[0].upper()}{sentence[1:]}; {listed}, the worst first.\nIf the test split" in file.getvalue()


def test_the_list_has_the_worst_first_and_their_texts(run: opera.Run, topics: Path) -> None:
    with (run.path / "suspicious_pairs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert run.record.false_pairs is not None
    assert len(rows) == run.record.false_pairs.suspicious
    probabilities = [float(row["probability_false"]) for row in rows]
    assert probabilities == sorted(probabilities, reverse=True)
    assert min(probabilities) >= 0.5
    data = opera.load_data(topics)
    texts = dict(zip(data.queries.ids(), data.queries.texts(), strict=True))
    assert all(texts[row["query_id"]] == row["query"] for row in rows)


def test_a_resumed_run_says_the_same(
    run: opera.Run,
    topics: Path,
    static_model: Path,
    tmp_path: Path,
    interrupted_at: Callable[[int], AbstractContextManager[None]],
) -> None:
    call: dict[str, Any] = {"model": static_model, "out": tmp_path / "run", "method": "denoise", "save_steps": 20}
    with interrupted_at(25):
        opera.adapt(topics, **call, **SETTINGS)
    again = opera.adapt(topics, resume=True, **call, **SETTINGS)
    assert again.record.false_pairs == run.record.false_pairs
    assert again.pairs().equals(run.pairs())
    assert_same_run(again, run)
    assert (again.path / "suspicious_pairs.csv").read_bytes() == (run.path / "suspicious_pairs.csv").read_bytes()


def test_a_second_training_takes_over_the_first_visits_of_the_pairs_that_both_have(
    beir: Path, static_model: Path, tmp_path: Path
) -> None:
    made, take_over = [], FirstVisits.take_over

    def keep(visits: FirstVisits, keys: Any, earlier: FirstVisits, earlier_keys: Any) -> None:
        take_over(visits, keys, earlier, earlier_keys)
        made.append((len(visits.p), visits.visited.sum(), earlier.visited.sum()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FirstVisits, "take_over", keep)
        run = opera.adapt(beir, model=static_model, out=tmp_path / "run", max_steps=30)
    assert run.record.guard is not None
    assert run.record.guard.second is not None
    [(pairs, taken, known)] = made
    assert 0 < taken == known < pairs


def test_the_list_can_be_given_back(run: opera.Run, topics: Path, static_model: Path, tmp_path: Path) -> None:
    listed = run.path / "suspicious_pairs.csv"
    again = opera.adapt(topics, model=static_model, out=tmp_path / "run", max_steps=2, guard=False, decisions=listed)
    left = {*zip(*(again.pairs()[name].to_pylist() for name in ("query_id", "doc_id")), strict=True)}
    with listed.open(newline="") as file:
        assert left.isdisjoint((row["query_id"], row["doc_id"]) for row in csv.DictReader(file))
    assert again.record.data.notes[-1].endswith("suspicious_pairs.csv")


def test_a_list_leaves_the_drawn_test_as_it_was(run: opera.Run, static_model: Path, tmp_path: Path) -> None:
    """So that both runs are measured by the same queries, and ``evaluate`` finds them."""
    texts = [f"the {word} of number {at}" for at in range(60) for word in ("colour", "price")]
    data = opera.load_data(queries=[f"which {text}" for text in texts], documents=texts)
    (tmp_path / "list.csv").write_text("query_id,doc_id\n" + "".join(f"q{at},d{at}\n" for at in range(40)))
    call: dict[str, Any] = {"model": static_model, "max_steps": 2, "future": "new-documents"}
    whole = opera.adapt(data, out=tmp_path / "whole", decisions=None, **call)
    without = opera.adapt(data, out=tmp_path / "without", decisions=tmp_path / "list.csv", **call)
    assert without.per_query()["query_id"].to_pylist() == whole.per_query()["query_id"].to_pylist()
    assert without.pairs().num_rows < whole.pairs().num_rows
    with pytest.raises(opera.RunFolderError, match="decided_pairs: the run has"):
        opera.adapt(data, out=without.path, resume=True, **call)
    found = opera.evaluate(data, model=without.path)
    assert found.measures["nDCG@10"] == without.measures["after"]["nDCG@10"]


def test_the_report_has_them(run: opera.Run, tmp_path: Path) -> None:
    assert run.record.false_pairs is not None
    page = opera.report(run.path, out=tmp_path / "report.html").read_text()
    assert f"<figcaption>{run.record.false_pairs.sentence}</figcaption>" in page
