"""Run and grid folders: whatever their files hold, they are read, or left out and named, or refused."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import opera
from fuzzing import Files, few, one_spoilt, only_refusals, put, spoilt, spoilt_values, to_json, workplace
from opera.core.errors import TrainingError
from opera.data import RetrievalData, load_data
from opera.experiments.analysis import analyse_runs
from opera.experiments.analysis.verdict import verdict
from opera.experiments.report.write import render
from opera.retrieval.locate import locate_model, run_corpus_text, trained_on_dev, with_run_splits
from opera.runs.folder import Run, checkpoint_folders
from opera.runs.housekeeping import check_out_folder, last_complete_checkpoint, refuse_other_settings
from opera.runs.reading import read_arrays
from opera.runs.record import grid_in
from opera.training.checkpoint import damage, newest_checkpoint, seal
from small_runs import SMALL
from tiny_world import write_beir

READ = ("run.json", "measures.json", "per_query.parquet", "pairs.parquet", "trace.parquet", "draws.parquet")
SEALED = ("sampler.npz", "trainer_state.json", "trace.parquet", "whole.json")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> RetrievalData:
    return load_data(write_beir(tmp_path_factory.mktemp("fuzz") / "data", n_docs=30, n_train=12, n_test=6))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, data: RetrievalData, static_model: Path) -> Path:
    """A finished run with everything in it: two groups of scores, a guard, evaluations, checkpoints."""
    out = tmp_path_factory.mktemp("fuzz-run") / "grid" / "run"
    settings = {**SMALL, "per_device_train_batch_size": 4, "eval_steps": 4}
    opera.adapt(data, model=static_model, out=out, method="dp", **settings)
    for folder in (out / "checkpoints").iterdir():  # the weights are torch's and safetensors' to read
        for big in [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > 50_000]:
            big.unlink()
        seal(folder)
    return out


def files_of(run: Path, names: tuple[str, ...], folder: str = "") -> st.SearchStrategy[Files]:
    """Spoil one or two of these files."""
    one = st.one_of(one_spoilt({f"{folder}{name}": (run / folder / name).read_bytes()}) for name in names)
    return one | st.tuples(one, one).map(lambda both: {**both[0], **both[1]})


def copied(run: Path, home: Path, spoiled: Files) -> Path:
    """Copy a run, without its model, and spoil the copy."""
    copy = home / "grid" / "run"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("model", "checkpoints"))
    put(copy, spoiled)
    return copy


def test_reports(run: Path) -> None:
    """Of a spoilt run alone, and of one beside a good one, which is always reported."""
    named = str(run)

    @few(40)
    @given(files_of(run, READ), st.booleans())
    def check(spoiled: Files, alone: bool) -> None:
        with workplace() as home:
            copy = copied(run, home, spoiled)
            if not alone:
                shutil.copytree(run, home / "grid" / "good", ignore=shutil.ignore_patterns("model", "checkpoints"))
                record = json.loads((home / "grid" / "good" / "run.json").read_text())
                text = json.dumps({**record, "seed": 7, "identity": {**record["identity"], "seed": 7}})
                (home / "grid" / "good" / "run.json").write_text(text)
            with only_refusals() as refusals:
                comparison = analyse_runs(copy if alone else home / "grid")
                render(comparison)
                json.dumps(comparison.as_dict(), allow_nan=False)
                verdict(comparison)
                for reason in comparison.left_out.get("damaged", []):
                    assert str(copy) in reason
            assert all(str(home) in message and named not in message for message in refusals)

    check()


def test_a_run_as_a_model(run: Path, data: RetrievalData) -> None:
    @given(files_of(run, ("run.json",)))
    def check(spoiled: Files) -> None:
        with workplace() as home, only_refusals():
            copy = copied(run, home, spoiled)
            (copy / "model").mkdir()
            (copy / "model" / "modules.json").write_text("[]")
            locate_model(copy)
            with_run_splits(data, copy)
            trained_on_dev(data, copy)
            run_corpus_text(copy)

    check()


def test_the_door_of_a_resumed_run(run: Path) -> None:
    identity = Run.open(run).record.identity

    @given(files_of(run, ("run.json",)))
    def check(spoiled: Files) -> None:
        with workplace() as home, only_refusals():
            copy = copied(run, home, spoiled)
            check_out_folder(copy, resume=True, overwrite=False)
            assert Run.open(copy).finished in (True, False)

    @given(spoilt_values(identity))
    def check_identity(spoiled: object) -> None:
        with workplace() as home, only_refusals():
            copy = copied(run, home, {})
            record = json.loads((run / "run.json").read_text())
            (copy / "run.json").write_bytes(to_json({**record, "identity": spoiled}))
            try:
                refuse_other_settings(copy, identity)
            except opera.RunFolderError as error:  # the one message of several lines: a difference on each
                raise opera.RunFolderError(str(error).replace("\n", "; ")[:500]) from None

    check()
    check_identity()


def test_grid_files(run: Path) -> None:
    record = {"model": "model", "settings": {"range": [1, 50], "lr": 0.1}, "cells": ["run", "a/b/c"]}

    @given(one_spoilt({"grid.json": to_json(record)}))
    def check(files: Files) -> None:
        with workplace(files) as home, only_refusals():
            found = grid_in(home)
            for cell in found.cells if found else ():
                assert (home / cell).resolve().is_relative_to(home.resolve())

    check()


def test_checkpoints(run: Path) -> None:
    """A spoilt checkpoint gives way to the one before; one that was sealed again is read, or refused."""

    @given(files_of(run, SEALED, "checkpoints/checkpoint-8/"), st.booleans())
    def check(spoiled: Files, sealed_again: bool) -> None:
        with workplace() as home:
            copy = home / "run"
            shutil.copytree(run / "checkpoints", copy / "checkpoints")
            put(copy, spoiled)
            last = copy / "checkpoints" / "checkpoint-8"
            if sealed_again:
                seal(last)
            assert last_complete_checkpoint(copy) == 8
            same = all((copy / name).read_bytes() == (run / name).read_bytes() for name in spoiled)
            assert (damage(last) == "") >= (same or sealed_again)
            found = newest_checkpoint(copy / "checkpoints")
            assert found is not None
            with only_refusals():
                read_arrays(found / "sampler.npz")
                Run(found).trace()
            assert [path.name for path in checkpoint_folders(copy / "checkpoints").values()][-1] == found.name

    check()


def test_states_of_the_sampler(run: Path, data: RetrievalData, static_model: Path, tmp_path: Path) -> None:
    """What a checkpoint's sampler.npz holds, in names and numbers: it is taken, or refused."""
    from opera.config.recipe import make_recipe
    from opera.retrieval.device import join_processes
    from opera.training.checkpoint import loading, read_state
    from opera.training.train import make_sampler
    from opera.training_set.build import build_training_set
    from opera.training_set.prepare import load_and_check

    join_processes()
    settings = {**SMALL, "method": "dp", "per_device_train_batch_size": 4, "eval_steps": 4}
    prepared = load_and_check(data, str(static_model), make_recipe(settings))
    training_set = build_training_set(prepared)
    whole = run / "checkpoints" / "checkpoint-8" / "sampler.npz"

    @given(spoilt(whole.read_bytes()))
    def check(content: bytes) -> None:
        with workplace({"sampler.npz": content}) as home, only_refusals():
            method = prepared.recipe.make_method(training_set.pairs, training_set.scores, 1)
            sampler = make_sampler(training_set, method, prepared.settings)
            with suppress(TrainingError), loading(home):  # of other training pairs
                sampler.load_state_dict(read_state(home / "sampler.npz"))

    check()
