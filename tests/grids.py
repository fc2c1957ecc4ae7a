"""Made-up runs for the tests of experiments: run folders whose figures are known, written without training."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from opera.config.automatic import Situation, resolve
from opera.config.recipe import make_recipe
from opera.core.arguments import RUN_FILE
from opera.core.figures import DEFAULT_MEASURES, PRIMARY, RECALL
from opera.experiments.groups import Group, find_runs, group_runs
from opera.experiments.plan import PlannedRun, plan_grid
from opera.run_folder.folder import MEASURES_FILE, PAIRS_FILE, PER_QUERY_FILE, RunWriter
from opera.run_folder.record import (
    CurvePoint,
    DataRecord,
    GuardedMeasure,
    GuardRecord,
    ModelRecord,
    RunRecord,
    TrainingRecord,
)

PAPERS = "retrieved_ideal_nDCG@10"
MEASURES = (*DEFAULT_MEASURES, PAPERS)
N_QUERIES = 9
Values = Sequence[float] | NDArray[Any]
SITUATION = Situation(queries=1000, model="static", device="cpu")
"""What automatic settings of made-up runs depend on."""


def write_run(
    path: Path,
    values: Mapping[str, Any],
    *,
    data: str,
    measures: Mapping[str, Mapping[str, float]],
    per_query: Mapping[str, Any],
    step_seconds: float = 0.5,
    **record: Any,
) -> None:
    """Write a finished run with these settings, measures, columns by query, and seconds of each step."""
    writer, steps = write_unfinished_run(path, values, data, status="finished", **record)
    writer.write_json(MEASURES_FILE, {"fine_tuned": measures["final"], **measures})
    writer.write_table(PER_QUERY_FILE, per_query)
    writer.write_table(PAIRS_FILE, {"query_id": ["a", "a", "b", "c"], "times_drawn": [2, 0, 1, 1]})
    writer.write_trace([{"step": step, "seconds": step_seconds} for step in range(steps)])
    writer.write_draws(np.zeros(steps, dtype=np.int32), per_step=1)


def write_unfinished_run(
    path: Path,
    values: Mapping[str, Any],
    data: str,
    model: str = "model",
    fingerprint: str = "x",
    status: Literal["running", "finished"] = "running",
    chosen: GuardRecord | None = None,
    identity: Mapping[str, Any] | None = None,
) -> tuple[RunWriter, int]:
    """Write ``run.json`` alone; return the run's writer and its number of steps."""
    path.mkdir(parents=True)
    writer = RunWriter(path)
    recipe = make_recipe(values)
    flat, resolved = (
        json.loads(json.dumps({**recipe.flat(), **dict(train)}))
        for train in (recipe.train, resolve(recipe.train, SITUATION))
    )
    steps = resolved["max_steps"]
    record = RunRecord(
        folder=str(path.absolute()),
        status=status,
        started="2026-01-01T00:00:00+00:00",
        identity=dict(identity or flat),
        data=DataRecord(source=data, fingerprint=fingerprint, counts={}, notes=[]),
        model=ModelRecord(source=model, fingerprint=model, parameters=1),
        device="cpu",
        processes=1,
        seed=flat["seed"],
        settings={**resolved, "learning_rate": 0.1},
        versions={},
        seconds={"load": 3.0, "train": 1e9},
        training=TrainingRecord(steps=steps, resumed_from=0, best_step=None, best_value=None, evaluations=[], lag=1),
        guard=chosen,
    )
    writer.write_json(RUN_FILE, record.model_dump())
    return writer, steps


def guard_record(**changes: Any) -> GuardRecord:
    """What a guard chose: half of the training, which is better on dev."""
    dev = GuardedMeasure(queries=120, base=0.3, fine_tuned=0.33, final=0.34, difference=0.04, low=0.02, high=0.06)
    test = GuardedMeasure(queries=120, base=0.3, fine_tuned=0.31, final=0.33, difference=0.03, low=0.01, high=0.05)
    curve = [CurvePoint(mixing_weight=weight, mean=mean) for weight, mean in ((0, 0.3), (0.5, 0.34), (1, 0.33))]
    values = {
        "mixing_weight": 0.5, "dev_verdict": "better", "measure": "nDCG@10",
        "expected_documents": "like-test", "expected_documents_given": False,
        "dev_given": False, "dev_queries": 120, "dev_seen": 0.5, "test_seen": 0.45, "curve": curve,
        "dev": dev, "test": test, "refit": False,
    }  # fmt: skip
    return GuardRecord(**{**values, **changes})


ONE = {"methods": ["ft"], "seeds": [0], "steps": [10]}
"""The axes of a grid of one run."""


def planned(out: Path, **changes: Any) -> list[PlannedRun]:
    """Plan a small grid."""
    parts = {
        "data": ["data/x"],
        "models": ["model"],
        "also": (),
        "methods": ["ft", "dp"],
        "seeds": [0, 1],
        "steps": [10],
        "values": {},
    }
    parts |= changes
    return plan_grid(out=out, **parts)


def finish_planned(cell: PlannedRun, model: Path | None = None, ndcg: float = 0.5, base: float | None = None) -> None:
    """Write the run that a cell would leave, with the identity of the model and data if there is a model, and with the
    base model's values by query if ``base`` is their mean."""
    identity = None
    if model is not None:
        from small_runs import prepare

        identity = prepare([cell.data, *cell.reading["also"]], model, **cell.values).identity
    values = ndcg + np.linspace(-0.1, 0.1, 5)
    write_run(
        cell.folder,
        cell.values,
        data=cell.data,
        measures={when: dict.fromkeys(MEASURES, ndcg) for when in ("base", "final")},
        per_query={
            "query_id": list("abcde"),
            **{f"final {name}": values for name in MEASURES},
            **({} if base is None else {f"base {PRIMARY}": values + base - ndcg + np.linspace(0, 0.01, 5)}),
        },
        model=str(model or cell.model),
        identity=identity,
    )


class RunsFolder:
    """A folder of made-up runs."""

    def __init__(self, home: Path) -> None:
        self.home, self.count = home, 0

    def add(
        self,
        data: str = "data/one",
        final: Values = (0.5,) * N_QUERIES,
        base: Values | None = None,
        fine_tuned: Values | None = None,
        queries: Sequence[str] = tuple(f"q{number}" for number in range(N_QUERIES)),
        similarity: Values | None = None,
        step_seconds: float = 0.5,
        status: Literal["running", "finished"] = "finished",
        chosen: GuardRecord | None = None,
        **settings: Any,
    ) -> Path:
        """Add a run. ``final`` holds each query's nDCG@10, ``base`` that of the base model, ``fine_tuned`` that of
        the model before the guard, and ``chosen`` what the guard recorded; recall is 0.5 less than nDCG."""
        values = {"method": "ft", "max_steps": 4, "seed": 0, **settings}
        path = self.home / f"run{self.count}"
        self.count += 1
        if status != "finished":
            write_unfinished_run(path, values, data, "models/small", status=status)
            return path
        columns = dict.fromkeys(MEASURES, np.asarray(final)) | {RECALL: np.asarray(final) - 0.5}
        tuned = {} if fine_tuned is None else dict.fromkeys(MEASURES, np.asarray(fine_tuned))
        measures = {
            "base": dict.fromkeys(MEASURES, 0.1 if base is None else float(np.mean(base))),
            "final": {name: float(column.mean()) for name, column in columns.items()},
        }
        if tuned:
            measures["fine_tuned"] = {name: float(column.mean()) for name, column in tuned.items()}
        per_query = {"query_id": list(queries)}
        if similarity is not None:
            per_query["similarity"] = np.asarray(similarity, dtype=np.float32)
        if base is not None:
            per_query["base nDCG@10"] = np.asarray(base)
        per_query |= {f"fine_tuned {name}": column for name, column in tuned.items()}
        per_query |= {f"final {name}": column for name, column in columns.items()}
        write_run(
            path,
            values,
            data=data,
            measures=measures,
            per_query=per_query,
            step_seconds=step_seconds,
            model="models/small",
            fingerprint=data,
            chosen=chosen,
        )
        return path

    def groups(self) -> list[Group]:
        """Group the runs."""
        return group_runs(find_runs(self.home)[0])


def around(mean: float, seed: int = 0, count: int = N_QUERIES) -> NDArray[np.float64]:
    """Random values with exactly this mean."""
    noise = np.random.default_rng(seed).normal(0, 0.1, count)
    return mean + noise - noise.mean()
