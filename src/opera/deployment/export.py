"""``opera.export``: write a trained model in other forms, and measure each of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from opera.config.trainer import PRIMARY
from opera.core.arguments import flag, texts
from opera.core.errors import ModelError, RunFolderError, SettingError, nearest
from opera.core.extras import require
from opera.core.files import (
    check_folder,
    check_reads_stay,
    foreign_files,
    replace_folder,
)
from opera.core.intervals import DIFFERENCE, mean_interval
from opera.core.paths import expand_user, user_path
from opera.core.terminal import counted, place, shown
from opera.data import RetrievalData, check_stays_out, files_read, load_data
from opera.data.texts import CorpusText
from opera.deployment.onnx import (
    ONNX_FILE,
    ONNX_FOLDER,
    load_onnx,
    processor_kind,
    save_portable,
    write_int8,
    write_onnx,
)
from opera.deployment.record import (
    EXPORT_FILE,
    FORMS,
    Export,
    ExportedForm,
    Figures,
    Form,
    write_card,
)
from opera.retrieval.encoder import Encoder, open_encoder
from opera.retrieval.evaluation import Evaluation, evaluate_encoder
from opera.retrieval.locate import locate_model, run_corpus_text, run_data, with_run_splits
from opera.retrieval.models import is_static, load_model
from opera.retrieval.prompts import set_prompts, with_data_prompt
from opera.runs.folder import MODEL_FILES, holds_run

log = logging.getLogger("opera")

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
VERSIONS = ("opera-retrieval", "sentence-transformers", "transformers", "torch", *PACKAGES)


def export(
    model: str | Path,
    *,
    out: str | Path,
    forms: Sequence[Form],
    data: str | Path | RetrievalData | None = None,
    measure: bool = True,
    overwrite: bool = False,
) -> Export:
    """Write a model as ONNX files, and compare each of them with the trained model.

    ``out`` becomes a sentence-transformers folder; ``out/onnx`` holds the files of its ONNX
    backend.

    Args:
        model: an OPERA run, or anything else that :func:`opera.evaluate` takes.
        out: the folder to write.
        forms: ``onnx``, or ``int8``, ONNX with 8-bit weights.
        data: the data whose test split measures the forms; the default is the run's data.
        measure: whether to measure the forms.
        overwrite: replace an export in ``out``.

    Returns:
        The contents of ``out/export.json``.

    Raises:
        InputError: for invalid input, before anything is written.
        StorageError: if the folder cannot be written.
    """
    requested = _checked_forms(forms)
    name, folder = expand_user(model, "model"), user_path(out, "--out")
    _check_free(folder, flag(overwrite, "overwrite"))
    for package in PACKAGES:
        require(package, f"--{requested[0]}")
    model_folder = Path(locate_model(name))
    test_data = _test_data(name, data) if flag(measure, "measure") else None
    inputs = [model_folder]
    if test_data is not None:
        check_stays_out(folder, "--out", test_data)
        inputs += files_read(test_data)
    check_reads_stay(folder, "--out", inputs, [folder] if folder.is_dir() else [])
    trained = load_model(name, "cpu")
    _check_transformer(trained, name, model_folder)
    reference = None if test_data is None else Reference.of(name, test_data)
    exported = replace_folder(
        folder, lambda new: _write(trained, model_folder, reference, name, requested, new)
    )
    return replace(exported, folder=folder)


def _checked_forms(forms: Sequence[Form]) -> tuple[Form, ...]:
    requested = texts(forms, "forms")
    if unknown := [form for form in requested if form not in FORMS]:
        known, near = ", ".join(FORMS), nearest(unknown[0], FORMS)
        raise SettingError(f"forms: must be one or more of {known}, got {shown(unknown[0])}{near}")
    if not requested:
        raise SettingError("nothing to export: pass --onnx or --int8, or both")
    return tuple(form for form in FORMS if form in requested)


def _check_free(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that is not empty, unless it holds an export that may be replaced."""
    check_folder(folder, "--out")
    option = f"--out {place(folder)}"
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not (folder / EXPORT_FILE).is_file():
        raise RunFolderError(
            f"{option}: is not empty and holds no export; pass an empty or new folder"
        )
    if not overwrite:
        raise RunFolderError(
            f"{option}: holds an export; pass --overwrite to replace it, or pass another folder"
        )
    for file in foreign_files(folder, MODEL_FILES):
        raise RunFolderError(
            f"{option}: --overwrite would delete {place(file)}, which OPERA did not write; move it "
            "away, or pass another folder"
        )


def _test_data(model: str, data: str | Path | RetrievalData | None) -> RetrievalData:
    """Load the data to measure on, by default the run's data, with the run's splits."""
    advice = "pass --data DATA, or --no-measure"
    if data is not None:
        loaded = load_data(data)
    elif isinstance(locate_model(model), str):
        raise ModelError(f"{model}: no such run or folder; for a model on the hub {advice}")
    elif not holds_run(Path(model)):
        raise SettingError(f"{model}: is not a run, so its data are not known; {advice}")
    else:
        loaded = run_data(model, advice)
    prepared = with_run_splits(loaded, model)
    prepared.judged_qrels(SPLIT)
    return prepared


def _check_transformer(model: SentenceTransformer, name: str, folder: Path) -> None:
    """Refuse a model without a transformer.

    Raises:
        ModelError: with the model.
    """
    if not hasattr(model[0], "auto_model"):
        reason = (
            "is a static model, which looks vectors up and runs no transformer"
            if is_static(model)
            else f"starts with {type(model[0]).__name__}, not with a transformer"
        )
        raise ModelError(f"{name} {reason}: nothing to export; serve {folder} as it is")


def _write(
    model: SentenceTransformer,
    model_folder: Path,
    reference: Reference | None,
    name: str,
    forms: Sequence[Form],
    folder: Path,
) -> Export:
    """Write the forms into an empty folder, load them from there, and measure them."""
    kind, onnx = processor_kind(), folder / ONNX_FOLDER / ONNX_FILE
    log.info("exporting to ONNX")
    save_portable(model, folder)
    onnx.parent.mkdir()
    write_onnx(model, onnx)
    exported_forms = []
    for form in forms:
        file = onnx
        if form == "int8":
            file = onnx.with_name(f"model_qint8_{kind}.onnx")
            write_int8(onnx, file, reduced=kind == "avx2")
        if reference is not None:
            log.info("measuring the %s form on %s", form, SPLIT)
        exported_forms.append(_measured(form, folder, file, reference))
    if "onnx" not in forms:
        for file in folder.glob(f"{ONNX_FOLDER}/{ONNX_FILE}*"):
            file.unlink()
    exported = Export(
        folder=folder,
        model=name,
        data=None if reference is None else reference.data.source,
        queries=0 if reference is None else len(reference.evaluation.query_ids),
        megabytes=megabytes(model_folder, "*.safetensors"),
        processor=f"{kind}, {counted(torch.get_num_threads(), 'thread')}",
        forms=tuple(exported_forms),
        versions={package: version(package) for package in VERSIONS},
    )
    exported.write(folder)
    write_card(model_folder, name, folder, exported)
    return exported


def _measured(form: Form, folder: Path, file: Path, reference: Reference | None) -> ExportedForm:
    """Measure a form after loading it as a user does."""
    figures = None if reference is None else reference.figures(load_onnx(folder, file))
    size = megabytes(file.parent, f"{file.name}*")
    return ExportedForm(form, str(file.relative_to(folder)), size, figures)


TIMED_DOCUMENTS = 64
ROUNDS = 5
SPLIT = "test"


@dataclass(frozen=True)
class Reference:
    """The trained model and its results, with which every form is compared.

    Attributes:
        data: the data set, with the run's splits.
        text: which text of a document the model reads.
        evaluation: on the test split, in fp32.
        encoder: the model on the CPU.
        sample: documents for measuring speed.
        query_prompt: the data's query prompt; ``None`` for the model's.
    """

    data: RetrievalData
    text: CorpusText
    evaluation: Evaluation
    encoder: Encoder
    sample: list[str]
    query_prompt: str | None

    @classmethod
    def of(cls, model: str, data: RetrievalData) -> Reference:
        """Measure a model, as :func:`opera.evaluate` does, in fp32."""
        prompts, text = with_data_prompt({}, data, model), run_corpus_text(model)
        encoder = open_encoder(model, "fp32", **prompts)
        evaluation = evaluate_encoder(encoder, data, SPLIT, [PRIMARY], text)
        size = len(data.corpus)
        rows = np.linspace(0, size - 1, min(TIMED_DOCUMENTS, size)).astype(np.int64)
        sample = data.corpus.texts(rows, text)
        on_cpu, prompt = _encoder(load_model(model, "cpu")), prompts.get("query_prompt")
        return cls(data, text, evaluation, on_cpu, sample, prompt)

    def figures(self, exported: SentenceTransformer) -> Figures:
        """Measure a form."""
        set_prompts(exported, self.query_prompt, None)
        encoder = _encoder(exported)
        evaluation = evaluate_encoder(encoder, self.data, SPLIT, [PRIMARY], self.text)
        trained, form = (result.per_query[PRIMARY] for result in (self.evaluation, evaluation))
        low, high = mean_interval(form - trained, bounds=DIFFERENCE)
        return Figures(
            before=float(trained.mean()),
            after=float(form.mean()),
            difference=float((form - trained).mean()),
            low=low,
            high=high,
            speed=self._speed(encoder),
        )

    def _speed(self, encoder: Encoder) -> float:
        """Return the form's speed relative to the trained model, without the first, slow round."""
        ratios = []
        for _ in range(ROUNDS + 1):
            seconds = []
            for timed in (self.encoder, encoder):
                start = time.perf_counter()
                timed.encode(self.sample, "document")
                seconds.append(time.perf_counter() - start)
            ratios.append(seconds[0] / seconds[1])
        return float(np.median(ratios[1:]))


def megabytes(folder: Path, pattern: str) -> float:
    """Size of the files that match a pattern, in 10⁶ bytes."""
    return round(sum(file.stat().st_size for file in folder.rglob(pattern)) / 1e6, 2)


def _encoder(model: SentenceTransformer) -> Encoder:
    return Encoder(model, "fp32", use_cache=False)
