"""``opera.export``: write a trained model in other forms, and measure each of them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from timeit import timeit
from typing import Any, Unpack

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

from opera.config.arguments import ReadingArguments, with_group
from opera.core.arguments import flag, texts, user_path
from opera.core.environment import require
from opera.core.errors import ModelError, RunFolderError, SettingError, nearest, raise_first
from opera.core.figures import PRIMARY
from opera.core.files import (
    check_folder,
    check_reads_stay,
    foreign_files,
    replace_folder,
)
from opera.core.terminal import counted, log, shown, shown_path
from opera.data import Mixture, check_stays_out, files_read, load_data
from opera.data.names import source_title, without_folders
from opera.deployment.onnx import (
    ONNX_FILE,
    ONNX_FOLDER,
    instruction_set,
    load_onnx,
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
from opera.identity import check_keeps
from opera.retrieval.encoder import Encoder, open_encoder
from opera.retrieval.evaluation import evaluate_encoder
from opera.retrieval.kinds import Dense, kind_of
from opera.retrieval.kinds.dense import is_static
from opera.retrieval.locate import (
    Model,
    checked_model,
    is_loaded,
    locate_model,
    model_title,
    run_corpus_text,
    run_data,
    run_of,
    run_passages,
    with_run_splits,
)
from opera.retrieval.lora import has_lora, merged
from opera.retrieval.models import load_model, parameter_count
from opera.retrieval.prompts import set_prompts, with_data_prompt
from opera.run_folder.folder import MODEL_FILES, ORIGIN_FILE
from opera.run_folder.summary import Change

PACKAGES: dict[Form, tuple[str, ...]] = {
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "int8": ("onnx", "onnxscript", "onnxruntime"),
    "static": ("model2vec", "skeletoken"),
}
STATIC_FOLDER = "static"
VERSIONS = ("opera-retrieval", "sentence-transformers", "transformers", "torch")


@with_group(ReadingArguments)
def export(
    model: Model,
    *,
    out: str | Path,
    forms: Sequence[Form],
    data: Any = None,
    measure: bool = True,
    overwrite: bool = False,
    keep_run: bool = False,
    **arguments: Unpack[ReadingArguments],
) -> Export:
    """Write a model in other forms, and compare each of them with the trained model.

    For ``onnx`` and ``int8``, ``out`` becomes a sentence-transformers folder; ``out/onnx`` holds
    the files of its ONNX backend. ``static`` writes a sentence-transformers folder ``out/static``.

    Args:
        model: an OPERA run, or anything else that :func:`opera.evaluate` takes.
        out: the folder to write.
        forms: ``onnx``; ``int8``, ONNX with 8-bit weights; ``static``, one vector per token and no
            transformer.
        data: the data whose test split measures the forms; the default is the run's data.
        measure: whether to measure the forms.
        overwrite: replace an export in ``out``.
        keep_run: also write the hashes of the training queries, which a run leaves in its model.
        arguments: how to read tables (``ReadingArguments``).

    Returns:
        The contents of ``out/export.json``.

    Raises:
        InputError: for invalid input, before anything is written.
        StorageError: if the folder cannot be written.

    Examples:
        >>> exported = opera.export("my-run", out="exported", forms=["static"])  # doctest: +SKIP
    """
    requested = _checked_forms(forms)
    model, folder = checked_model(model), user_path(out, "--out")
    _check_free(folder, flag(overwrite, "overwrite"))
    for form in requested:
        for package in PACKAGES[form]:
            require(package, f"--{form}")
    model_folder, name = Path(locate_model(model)), model_title(model)
    check_keeps(model_folder, flag(keep_run, "keep_run"))
    test_data = _test_data(model, data, arguments) if flag(measure, "measure") else None
    inputs = [] if is_loaded(model) else [model_folder]
    if test_data is not None:
        check_stays_out(folder, "--out", test_data)
        inputs += files_read(test_data)
    check_reads_stay(folder, inputs, [folder] if folder.is_dir() else [])
    trained = load_model(model, "cpu")
    _check_forms(trained, requested, name, model_folder)
    reference = None if test_data is None else Reference(model, test_data)
    if has_lora(trained):  # otherwise transformers would save the names of peft
        trained[0].auto_model.__dict__.pop("_weight_conversions", None)
    with merged(trained) if has_lora(trained) else nullcontext():
        exported = replace_folder(
            folder,
            lambda new: _write(trained, model, reference, name, requested, keep_run, new),
        )
    return replace(exported, folder=folder)


def _checked_forms(forms: Sequence[Form]) -> tuple[Form, ...]:
    requested = texts(forms, "forms")
    if unknown := [form for form in requested if form not in FORMS]:
        known, near = ", ".join(FORMS), nearest(unknown[0], FORMS)
        raise SettingError(f"forms: must be one or more of {known}, got {shown(unknown[0])}{near}")
    if not requested:
        raise SettingError("nothing to export: pass --onnx, --int8 or --static, or several of them")
    return tuple(form for form in FORMS if form in requested)


def _check_free(folder: Path, overwrite: bool) -> None:
    """Reject a folder that is not empty, unless it holds an export that may be replaced."""
    check_folder(folder, "--out")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    option = f"--out {shown_path(folder)}"
    raise_first(
        RunFolderError,
        (
            not (folder / EXPORT_FILE).is_file(),
            "is not empty and holds no export; pass an empty or new folder",
        ),
        (
            not overwrite,
            "holds an export; pass --overwrite to replace it, or pass another folder",
        ),
        subject=f"{option}: ",
    )
    for file in foreign_files(folder, MODEL_FILES):
        raise RunFolderError(
            f"{option}: --overwrite would delete {shown_path(file)}, which OPERA did not write; "
            "move it away, or pass another folder"
        )


def _test_data(model: Model, data: Any, reading: ReadingArguments) -> Mixture:
    """Load the data to measure on, by default the run's data, with the run's splits."""
    advice = "pass --data DATA, or --no-measure"
    if data is not None:
        loaded = Mixture.of(load_data(data, **reading))
    elif (run := run_of(model)) is not None:
        loaded = run_data(run.path, advice)
    elif isinstance(locate_model(model), str) and not is_loaded(model):
        raise ModelError(f"{model}: no such run or folder; for a model on the hub {advice}")
    else:
        raise SettingError(
            f"{shown(model_title(model))} is not a run, so OPERA does not know its data; {advice}"
        )
    prepared = with_run_splits(loaded, model)
    prepared.joined.judged_qrels(SPLIT)
    return prepared


def _check_forms(
    model: SentenceTransformer, forms: Sequence[Form], name: str, folder: Path
) -> None:
    """Reject forms that do not exist for this kind of model.

    Raises:
        ModelError: with the form and the model.
    """
    kinds, kind = [type(module).__name__ for module in model], kind_of(model)
    if kind is not Dense:
        raise ModelError(
            f"{name} is a {kind.title}, which OPERA does not export; serve {folder} with "
            f"{kind.model_class.__name__}, whose backend='openvino' exports it in an environment "
            "of its own with sentence-transformers[openvino]"
        )
    if is_static(model) or not hasattr(model[0], "auto_model"):
        reason = (
            "is a static model, which looks vectors up and runs no transformer"
            if is_static(model)
            else f"starts with {kinds[0]}, not with a transformer"
        )
        raise ModelError(f"{name} {reason}: nothing to export; serve {folder} as it is")
    more = [kind for kind in kinds[1:] if kind not in ("Pooling", "Normalize")]
    if "static" in forms and more:
        raise ModelError(
            f"--static: {name} has a {more[0]} after its pooling, which model2vec would drop"
        )


def _write(
    model: SentenceTransformer,
    source: Model,
    reference: Reference | None,
    name: str,
    forms: Sequence[Form],
    keep_run: bool,
    folder: Path,
) -> Export:
    """Write the forms into an empty folder, load them from there, and measure them."""
    model_folder, run = Path(locate_model(source)), run_of(source)
    files = _write_forms(model, forms, folder)
    keywords = None if run is None else run.record.keywords
    packages = dict.fromkeys(package for form in forms for package in PACKAGES[form])
    exported = Export(
        folder=folder,
        model=name,
        data=None if reference is None else _title_without_folders(reference.data),
        queries=0 if reference is None else len(reference.evaluation.query_ids),
        megabytes=megabytes(model_folder, "*.safetensors")
        or round(4e-6 * parameter_count(model), 2),
        processor=f"{instruction_set()}, {counted(torch.get_num_threads(), 'thread')}",
        forms=tuple(_measured(form, folder, file, reference) for form, file in files.items()),
        passages=run_passages(source),
        keyword_weights={} if keywords is None else keywords.weights,
        versions={package: version(package) for package in (*VERSIONS, *packages)},
    )
    if "onnx" not in forms:  # the 8-bit form was made from it
        for file in folder.glob(f"{ONNX_FOLDER}/{ONNX_FILE}*"):
            file.unlink()
    exported.write(folder)
    for subfolder, names in ((folder, ("onnx", "int8")), (folder / STATIC_FOLDER, ("static",))):
        if described := tuple(form for form in exported.forms if form.form in names):
            write_card(model_folder, name, subfolder, replace(exported, forms=described))
            if keep_run:
                shutil.copyfile(model_folder / ORIGIN_FILE, subfolder / ORIGIN_FILE)
    return exported


def _title_without_folders(data: Mixture) -> str:
    return " + ".join(source_title(without_folders(data_set.source)) for data_set in data.data_sets)


def _write_forms(
    model: SentenceTransformer, forms: Sequence[Form], folder: Path
) -> dict[Form, Path]:
    """Write the forms, and return the file or folder that holds each of them."""
    kind, onnx = instruction_set(), folder / ONNX_FOLDER / ONNX_FILE
    paths: dict[Form, Path] = {
        "onnx": onnx,
        "int8": onnx.with_name(f"model_qint8_{kind}.onnx"),
        "static": folder / STATIC_FOLDER,
    }
    if forms != ("static",):
        log.info("exporting to ONNX")
        save_portable(model, folder)
        onnx.parent.mkdir()
        write_onnx(model, onnx)
    if "int8" in forms:
        write_int8(onnx, paths["int8"], reduced=kind == "avx2")
    if "static" in forms:
        log.info("distilling a static model")
        write_static(model, paths["static"])
    return {form: paths[form] for form in forms}


def _measured(form: Form, folder: Path, file: Path, reference: Reference | None) -> ExportedForm:
    """Measure a form after loading it as a user does."""
    static = form == "static"
    size = megabytes(file, "*.safetensors") if static else megabytes(file.parent, f"{file.name}*")
    figures = None
    if reference is not None:
        log.info("measuring the %s form on %s", form, SPLIT)
        figures = reference.figures(load_model(file, "cpu") if static else load_onnx(folder, file))
    return ExportedForm(form, str(file.relative_to(folder)), size, figures)


TIMED_DOCUMENTS = 64
ROUNDS = 5
SPLIT = "test"


class Reference:
    """The trained model and its results, with which every form is compared.

    Attributes:
        data: the data set, with the run's splits.
        text: which text of a document the model reads.
        passages: the most tokens of a passage; ``None`` if documents stay whole.
        prompts: the data's query prompt, if the data have one.
        evaluation: on the test split, in fp32, as by :func:`opera.evaluate`.
        encoder: the model on the CPU.
        sample: documents for measuring speed.
    """

    def __init__(self, model: Model, data: Mixture) -> None:
        self.data, self.text = data, run_corpus_text(model)
        self.prompts = with_data_prompt({}, data.joined, model)
        encoder = open_encoder(model, "fp32", **self.prompts)
        self.passages = encoder.passage_tokens
        self.evaluation = evaluate_encoder(encoder, data, SPLIT, [PRIMARY], self.text)
        corpus = data.joined.corpus
        size = len(corpus)
        rows = np.linspace(0, size - 1, min(TIMED_DOCUMENTS, size)).astype(np.int64)
        self.sample = corpus.texts(rows, self.text)
        self.encoder = Encoder(load_model(model, "cpu"), "fp32", use_cache=False)

    def figures(self, exported: SentenceTransformer) -> Figures:
        """Measure a form; a static model has no prompts."""
        if not is_static(exported):
            set_prompts(exported, self.prompts.get("query_prompt"), None)
        encoder = Encoder(exported, "fp32", use_cache=False, passage_tokens=self.passages)
        evaluation = evaluate_encoder(encoder, self.data, SPLIT, [PRIMARY], self.text)
        ratios = [self._seconds(self.encoder) / self._seconds(encoder) for _ in range(ROUNDS + 1)]
        trained, form = (result.per_query[PRIMARY] for result in (self.evaluation, evaluation))
        return Figures(
            before=float(trained.mean()),
            after=float(form.mean()),
            **vars(Change.of(form - trained)),
            speed=float(np.median(ratios[1:])),  # without the first, slow round
        )

    def _seconds(self, encoder: Encoder) -> float:
        return timeit(lambda: encoder.encode(self.sample, "document"), number=1)


def megabytes(folder: Path, pattern: str) -> float:
    """Size of the files that match a pattern, in 10⁶ bytes."""
    return round(sum(file.stat().st_size for file in folder.rglob(pattern)) / 1e6, 2)


DIMENSIONS = 256
"""Dimensions of the distilled vectors after a principal component analysis, at most."""
POOLING = {"mean": "mean", "cls": "first", "lasttoken": "last"}
"""Names of pooling in sentence-transformers and in model2vec."""


def write_static(model: SentenceTransformer, folder: Path) -> None:
    """Distil a static model into a sentence-transformers folder.

    model2vec embeds each token of the vocabulary separately, and reduces the dimension of the
    vectors. The static model has no prompts: its vector of a text is a mean over tokens, so a
    prompt would only shift all vectors.

    Raises:
        ModelError: if model2vec cannot distil this model.
    """
    pooling = next(
        (module.pooling_mode for module in model if type(module).__name__ == "Pooling"), "mean"
    )
    if pooling not in POOLING:
        raise ModelError(f"--static: model2vec does not distil models with {pooling} pooling")
    dimension = int(model[0].auto_model.config.hidden_size)
    with tempfile.TemporaryDirectory() as source:
        model[0].save(source)
        embedding = StaticEmbedding.from_distillation(
            source, device="cpu", pca_dims=min(DIMENSIONS, dimension), pooling=POOLING[pooling]
        )
    static = SentenceTransformer(modules=[embedding, Normalize()], device="cpu")
    static.model_card_data.local_files_only = True  # saving the model must not query the hub
    static.save_pretrained(str(folder), create_model_card=False)
