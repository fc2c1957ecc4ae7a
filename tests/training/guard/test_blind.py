"""What a run is told of the future decides what it reads of test: one number, or nothing."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest

import opera
from opera.runs.folder import Run
from small_runs import assert_same_run

SETTINGS: dict[str, Any] = {
    "method": "ft", "max_steps": 12, "per_device_train_batch_size": 8, "learning_rate": 0.05, "temperature": 0.1,
}  # fmt: skip


def with_other_test(beir: Path, folder: Path, kind: str) -> Path:
    """Copy a data set with other test labels: each query gets those of the next one, or some of five documents."""
    shutil.copytree(beir, folder)
    path = folder / "qrels" / "test.tsv"
    head, *rows = csv.reader(path.read_text().splitlines(), delimiter="\t")
    labels: dict[str, list[str]] = {}
    for query, document, _ in rows:
        labels.setdefault(query, []).append(document)
    queries = list(labels)
    if kind == "others":
        pairs = {query: [f"d{number % 5}"] for number, query in enumerate(queries)}
    else:
        pairs = {query: labels[queries[number - 1]] for number, query in enumerate(queries)}
    lines = ["\t".join(head), *(f"{query}\t{document}\t1" for query in queries for document in pairs[query])]
    path.write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize(
    ("future", "kind"),
    [("same-documents", "others"), ("new-documents", "others"), ("both", "others"), ("like-test", "the next one's")],
)
def test_test_labels_change_nothing_but_the_figures_on_test(
    future: str, kind: str, beir: Path, static_model: Path, tmp_path: Path
) -> None:
    other = with_other_test(beir, tmp_path / beir.name, kind)
    one, two = (
        opera.adapt(data, model=static_model, out=tmp_path / f"run{number}", future=future, **SETTINGS)
        for number, data in enumerate((beir, other))
    )
    assert_same_run(one, two)
    assert chosen(one) == chosen(two)
    assert (chosen(one)["test_seen"] is None) is (future != "like-test")
    assert one.record.data.notes == two.record.data.notes
    assert one.measures["before"] != two.measures["before"]


def chosen(run: Run) -> dict[str, Any]:
    """What the guard recorded, but for the figures on test."""
    assert run.record.guard is not None
    return run.record.guard.model_dump(exclude={"test"})
