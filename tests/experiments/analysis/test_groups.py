"""Runs grouped by data set, method and number of steps, their labels, and the results of a folder."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grids import N_QUERIES, around, guard_record
from opera.core.errors import RunFolderError
from opera.core.figures import PRIMARY, RECALL
from opera.experiments.results import analyse_runs
from opera.run_folder.summary import dev_sentence


def test_labels_have_a_methods_own_settings_and_those_that_differ(folder):
    folder.add(method="sp", k=0.25)
    folder.add(method="sp", k=0.5)
    folder.add(method="dp", levels="query", temperature=0.05)
    folder.add(method="dp", mask_known_positives=False)
    folder.add(method="ft", range=(10, 50), negatives="hard")
    assert [group.method for group in folder.groups()] == [
        "ft:negatives=hard:range=10:50", "sp", "sp:k=0.5", "dp:levels=query:temperature=0.05",
        "dp:mask_known_positives=false",
    ]  # fmt: skip


def describe(run: Path, model: str, data: str = "data/one", **identity: Any) -> None:
    """Change what a run says of its model and data."""
    record = json.loads((run / "run.json").read_text())
    record["model"]["source"], record["data"]["source"] = model, data
    record["identity"].update(identity)
    (run / "run.json").write_text(json.dumps(record))


def test_models_with_one_name_get_numbers(folder):
    """Two seeds of a model in two copies are one group; a model that changed in place is another."""
    runs = [("a/bge", "1", 0), ("copies/bge-copy", "1", 1), ("b/bge", "2", 0), ("a/e5", "3", 0)]
    for source, digest, seed in runs:
        describe(folder.add(seed=seed), source, model_fingerprint=digest * 64)
    describe(folder.add(seed=0, max_query_length=64), "a/bge", model_fingerprint="4" * 64)
    groups = {(group.model, group.method): group.seeds for group in folder.groups()}
    assert groups == {
        ("bge", "ft"): (0, 1), ("bge-2", "ft"): (0,), ("e5", "ft"): (0,), ("bge", "ft:max_query_length=64"): (0,),
    }  # fmt: skip


def test_each_base_model_has_its_own_table_and_base(folder):
    """Settings that differ only between base models do not distinguish methods."""
    for model, base, rate in (("a/bge", 0.3, 0.1), ("a/e5", 0.4, 0.2)):
        for method in ("ft", "dp"):
            run = folder.add(method=method, base=[base] * N_QUERIES, learning_rate=rate)
            describe(run, model, model_fingerprint=model)
    comparison = analyse_runs(folder.home)
    rows = {(table.name, row.method): table.base[PRIMARY] for table in comparison.tables for row in table.rows}
    assert rows == pytest.approx({
        ("one with bge", "ft"): 0.3, ("one with bge", "dp"): 0.3, ("one with e5", "ft"): 0.4, ("one with e5", "dp"): 0.4
    })  # fmt: skip
    assert comparison.final_tables() == list(comparison.tables)
    assert comparison.ranks[PRIMARY] == {"ft": 1.5, "dp": 1.5}, "over the two models"


def test_labels_number_data_that_changed_in_place(folder):
    for seed, digest in ((0, "5"), (0, "6"), (1, "6")):
        describe(folder.add(seed=seed), "bge", data_fingerprint=digest * 64)
    assert {group.method: group.seeds for group in folder.groups()} == {"ft:data=one": (0,), "ft:data=one-2": (0, 1)}


def test_labels_number_teachers_and_decisions_of_one_name(folder):
    for seed, teacher in ((0, "6"), (0, "7"), (1, "6")):
        run = folder.add(seed=seed, loss="distill", teacher_scores="t.tsv")
        describe(run, "bge", teacher_fingerprint=teacher * 64)
    for seed, decided in ((0, 1), (0, 2), (1, 3)):  # each seed splits the data differently
        describe(folder.add(seed=seed, method="dp", decisions=["d.csv"]), "bge", decided_pairs=decided)
    labels = {group.method: group.seeds for group in folder.groups()}
    assert [seeds for label, seeds in labels.items() if label.startswith("dp")] == [(0, 1), (0,)]
    assert [label for label in labels if label.endswith("-2")] == [
        "ft:loss=distill:teacher_scores=t.tsv-2", "dp:decisions=d.csv-2",
    ]  # fmt: skip


def test_groups_hold_the_seeds_of_a_data_set_method_and_number_of_steps(folder):
    for seed, steps, data in product((2, 0), (8, 4), ("data/two", "data/one.jsonl")):
        folder.add(data=data, seed=seed, max_steps=steps)
    groups = folder.groups()
    assert [(group.data[5:8], group.steps) for group in groups] == [("one", 4), ("one", 8), ("two", 4), ("two", 8)]
    assert all(group.seeds == (0, 2) for group in groups)
    folder.add(data="data/two", seed=0, max_steps=4)
    with pytest.raises(RunFolderError, match="are the same run twice"):
        folder.groups()


def test_runs_that_cannot_be_compared_are_named_by_the_reason(folder):
    old, unfinished = folder.add(method="sp"), folder.add(method="infobatch", status="running")
    (old / "run.json").write_text((old / "run.json").read_text().replace('"format": 9', '"format": 1'))
    with pytest.raises(RunFolderError, match=r"(?s)holds no finished run.*reads only format 9.*is not finished"):
        analyse_runs(folder.home)
    (folder.home / "junk").mkdir()
    (folder.home / "junk" / "run.json").write_text("{")
    folder.add(method="ft")
    comparison = analyse_runs(folder.home)
    assert [row.method for row in comparison.tables[0].rows] == ["ft"]
    assert [line.split(":")[0] for line in comparison.left_out] == [
        str(folder.home / "junk" / "run.json"), str(old / "run.json"), str(unfinished),
    ]  # fmt: skip


def test_the_baseline_is_ft_or_the_only_method_or_the_users(folder):
    for method, baseline in (("dp", None), ("sp", "sp"), ("ft", "ft")):
        folder.add(method=method)
        assert analyse_runs(folder.home).baseline == baseline
    assert analyse_runs(folder.home, "dp").baseline == "dp"


def test_an_analysis_as_json_has_every_table_test_and_rank(folder):
    for method, steps, data in product(("ft", "dp"), (4, 8), ("one", "two")):
        after, tuned = around(0.5, steps), around(0.4)
        folder.add(method=method, max_steps=steps, data=data, final=after, fine_tuned=tuned, chosen=guard_record())
    record = json.loads(json.dumps(analyse_runs(folder.home).as_dict(), allow_nan=False))
    assert record["baseline"] == "ft"
    assert [(table["name"], table["steps"]) for table in record["tables"]] == list(product(("one", "two"), (4, 8)))
    row = record["tables"][0]["rows"][1]
    assert set(row["tests"]) == {PRIMARY, RECALL}
    assert (row["guard"]["mixing_weights"], row["guard"]["typical"]["dev_seen"]) == ([0.5], 0.5)
    assert row["guard"]["fine_tuned"][PRIMARY]["mean"] == pytest.approx(0.4)
    assert set(record["average_ranks"][RECALL]) == {"ft", "dp"}


def test_the_guards_figures_are_means_of_the_seeds(folder):
    tuned, after = ([around(mean, seed) for seed in (0, 1)] for mean in (0.4, 0.5))
    for seed, (share, verdict) in enumerate(((0.5, "better"), (1, "same"))):
        chosen = guard_record(
            mixing_weight=share, dev_verdict=verdict, dev_seen=0.7 + 0.2 * seed, test_seen=0.1, dev_queries=40 + seed
        )
        folder.add(seed=seed, base=[0.3] * N_QUERIES, fine_tuned=tuned[seed], final=after[seed], chosen=chosen)
    (row,) = analyse_runs(folder.home).tables[0].rows
    guard = row.guard
    assert (guard.mixing_weights, guard.dev_verdicts) == ((0.5, 1), ("better", "same"))
    assert guard.fine_tuned[PRIMARY].mean == pytest.approx(0.4)
    both = np.mean(after, axis=0) - np.mean(tuned, axis=0)
    assert guard.against_fine_tuned.difference == pytest.approx(both.mean())
    newer, few = guard.warnings
    assert "train has 10% of them, and 70% of dev's" in newer, "the first seed"
    assert "40 dev queries are few" in few
    assert "Train contains 70% of dev's documents" in dev_sentence(guard.typical)
