"""A run says which of its labels look wrong, whatever the method; two trainings and a resumed one say the same."""

import csv
from pathlib import Path

import pytest

import opera
from opera.data.decisions import SUSPICIOUS_COLUMNS
from tiny_world import write_noisy_beir

SETTINGS = {
    "per_device_train_batch_size": 32, "max_steps": 60, "learning_rate": 0.1, "temperature": 0.1
}  # fmt: skip
WRONG = 9
"""The grade of the pairs that are wrong; no other pair has it."""


@pytest.fixture(scope="module")
def topics(tmp_path_factory) -> Path:
    return write_noisy_beir(tmp_path_factory.mktemp("data") / "topics", WRONG)


@pytest.fixture(scope="module")
def run(topics, static_model, tmp_path_factory) -> opera.Run:
    out = tmp_path_factory.mktemp("runs") / "run"
    return opera.adapt(topics, model=static_model, out=out, method="denoise", save_steps=20, **SETTINGS)


def test_it_finds_the_wrong_pairs_and_draws_them_less(run):
    estimate, pairs = run.record.noisy_labels, run.pairs().to_pandas()
    assert estimate.visited == pairs.first_step.notna().sum() > 800
    assert estimate.unvisited == pairs.first_step.isna().sum() > 0
    # The first visits are of a model of random vectors, to which every pair looks wrong: too many, not too few.
    assert 0.35 < estimate.low < estimate.noise_rate < estimate.high < 0.55
    listed = pairs[pairs.probability_wrong > 0.5]
    assert len(listed) == estimate.suspicious
    wrong = pairs.grade == WRONG
    assert wrong[listed.index].mean() > 0.65  # chance: 0.4
    assert wrong[listed.index].sum() > 0.8 * wrong[pairs.first_step.notna()].sum()
    share_of_draws = pairs.times_drawn[wrong].sum() / pairs.times_drawn.sum()
    assert share_of_draws < 0.85 * wrong.mean()  # over all steps, the first sixth uniformly


def test_the_list_has_the_worst_first_and_their_texts(run, topics):
    with (run.path / "suspicious_pairs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert (*rows[0], "file", "line") == SUSPICIOUS_COLUMNS  # a BEIR folder has no lines of pairs
    assert len(rows) == run.record.noisy_labels.suspicious
    probabilities = [float(row["probability_wrong"]) for row in rows]
    assert probabilities == sorted(probabilities, reverse=True)
    assert min(probabilities) >= 0.5
    data = opera.load_data(topics)
    texts = dict(zip(data.queries.ids(), data.queries.texts(), strict=True))
    assert all(texts[row["query_id"]] == row["query"] for row in rows)


def test_a_list_leaves_the_drawn_test_as_it_was(static_model, tmp_path):
    """So that both runs are measured by the same queries, and ``evaluate`` finds them."""
    texts = [f"the {word} of number {number}" for number in range(60) for word in ("colour", "price")]
    data = opera.load_data(queries=[f"which {text}" for text in texts], documents=texts)
    rows = "".join(f"q{row},d{row},wrong\n" for row in range(40))
    (tmp_path / "list.csv").write_text(f"query_id,doc_id,decision\n{rows}")
    call = {"model": static_model, "max_steps": 2, "expected_documents": "new"}
    complete = opera.adapt(data, out=tmp_path / "complete", **call)
    without = opera.adapt(data, out=tmp_path / "without", decisions=tmp_path / "list.csv", **call)
    assert without.per_query()["query_id"].to_pylist() == complete.per_query()["query_id"].to_pylist()
    assert without.pairs().num_rows < complete.pairs().num_rows
    with pytest.raises(opera.RunFolderError, match="decided_pairs: the run has"):
        opera.adapt(data, out=without.path, resume=True, **call)
    evaluation = opera.evaluate(data, model=without.path)
    assert evaluation.measures["nDCG@10"] == without.measures["final"]["nDCG@10"]
