"""Which base model to use: quality after training, against the time to encode documents."""

import json

import pytest

from grids import N_QUERIES, around
from opera.core.errors import RunFolderError
from opera.core.figures import PRIMARY
from opera.experiments.results import Comparison, analyse_runs
from opera.experiments.tables import base_models_table


@pytest.fixture
def compared(folder):
    """Compare runs of base models: for each, nDCG@10 after training, and seconds, or none."""

    def compare(**models: tuple[float, float | None]) -> Comparison:
        encodings = {}
        for number, (name, (mean, seconds)) in enumerate(models.items()):
            for method, final in (("ft", mean), ("dp", mean - 0.1)):
                run = folder.add(method=method, final=around(final, number), base=around(0.3, number))
                record = json.loads((run / "run.json").read_text())
                record["model"]["source"] = record["identity"]["model_fingerprint"] = name
                (run / "run.json").write_text(json.dumps(record))
                if seconds is not None and method == "dp":  # any method's final model is as large
                    sizes = {
                        "documents": 500,
                        "device": "cpu",
                        "dimension": 8,
                        "bytes_per_document": 32,
                        "megabytes": 2.5,
                    }
                    encodings[run.name] = {"seconds": seconds, **sizes}
        (folder.home / "models.json").write_text(json.dumps({"encodings": encodings}))
        return analyse_runs(folder.home)

    return compare


def test_a_measurably_better_model_is_recommended_although_it_is_slower(compared):
    (models,) = compared(a=(0.5, 1.0), b=(0.9, 50.0)).base_models
    test = models.rows[0].best
    assert (models.recommended.model, models.rows[1].best) == ("b", None)
    assert models.conclusion == (
        "Training makes 2 of 2 base models better: a by 20.0, b by 60.0 points of nDCG@10. Use b: +40.0 points of "
        f"nDCG@10, 95% interval {test.interval_in_points}, over a"
    )


def test_a_faster_model_is_recommended_if_no_other_is_measurably_better(compared):
    (models,) = compared(a=(0.52, 12.3), b=(0.5, 1.0), c=(0.1, 0.01)).base_models
    assert models.recommended.model == "b", "c is faster, but measurably worse"
    assert "Training makes 2 of 3 base models better: a by 22.0, b by 20.0 points" in models.conclusion
    assert "Use b: a is not measurably better (+2.0 points of nDCG@10, 95% interval −" in models.conclusion
    assert models.conclusion.endswith("and b encodes 10,000 documents in 1.00 s instead of 12 s")


@pytest.mark.parametrize(("seconds", "why"), [
    ((1.1, 1.0), "no other is clearly faster"), ((None, 1.0), "their speed was not measured"),
])  # fmt: skip
def test_of_about_equal_models_the_first_by_quality_is_recommended(compared, seconds, why):
    (models,) = compared(a=(0.52, seconds[0]), b=(0.5, seconds[1])).base_models
    assert models.recommended.model == "a"
    assert models.conclusion.endswith(f"Use a: it has the highest nDCG@10, 52.0, but not measurably more than b; {why}")


def test_the_table_and_the_json_have_quality_and_costs(compared):
    comparison = compared(a=(0.9, 12.3), b=(0.2, None))
    (models,) = comparison.base_models
    first, second = base_models_table(models).rows
    interval = models.rows[0].gain.interval_in_points
    assert list(first.values()) == ["a", "ft", "30.0", "90.0", "+60.0", interval, "12 s", "8", "32", "2.5"]
    assert list(second.values())[:5] == ["b", "ft", "30.0", "20.0", "−10.0"]
    (record,) = json.loads(json.dumps(comparison.as_dict()))["base_models"]
    assert (record["recommended"], record["conclusion"]) == ("a", models.conclusion)
    assert record["rows"][0]["encoding"]["dimension"] == 8
    assert record["rows"][0]["gain"]["queries"] == N_QUERIES
    assert comparison.worse


def test_one_model_needs_no_choice(folder):
    folder.add()
    assert analyse_runs(folder.home).base_models == ()


def test_without_values_by_query_there_is_no_conclusion(folder):
    for source in ("a", "b"):
        run = folder.add()
        record = (run / "run.json").read_text()
        (run / "run.json").write_text(record.replace("models/small", source))
    (models,) = analyse_runs(folder.home).base_models
    assert models.conclusion == "No conclusion about the base models: there are too few test queries"
    assert models.best.final.mean == analyse_runs(folder.home).tables[0].rows[0].measures[PRIMARY].mean


def test_a_damaged_file_of_measurements_is_an_error(compared, folder):
    compared(a=(0.5, 1.0), b=(0.4, 2.0))
    (folder.home / "models.json").write_text('{"encodings": 1}')
    with pytest.raises(RunFolderError, match=r"models\.json: is damaged: encodings: "):
        analyse_runs(folder.home)
