"""The paper's data sets: their counts are those of Table 8, and those that ir_datasets states of its ids."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import opera
from opera.data import with_relevant_grade
from opera_paper.catalogue import PAPER_SETS, PaperSet, find_set

LIBRARY = find_spec("ir_datasets")
assert LIBRARY is not None
assert LIBRARY.origin is not None
STATED: dict[str, Any] = json.loads(Path(LIBRARY.origin).with_name("etc").joinpath("metadata.json").read_text())
"""The counts that ir_datasets ships for every id, taken from the files themselves."""


def stated_counts(entry: PaperSet) -> dict[str, int]:
    documents = STATED[STATED[entry.splits["train"]]["docs"]["_ref"]]["docs"]["count"]
    counts = {"documents": documents}
    for split in ("train", "test"):
        about = STATED[entry.splits[split]]
        grades = about["qrels"]["fields"]["relevance"]["counts_by_value"]
        counts[f"{split}_queries"] = about["queries"]["count"]
        counts[f"{split}_pairs"] = sum(n for grade, n in grades.items() if int(grade) >= entry.relevant_grade)
    return counts


@pytest.mark.parametrize("entry", PAPER_SETS.values(), ids=PAPER_SETS)
def test_the_ids_hold_what_table_8_counts(entry):
    expected = entry.table_counts | {name: count for name, (count, _) in entry.known_counts.items()}
    assert stated_counts(entry) == expected


def test_the_test_pairs_of_antique_are_levels_1_and_4_in_table_8():
    grades = STATED["antique/test"]["qrels"]["fields"]["relevance"]["counts_by_value"]
    assert grades["1"] + grades["4"] == find_set("antique").test_pairs
    assert grades["3"] + grades["4"] == find_set("antique").known_counts["test_pairs"][0]


def test_loading_counts_as_the_paper_does_and_says_what_differs(irds):
    data = opera.load_data("paper:antique")
    assert any("counts grades from 3 up as relevant" in note for note in data.notes)
    counts = with_relevant_grade(data, 3).counts()
    same = replace(
        find_set("antique"), known_counts={}, **{name: counts[name] for name in find_set("antique").table_counts}
    )
    assert same.count_note(data) is None
    known = replace(same, test_pairs=9, known_counts={"test_pairs": (counts["test_pairs"], "as is known")})
    assert (known.count_note(data) or "").endswith("instead of 9 (as is known)")
