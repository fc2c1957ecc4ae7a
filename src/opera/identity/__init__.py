"""Which model, which run, which data: what is cached, resumed, reused or compared asks this room.

A data set answers for itself: :attr:`opera.data.RetrievalData.fingerprint` is a hash of its
contents. :mod:`opera.identity.model` says which model it is. This module says which run it is, and
which run made a model: a run is its settings and the contents of everything that it reads. It
leaves a small file in its model's folder, without texts, names or paths. So a copy of the folder is
recognised too.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PlainValidator

from opera.config.recipe import Recipe
from opera.config.training import FILES, TrainSettings
from opera.core.errors import RunFolderError, SettingError
from opera.core.files import write_arrays
from opera.core.terminal import shortened, shown, shown_path
from opera.data import Mixture
from opera.data.splits import ExpectedDocuments
from opera.data.texts import CorpusText
from opera.run_folder.cutoffs import CutoffRecord
from opera.run_folder.folder import ORIGIN_FILE
from opera.run_folder.reading import RecordPart, file_errors, read_arrays
from opera.run_folder.record import RunRecord


def run_identity(
    recipe: Recipe, data: Mixture, model_fingerprint: str, processes: int = 1
) -> dict[str, Any]:
    """Return the facts that must be equal to resume a run, or to reuse a finished one.

    Args:
        recipe: the user's settings.
        data: the data sets with all splits, decisions and teacher scores.
        model_fingerprint: the base model's, with its prompts and lengths, or that of its vectors.
        processes: the number of processes that train together.
    """
    settings, teacher = recipe.train, data.joined.teacher
    identity = {
        **recipe.identity(),
        "processes": processes,
        "data_fingerprint": data.joined.fingerprint,
        "model_fingerprint": model_fingerprint,
    }
    if settings.decisions:
        identity["decided_pairs"] = _decided_pairs(data)
    if teacher is not None and settings.teacher_scores is not None:
        identity["teacher_fingerprint"] = teacher.fingerprint
    return identity


def _decided_pairs(data: Mixture) -> int:
    """A checksum of the training pairs and of the decisions about them."""
    number = data.joined.training_split().pairs().fingerprint
    for decided in data.decided:
        number = zlib.crc32(decided.confirmed.tobytes(), number)
        number = zlib.crc32(str(decided.removed_excess).encode(), number)
    return number


def refuse_other_run(
    option: str, recorded: Mapping[str, Any], identity: Mapping[str, Any], advice: str
) -> None:
    """Refuse a run that had another model, other data or other settings.

    Args:
        option: the option and folder that start the message.
        recorded: the identity of the run.
        identity: the identity of this call.
        advice: how to go on.

    Raises:
        RunFolderError: with every difference.
    """
    names = {*recorded, *identity}.difference(FILES)
    differences = [
        f"{shortened(name)}: the run has {shown(recorded.get(name))}, this call "
        f"{shown(identity.get(name))}"
        for name in sorted(names, key=lambda name: ("fingerprint" in name, name))
        if recorded.get(name) != identity.get(name)
    ]
    if differences:
        raise RunFolderError(f"{option}: was started differently; {advice}:", *differences)


class Origin(RecordPart):
    """The facts about a run that its model needs later.

    Attributes:
        run: SHA-256 of the run's identity, in hex.
        data: fingerprint of the run's data, then that of each of several data sets.
        seed: the run's seed.
        needs_dev: whether the run has a dev split.
        expected_documents: the setting, which decides how splits are drawn.
        relevant_grade: the lowest relevant grade.
        corpus_text: which text of a document the model reads.
        passages: the most tokens of a passage; ``None`` if documents stay whole.
        cutoffs: the scores below which the model should not answer.
        keyword_weights: the weight of keyword search by the fingerprint of the data set; empty
            without keyword search.
        queries: hashes of the queries that the model and its base model were trained on.
    """

    run: str
    data: tuple[str, ...]
    seed: int
    needs_dev: bool
    expected_documents: ExpectedDocuments | None
    relevant_grade: int
    corpus_text: CorpusText
    passages: int | None = None
    cutoffs: CutoffRecord | None
    keyword_weights: dict[str, float]
    queries: Annotated[
        NDArray[np.uint64],
        PlainValidator(lambda hashes: np.asarray(hashes, dtype=np.uint64).reshape(-1)),
    ] = Field(exclude=True)

    @classmethod
    def of(cls, record: RunRecord, settings: TrainSettings, queries: NDArray[np.uint64]) -> Origin:
        """Return the origin of the model of a finished run."""
        identity = json.dumps(record.identity, sort_keys=True).encode()
        data_sets = [record.data, *(record.sets or ())]
        weights = {} if record.keywords is None else record.keywords.weights
        of_single = dict.fromkeys(weights, record.data.fingerprint)
        fingerprints = {
            data_set.name: data_set.fingerprint for data_set in record.sets or ()
        } or of_single
        facts = {
            name: getattr(settings, name) for name in cls.model_fields if hasattr(settings, name)
        }
        return cls(
            run=hashlib.sha256(identity).hexdigest(),
            data=tuple(data_set.fingerprint for data_set in data_sets),
            cutoffs=record.cutoffs,
            keyword_weights={fingerprints[name]: weights[name] for name in weights},
            queries=queries,
            **facts,
        )

    @classmethod
    def read(cls, folder: Path) -> Origin:
        """Read the file in a model's folder.

        Raises:
            RunFolderError: if it is missing or damaged.
        """
        path = folder / ORIGIN_FILE
        arrays = read_arrays(path)
        with file_errors(path):
            return cls.model_validate(
                {**json.loads(str(arrays["record"])), "queries": arrays["queries"]}
            )

    def write(self, folder: Path) -> None:
        """Write the file into a model's folder."""
        record = np.array(self.model_dump_json())
        write_arrays(folder / ORIGIN_FILE, {"record": record, "queries": self.queries})


def check_keeps(folder: Path, keep_run: bool) -> None:
    """Refuse ``keep_run`` for a model that no run made.

    Raises:
        SettingError: with the folder.
    """
    if keep_run and not (folder / ORIGIN_FILE).is_file():
        raise SettingError(
            f"--keep-run: {shown_path(folder)} has no {ORIGIN_FILE}, because no run made it; "
            "remove the option"
        )
