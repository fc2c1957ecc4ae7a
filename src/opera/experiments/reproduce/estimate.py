"""How long a reproduction takes and how much disk, here and on eight A100s: ``opera reproduce --plan``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from opera.config.presets import PRESETS
from opera.data.catalogue import PAPER_SETS, PaperSet
from opera.experiments.grid.plan import Cell
from opera.experiments.grid.preview import time_grid
from opera.experiments.grid.status import Status
from opera.experiments.reproduce.cells import data_settings, papers_model, recipe_note
from opera.experiments.reproduce.hardware import (
    FLOAT_BYTES,
    Machine,
    ModelShape,
    a100s,
    local_model,
    model_shape,
    this_machine,
)
from opera.experiments.reproduce.plan import ReproductionPlan
from opera.experiments.reproduce.sets import is_here

BYTES_PER_TOKEN, QUERY_TOKENS = 4.5, 16
BACKWARD, PADDING = 3.0, 2.0
"""A training step's cost in forward passes; and the tokens of its batches, filled up to their longest text, per token
of their texts."""
CHECKPOINT, KEPT = 3, 3
"""Copies of the weights in a checkpoint (weights and Adam's two moments), and checkpoints on disk at once."""

ASSUMPTIONS = (
    f"tokens of a document: its bytes by the catalogue / {BYTES_PER_TOKEN}, at most max_passage_length; of a query: "
    f"{QUERY_TOKENS}",
    f"a training step: {BACKWARD:g} forward passes over its batch, padded to {PADDING:g} times its texts' tokens",
    "a cell: its steps, one encoding of the corpus after training, one search; a data set once: the pretrained model's "
    "encoding, and mining where negatives are hard",
    "embeddings: the pretrained model's, which the cache keeps; under torchrun, one process's part more while they are "
    "joined",
)


@dataclass(frozen=True)
class SetCost:
    """What a data set costs on one machine, in seconds.

    Attributes:
        per_step: one training step.
        once: the pretrained model's encoding, and mining.
        after: encoding and search after the training of each cell.
        measured: whether steps of the cells were timed on the data themselves.
    """

    per_step: float
    once: float
    after: float
    measured: bool = False

    def cell(self, steps: int) -> float:
        """Seconds of a cell."""
        return self.per_step * steps + self.after


@dataclass(frozen=True)
class Estimate:
    """What a reproduction costs.

    Attributes:
        plan: what is to run.
        cells: the cells of this call, all or one shard's.
        done: run folders of those that are finished.
        machines: this machine and eight A100s; empty where nothing is known of the model.
        costs: by the machine's name, then by data set.
        disk: bytes of each data set, by what they hold.
        checkpoints: bytes of the checkpoints of the cells that run at once.
        notes: assumptions, and what could not be estimated.
    """

    plan: ReproductionPlan
    cells: Sequence[Cell]
    done: frozenset[Any]
    machines: Sequence[Machine]
    costs: dict[str, dict[str, SetCost]]
    disk: dict[str, dict[str, int]]
    checkpoints: int
    notes: Sequence[str]

    def cell_seconds(self, cell: Cell, machine: str) -> float:
        """Seconds of a cell on a machine, by the machine's name."""
        return self.costs[machine][cell.data_name].cell(cell.steps or 0)

    @property
    def bytes(self) -> int:
        """Disk that all of it takes."""
        return self.checkpoints + sum(sum(sizes.values()) for sizes in self.disk.values())

    def seconds(self, machine: Machine) -> float:
        """Seconds of all cells that are not finished, one after another."""
        waiting = [cell for cell in self.cells if cell.folder not in self.done]
        sets = dict.fromkeys(cell.data_name for cell in waiting)
        once = sum(self.costs[machine.name][name].once for name in sets)
        return once + sum(self.cell_seconds(cell, machine.name) for cell in waiting)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        names = [machine.name for machine in self.machines]
        return {
            "table": self.plan.shared.table.name,
            "model": self.plan.model,
            "machines": {machine.name: machine.source for machine in self.machines},
            "cells": [
                {
                    "data": cell.data_name, "method": cell.label, "steps": cell.steps, "seed": cell.seed,
                    "run": str(cell.folder), "finished": cell.folder in self.done,
                    "seconds": {name: round(self.cell_seconds(cell, name), 1) for name in names},
                }
                for cell in self.cells
            ],
            "data": {
                name: {
                    "source": self.plan.sources[name],
                    "once_seconds": {machine: round(self.costs[machine][name].once, 1) for machine in names},
                    "measured_here": bool(names) and self.costs[names[0]][name].measured,
                    "bytes": sizes,
                }
                for name, sizes in self.disk.items()
            },
            "left_out": dict(self.plan.left_out),
            "seconds": {machine.name: round(self.seconds(machine), 1) for machine in self.machines},
            "checkpoint_bytes": self.checkpoints,
            "bytes": self.bytes,
            "notes": list(self.notes),
        }  # fmt: skip


def estimate(plan: ReproductionPlan, cells: Sequence[Cell], jobs: int = 1) -> Estimate:
    """Estimate time and disk. Needs neither a GPU nor a network; where data and model are here, steps are timed.

    Args:
        plan: the reproduction.
        cells: the cells of this call.
        jobs: how many run at once.

    Raises:
        TrainingError: if the timed steps fail.
        KeyboardInterrupt: after Ctrl-C.
    """
    names = list(dict.fromkeys(cell.data_name for cell in cells))
    done = frozenset(cell.folder for cell in cells if cell.finished)
    shape, recipe = model_shape(plan.model), recipe_note(plan.model)
    if shape is None:
        note = f"{plan.model} is not here, and its size is not known: no time and no disk can be estimated"
        return Estimate(plan, cells, done, (), {}, {name: {} for name in names}, 0, (recipe, note))
    here, cluster = this_machine(plan.model, shape), a100s(shape, papers_model(plan.model) is not None)
    costs = {machine.name: {name: _cost(plan, name, shape, machine) for name in names} for machine in (here, cluster)}
    costs[here.name].update(_measured(plan, [cell for cell in cells if cell.folder not in done], jobs))
    disk = {name: _disk(plan, name, shape, sum(cell.data_name == name for cell in cells)) for name in names}
    checkpoints = jobs * CHECKPOINT * KEPT * shape.parameters * FLOAT_BYTES
    machines = (f"{machine.name}: {machine.source}" for machine in (here, cluster))
    notes = (recipe, *plan.chosen.notes, *machines, *ASSUMPTIONS)
    return Estimate(plan, cells, done, (here, cluster), costs, disk, checkpoints, notes)


def counted_set(plan: ReproductionPlan, name: str) -> PaperSet:
    """A data set with its own counts where it was loaded, else with those of Table 8."""
    entry, counts = PAPER_SETS[name], plan.chosen.counts.get(name)
    if counts is None:
        return entry
    documents = counts.get("documents", 0)
    return replace(
        entry,
        documents=documents,
        train_queries=counts.get("train_queries", 0),
        test_queries=counts.get("test_queries", 0),
        text_bytes=round(entry.text_bytes / entry.documents * documents),
    )


def _cost(plan: ReproductionPlan, name: str, shape: ModelShape, machine: Machine) -> SetCost:
    """What a data set costs by its counts."""
    entry, values = counted_set(plan, name), data_settings(plan.shared, PAPER_SETS[name])
    document = min(entry.text_bytes / entry.documents / BYTES_PER_TOKEN, values.get("max_passage_length", 512))
    queries = values.get("global_batch_size") or values.get("per_device_train_batch_size")
    queries = queries or PRESETS[plan.shared.preset]["global_batch_size"]
    tokens = queries * (QUERY_TOKENS + values.get("train_group_size", 2) * document) * PADDING * BACKWARD
    encoding = entry.documents * document / machine.tokens
    per_query = 2.0 * entry.documents * shape.dimension / machine.flops
    mining = entry.train_queries * per_query if values.get("negatives") == "hard" else 0.0
    search = entry.test_queries * per_query
    return SetCost(max(tokens / machine.tokens, machine.least_step), encoding + mining + search, encoding + search)


def _measured(plan: ReproductionPlan, waiting: Sequence[Cell], jobs: int) -> dict[str, SetCost]:
    """Time a few steps on each data set that is here, where the model is too."""
    if local_model(plan.model) is None:
        return {}
    here = [cell for cell in waiting if is_here(cell.data)]
    status = Status(here, jobs)
    time_grid(status, plan.model)
    return {
        cell.data_name: SetCost(
            status.timed[cell.data].per_step, status.encoding[cell.data], status.timed[cell.data].overhead, True
        )
        for cell in here
    }


def _disk(plan: ReproductionPlan, name: str, shape: ModelShape, cells: int) -> dict[str, int]:
    """Bytes that a data set takes, downloads, cache and runs together."""
    entry = counted_set(plan, name)
    return {
        "download": 0 if is_here(plan.sources[name]) else entry.download_bytes or 0,
        "texts": entry.text_bytes,
        "embeddings": entry.embedding_bytes(shape.dimension),  # only the pretrained model's are kept
        "models": cells * shape.parameters * FLOAT_BYTES,
    }
