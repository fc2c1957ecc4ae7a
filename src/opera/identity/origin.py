"""Which run made this model: a small file in the model's folder, without texts, names or paths.

So a copy of the folder is recognised too.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PlainValidator

from opera.config.training import TrainSettings
from opera.core.errors import SettingError
from opera.core.files import write_arrays
from opera.core.terminal import place
from opera.data.splits import ExpectedDocuments
from opera.data.texts import CorpusText
from opera.run_folder.cutoffs import CutoffRecord
from opera.run_folder.folder import ORIGIN_FILE
from opera.run_folder.reading import RecordPart, file_errors, read_arrays
from opera.run_folder.record import RunRecord


def _hashes(values: Any) -> NDArray[np.uint64]:
    return np.asarray(values, dtype=np.uint64).reshape(-1)


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
        cutoffs: the scores below which the model should not answer.
        queries: hashes of the queries that the model and its base model were trained on.
    """

    run: str
    data: tuple[str, ...]
    seed: int
    needs_dev: bool
    expected_documents: ExpectedDocuments | None
    relevant_grade: int
    corpus_text: CorpusText
    cutoffs: CutoffRecord | None
    queries: Annotated[NDArray[np.uint64], PlainValidator(_hashes)] = Field(exclude=True)

    @classmethod
    def of(cls, record: RunRecord, settings: TrainSettings, queries: NDArray[np.uint64]) -> Origin:
        """Return the origin of the model of a finished run."""
        identity = json.dumps(record.identity, sort_keys=True).encode()
        data_sets = [record.data, *(record.sets or ())]
        facts = {
            name: getattr(settings, name) for name in cls.model_fields if hasattr(settings, name)
        }
        return cls(
            run=hashlib.sha256(identity).hexdigest(),
            data=tuple(data_set.fingerprint for data_set in data_sets),
            cutoffs=record.cutoffs,
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
            f"--keep-run: {place(folder)} has no {ORIGIN_FILE}, because no run made it; remove the "
            "option"
        )
