"""Names of methods, data sets and settings."""

from __future__ import annotations

import pytest

from grids import RunsFolder
from opera.experiments.analysis import analyse_runs, find_runs, method_label, short_name


def test_a_label_has_a_methods_own_settings_and_those_that_differ(folder: RunsFolder) -> None:
    folder.add(method="sp", k=0.25)
    folder.add(method="sp", k=0.5)
    folder.add(method="dp", levels="query", temperature=0.05)
    folder.add(method="dp", mask_known_positives=False)
    folder.add(method="ft", range=(10, 50), negatives="hard")
    assert [group.method for group in folder.groups()] == [
        "ft:negatives=hard:range=10:50",
        "sp",
        "sp:k=0.5",
        "dp:levels=query:temperature=0.05",
        "dp:mask_known_positives=false",
    ]


def test_labels_leave_out_what_all_runs_share(folder: RunsFolder) -> None:
    folder.add(method="ft", temperature=0.05)
    folder.add(method="dp", temperature=0.05)
    assert [group.method for group in folder.groups()] == ["ft", "dp"]
    assert method_label(find_runs(folder.home)[0][0], frozenset({"temperature"})) == "ft:temperature=0.05"


def test_labels_name_models_that_differ(folder: RunsFolder) -> None:
    for model in ("models/small", "hub/large"):
        folder.add(model=model)
    assert [group.method for group in folder.groups()] == ["ft:model=large", "ft:model=small"]
    assert analyse_runs(folder.home).models == ("models/small", "hub/large")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("a/b.jsonl", "b"),
        ("a/b/", "b"),
        ("python:json", "python:json"),
        ("/", "/"),
        ("paper:tripclick-head", "tripclick-head"),
        ("irds:beir/fiqa", "fiqa"),
        ("irds:antique/train", "antique"),
        ("irds:", "irds:"),
        ("hf:mteb/nfcorpus:test", "nfcorpus:test"),
        ("hf:folder/mine/", "mine"),
        ("hf:..", "hf:.."),
    ],
)
def test_short_names(source: str, name: str) -> None:
    assert short_name(source) == name


def test_settings_that_all_runs_share(folder: RunsFolder) -> None:
    for method in ("ft", "dp"):
        folder.add(method=method, temperature=0.05, noise="random", noise_share=0.3)
    comparison = analyse_runs(folder.home)
    assert comparison.shared == {"temperature": 0.05, "noise": "random", "noise_share": 0.3}


def test_data_sets_with_the_same_name_get_longer_names(folder: RunsFolder) -> None:
    for data in ("a/one", "b/one", "two"):
        folder.add(data=data)
    assert {table.name for table in analyse_runs(folder.home).tables} == {"a/one", "b/one", "two"}


def test_what_differs_between_data_sets_alone_is_in_no_label(folder: RunsFolder) -> None:
    for data, ranks in (("a/one", (10, 100)), ("b/two", (10, 200))):
        folder.add(data=data, method="ft", negatives="hard", range=ranks)
        folder.add(data=data, method="dp", negatives="hard", range=ranks)
    assert [group.method for group in folder.groups()] == ["ft", "dp"] * 2
