"""The report's charts of a run's sampling, from recorded probabilities that are known."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grids import RunsFolder
from opera.experiments.report.sampling import RunSampling, run_samplings, sampling_charts
from opera.runs.folder import RunWriter
from opera.runs.sampling import BIN_EDGES, SamplingRecord, quantised

SIMILARITY = [0.1, 0.9, 0.5, 0.3]
BINS = len(BIN_EDGES) - 1


def add_run(folder: RunsFolder, method: str, documents: str = "wxyz", **columns: Any) -> None:
    """Add a run with three queries, a, b and c, of which a has two documents. At step 2 a is not drawn, b twice as
    often as by fine-tuning."""
    writer = RunWriter(folder.add(method=method))
    table = {"query_id": list("aabc"), "doc_id": list(documents), "times_drawn": [2, 0, 1, 1], "injected": [False] * 4}
    writer.write_pairs({**table, "kept": [True] * 4, **columns})
    histogram = np.zeros((2, BINS), dtype=np.int64)
    histogram[0, 60] = histogram[1, 62] = 4
    record = SamplingRecord(
        steps=np.array([0, 2], dtype=np.int32),
        query_ids=np.arange(3, dtype=np.int32),
        pair_ids=np.arange(4, dtype=np.int32),
        query_codes=quantised(np.array([[1.0, 1.0, 1.0], [0.0, 2.0, 1.0]])),
        document_codes=quantised(np.ones((2, 4))),
        similarity=histogram if method == "dp" else np.zeros((2, 0), dtype=np.int64),
    )
    writer.write_sampling(record)


@pytest.fixture
def folder(tmp_path: Path) -> RunsFolder:
    return RunsFolder(tmp_path / "runs")


def samplings(folder: RunsFolder) -> dict[str, RunSampling]:
    return run_samplings(folder.groups())


def decoded(text: str, *shape: int) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=np.uint8).reshape(shape)


def test_a_run_without_similarities_takes_those_of_the_same_pairs(folder: RunsFolder) -> None:
    add_run(folder, "ft")
    add_run(folder, "sp", similarity=np.array(SIMILARITY, dtype=np.float32))
    add_run(folder, "rp", documents="wxyv")
    folder.add(method="infobatch")  # it has no record
    by_method = samplings(folder)
    assert list(by_method) == ["ft", "rp", "sp"]
    for method in ("ft", "sp"):
        assert by_method[method].similarity == pytest.approx(SIMILARITY)
    assert by_method["rp"].similarity is None
    assert sampling_charts(by_method["rp"])["by_similarity"] is None


def test_figure_1_has_the_ratio_to_fine_tuning_by_similarity(folder: RunsFolder) -> None:
    add_run(folder, "sp", similarity=np.array(SIMILARITY, dtype=np.float32))
    (sampling,) = samplings(folder).values()
    assert sampling.pair_query.tolist() == [0, 0, 1, 2]
    charts = sampling_charts(sampling)
    assert (charts["steps"], charts["queries"], charts["pairs"]) == ([0, 2], 3, 4)
    assert charts["by_similarity"]["similarity"] == [0.1, 0.3, 0.5, 0.9]
    assert charts["by_similarity"]["ratio"][0] == [1, 1, 1, 1]
    assert charts["by_similarity"]["ratio"][1] == pytest.approx([0, 1, 2, 0], rel=0.034)  # a code's precision
    assert charts["drawable"] == pytest.approx([1, 2 / 3])
    assert charts["histogram"] is None


def test_heat_maps_have_the_most_similar_documents_first(folder: RunsFolder) -> None:
    add_run(folder, "sp", similarity=np.array(SIMILARITY, dtype=np.float32))
    (sampling,) = samplings(folder).values()
    by_query = sampling_charts(sampling)["by_query"]
    assert (by_query["names"], by_query["width"]) == (["a", "b", "c"], 2)
    assert decoded(by_query["exists"], 3, 2).tolist() == [[1, 1], [1, 0], [1, 0]]
    one, two = quantised(np.array([1.0, 2.0])).tolist()
    assert decoded(by_query["codes"], 2, 3, 2).tolist() == [
        [[one, one], [one, 0], [one, 0]],
        [[0, 0], [two, 0], [one, 0]],
    ]
    by_start = sampling_charts(sampling)["by_start"]
    assert decoded(by_start["codes"], 2, by_start["width"]).tolist() == [[one] * 4, [0, 0, two, one]]


def test_the_histogram_is_cut_to_what_is_filled_and_has_the_thresholds(folder: RunsFolder) -> None:
    add_run(folder, "dp", similarity=np.array(SIMILARITY, dtype=np.float32), kept=[False, True, True, True])
    (sampling,) = samplings(folder).values()
    histogram = sampling_charts(sampling)["histogram"]
    assert histogram["edges"] == pytest.approx(BIN_EDGES[60:64])
    assert histogram["counts"] == [[4, 0, 0], [0, 0, 4]]
    assert histogram["threshold"] == [None, None]
    assert histogram["kept_from"] == pytest.approx(0.3)
    thresholds = [float("nan"), 0.5, 0.25, 0.75]
    RunWriter(sampling.run.path).write_trace(
        [{"step": step, "document_threshold": value} for step, value in enumerate(thresholds, start=1)]
    )
    assert sampling_charts(sampling)["histogram"]["threshold"] == [None, 0.25]
