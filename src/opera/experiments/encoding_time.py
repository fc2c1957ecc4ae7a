"""How long the final models of a grid take to encode documents, and their size.

``GRID/models.json`` keeps what ``opera compare`` measured, so that a report needs no torch.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import numpy as np

from opera.core.files import replace_file
from opera.data import Mixture, load_all
from opera.experiments.grid import Grid
from opera.experiments.plan import PlannedRun
from opera.run_folder.folder import Run
from opera.run_folder.reading import RecordPart, read_model

MODELS_FILE = "models.json"
DOCUMENTS = 500
"""Most documents that are encoded to measure the time."""
WARM_UP = 16
"""Documents that are encoded before: the first texts load data and compile kernels."""
LEAST_SECONDS = 0.5
"""A fast model encodes the documents repeatedly, for at least this time; the median counts."""
SCALE = 10_000
"""The time is that of this number of documents."""


class EncodingRecord(RecordPart):
    """The cost of a final model.

    Attributes:
        seconds: seconds to encode 10,000 documents of the data, from a sample.
        documents: the number of documents in the sample.
        device: where they were encoded, such as ``cpu``.
        dimension: the number of values of an embedding; of a sparse model, most are 0.
        bytes_per_document: the size of a document's embedding in an index; 4 per value of a dense
            embedding, ``None`` in files of earlier versions.
        megabytes: the size of the weights' files.
    """

    seconds: float
    documents: int
    device: str
    dimension: int
    bytes_per_document: float | None = None
    megabytes: float


class ModelsRecord(RecordPart):
    """``models.json``: the cost of a final model by the path of its run in the grid."""

    encodings: dict[str, EncodingRecord]


def read_encodings(folder: Path) -> dict[Path, EncodingRecord]:
    """Return what ``opera compare`` measured in a grid, by run folder; empty for other folders.

    Raises:
        RunFolderError: if the file is damaged.
    """
    file = folder / MODELS_FILE
    encodings = read_model(file, ModelsRecord).encodings if file.is_file() else {}
    return {folder / path: encoding for path, encoding in encodings.items()}


def measure_models(grid: Grid) -> None:
    """Measure a final model of each data set and base model, unless it was measured before.

    A grid with a single base model needs no measurement.
    """
    runs: dict[tuple[str, ...], PlannedRun] = {}
    for planned in grid.runs:
        if planned.folder in grid.done and len(planned.names) > 1:
            runs.setdefault(planned.names, planned)
    encodings = read_encodings(grid.out)
    new = {run.folder: run for run in runs.values() if run.folder not in encodings}
    for folder, planned in new.items():
        data = load_all([planned.data, *planned.reading["also"]])
        encodings[folder] = measured(Run.open(folder), data)
    if new:
        paths = {str(path.relative_to(grid.out)): cost for path, cost in encodings.items()}
        text = ModelsRecord(encodings=paths).model_dump_json(indent=2) + "\n"
        file = grid.out / MODELS_FILE
        replace_file(file, partial(Path.write_text, data=text, encoding="utf-8"))


def measured(run: Run, data: Mixture) -> EncodingRecord:
    """Encode some documents with the final model of a run, and measure the time."""
    from opera.retrieval.device import pick_device  # imports torch
    from opera.retrieval.encoder import Encoder
    from opera.retrieval.models import load_model

    corpus = data.joined.corpus
    rows = np.linspace(0, len(corpus) - 1, min(DOCUMENTS, len(corpus))).astype(np.int64)
    model, precision = load_model(run.model_path, pick_device()), run.settings["precision"]
    encoder = Encoder(model, precision, passage_tokens=run.settings.get("passages"))
    passages = encoder.passages(data.joined)
    texts = corpus.texts(rows)
    if passages is not None:
        texts = passages.table.texts(passages.rows_of(rows))
    encoder.encode(texts[:WARM_UP], "document")
    times: list[float] = []
    while sum(times) < LEAST_SECONDS:
        started = time.perf_counter()
        embeddings = encoder.encode(texts, "document")
        times.append(time.perf_counter() - started)
    counts = encoder.kind.counts(embeddings)
    of_row = encoder.kind.facts(counts, counts).get("bytes per document", 4.0 * encoder.dimension)
    weights = sum(file.stat().st_size for file in run.model_path.rglob("*.safetensors"))
    return EncodingRecord(
        seconds=float(np.median(times)) * SCALE / len(rows),
        documents=len(rows),
        device=encoder.device,
        dimension=encoder.dimension,
        bytes_per_document=of_row * len(texts) / len(rows),
        megabytes=weights / 1e6,
    )
