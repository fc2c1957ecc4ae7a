"""``opera.export``: a trained model in other forms, each measured again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import cast

import torch
from sentence_transformers import SentenceTransformer

from opera.core.arguments import flag, texts
from opera.core.errors import InputError, ModelError, RunFolderError, SettingError, nearest
from opera.core.extras import require
from opera.core.files import (
    check_folder,
    check_reads_stay,
    list_written,
    replace_folder,
    written_files,
)
from opera.core.paths import expand_user, user_path
from opera.core.terminal import place, shown
from opera.data import RetrievalData, check_stays_out, files_read, load_all, load_data
from opera.data.stored import load_stored
from opera.deployment.measure import SPLIT, Reference, megabytes
from opera.deployment.onnx import (
    ONNX_FILE,
    ONNX_FOLDER,
    int8_name,
    load_onnx,
    processor_kind,
    save_portable,
    write_int8,
    write_onnx,
)
from opera.deployment.push import checked_languages, checked_name
from opera.deployment.push import push as push_folder
from opera.deployment.record import EXPORT_FILE, FORMS, Export, ExportedForm, Form, write_card
from opera.deployment.static import write_static
from opera.retrieval.locate import locate_model, with_run_splits
from opera.retrieval.models import is_static, load_model
from opera.runs.folder import Run, holds_run

log = logging.getLogger("opera")

PACKAGES: dict[Form, tuple[str, ...]] = {
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "int8": ("onnx", "onnxscript", "onnxruntime"),
    "static": ("model2vec", "skeletoken"),
}
STATIC_FOLDER = "static"
VERSIONS = ("opera-retrieval", "sentence-transformers", "transformers", "torch")


def export(
    model: str | Path,
    *,
    out: str | Path,
    forms: Sequence[Form],
    data: str | Path | RetrievalData | None = None,
    measure: bool = True,
    push: str | None = None,
    public: bool = False,
    language: Sequence[str] = (),
    overwrite: bool = False,
) -> Export:
    """Write a model in other forms, and measure each beside the model as it is.

    ``onnx`` and ``int8`` make ``out`` a sentence-transformers folder with the files that its ONNX
    backend reads in
    ``onnx/``; ``static`` makes a sentence-transformers folder in ``out/static``.

    Args:
        model: an OPERA run, or anything else that :func:`opera.evaluate` takes.
        out: the folder to write.
        forms: ``onnx``; ``int8``, ONNX with weights of 8 bits; ``static``, vectors of tokens
            without a transformer.
        data: what to measure on, its test split; the default is the run's own data.
        measure: whether to measure at all.
        push: ``OWNER/NAME`` on the Hugging Face Hub to upload the folder to, as :func:`opera.push`
            does.
        public: for ``push``.
        language: for ``push``.
        overwrite: replace an export in ``out``.

    Returns:
        What ``out/export.json`` holds.

    Raises:
        InputError: for invalid input, before anything is written.
        StorageError: if the folder cannot be written.
    """
    wanted = _checked_forms(forms)
    name, folder = expand_user(model, "model"), user_path(out, "--out")
    _check_free(folder, flag(overwrite, "overwrite"))
    if push is not None:
        _check_push(push, language, wanted)
    for form in wanted:
        for package in PACKAGES[form]:
            require(package, f"--{form}")
    located = Path(locate_model(name))
    check_reads_stay(folder, "--out", [located], written_files(folder))
    measured = _test_data(name, data) if flag(measure, "measure") else None
    if measured is not None:
        check_stays_out(folder, "--out", measured, folder=True)
        check_reads_stay(folder, "--out", files_read(measured), written_files(folder))
    trained = load_model(name, "cpu")
    _check_forms(trained, wanted, name)
    reference = None if measured is None else Reference.of(name, measured)
    exported = replace_folder(
        folder, lambda new: _write(trained, located, reference, name, wanted, new)
    )
    exported = replace(exported, folder=folder)
    if push is not None:
        push_folder(
            folder / STATIC_FOLDER if wanted == ("static",) else folder,
            push,
            public=public,
            language=language,
        )
    return exported


def _checked_forms(forms: Sequence[Form]) -> tuple[Form, ...]:
    given = texts(forms, "forms")
    for form in given:
        if form not in FORMS:
            raise SettingError(
                f"forms: must be of {', '.join(FORMS)}, got {shown(form)}{nearest(form, FORMS)}"
            )
    if not given:
        raise SettingError("nothing to export: pass --onnx, --int8 or --static, or several of them")
    return tuple(form for form in cast(tuple[Form, ...], FORMS) if form in given)


def _check_push(name: str, language: Sequence[str], forms: Sequence[Form]) -> None:
    checked_name(name, "--push")
    checked_languages(language)
    if "static" in forms and len(forms) > 1:
        raise SettingError(
            "--push: a static model is a model of its own; export and push it alone, under another "
            "name"
        )


def _check_free(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that holds anything but an export that may be replaced."""
    check_folder(folder, "--out")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if folder / EXPORT_FILE not in written_files(folder):
        raise RunFolderError(
            f"--out {place(folder)}: is not empty and holds no export; pass an empty or a new "
            "folder"
        )
    if not overwrite:
        raise RunFolderError(
            f"--out {place(folder)}: holds an export; pass --overwrite to replace it, or another "
            "folder"
        )


def _test_data(model: str, data: str | Path | RetrievalData | None) -> RetrievalData:
    """Load what to measure on: the run's data, with the run's splits, or those given."""
    if data is not None:
        found = with_run_splits(load_data(data), model)
    elif isinstance(locate_model(model), str):
        raise ModelError(
            f"{model}: no such run or folder; with a model of the hub pass --data DATA, or "
            "--no-measure"
        )
    elif not holds_run(Path(model)):
        raise SettingError(
            f"{model}: is no run, so its data are not known; pass --data DATA, or --no-measure"
        )
    else:
        record = Run.open(model).record
        try:
            sources = [each.source for each in record.sets or ()]
            loaded = load_all([load_stored(source) for source in sources or [record.data.source]])
        except InputError as error:
            raise type(error)(
                f"{error}; it is the run's data: pass --data DATA, or --no-measure"
            ) from None
        if loaded.fingerprint != record.data.fingerprint:
            log.info("note: %s has changed since the run was trained on it", record.data.source)
        found = with_run_splits(loaded, model)
    found.judged_qrels(SPLIT)
    return found


def _check_forms(model: SentenceTransformer, forms: Sequence[Form], name: str) -> None:
    """Refuse what makes no sense for a model.

    Raises:
        ModelError: naming the form and the model.
    """
    if is_static(model) or not hasattr(model[0], "auto_model"):
        gain = "is a static model, which looks vectors up and runs no transformer"
        reason = (
            gain
            if is_static(model)
            else f"starts with {type(model[0]).__name__} and not with a transformer"
        )
        raise ModelError(
            f"--{forms[0]}: {name} {reason}: there is nothing to gain; use its folder as it is"
        )
    kinds = [type(module).__name__ for module in model]
    if "static" in forms and (
        more := [kind for kind in kinds[1:] if kind not in ("Pooling", "Normalize")]
    ):
        raise ModelError(
            f"--static: {name} has a {more[0]} after its pooling, which model2vec leaves out"
        )


def _write(
    model: SentenceTransformer,
    located: Path,
    reference: Reference | None,
    name: str,
    forms: Sequence[Form],
    folder: Path,
) -> Export:
    """Write the forms into an empty folder, and measure each as it is loaded from there."""
    made = []
    onnx = folder / ONNX_FOLDER / ONNX_FILE
    if {"onnx", "int8"} & set(forms):
        log.info("exporting to ONNX")
        save_portable(model, folder)
        onnx.parent.mkdir()
        write_onnx(model, onnx)
    if "onnx" in forms:
        made.append(_form("onnx", folder, onnx, reference, lambda: load_onnx(folder, onnx)))
    if "int8" in forms:
        kind = processor_kind()
        small = onnx.with_name(int8_name(kind))
        write_int8(onnx, small, reduced=kind == "avx2")
        made.append(_form("int8", folder, small, reference, lambda: load_onnx(folder, small)))
    if "onnx" not in forms:
        for file in folder.glob(f"{ONNX_FOLDER}/{ONNX_FILE}*"):
            file.unlink()
    if "static" in forms:
        log.info("distilling a static model")
        static = folder / STATIC_FOLDER
        write_static(model, static)
        made.append(_form("static", folder, static, reference, lambda: load_model(static, "cpu")))
    exported = Export(
        folder=folder,
        model=name,
        data=None if reference is None else reference.data.source,
        queries=0 if reference is None else len(reference.evaluation.query_ids),
        megabytes=megabytes(located, "*.safetensors"),
        processor=f"{processor_kind()}, {torch.get_num_threads()} threads",
        forms=tuple(made),
        versions={package: version(package) for package in (*VERSIONS, *_packages(forms))},
    )
    exported.write(folder)
    for place_of_card, of_it in ((folder, ("onnx", "int8")), (folder / STATIC_FOLDER, ("static",))):
        if shown_forms := tuple(form for form in made if form.form in of_it):
            write_card(located, name, place_of_card, replace(exported, forms=shown_forms))
    if "static" in forms:
        list_written(folder / STATIC_FOLDER)  # it is a model of its own, to be pushed
    return exported


def _form(
    form: Form,
    folder: Path,
    file: Path,
    reference: Reference | None,
    load: Callable[[], SentenceTransformer],
) -> ExportedForm:
    if reference is not None:
        log.info("measuring the %s form on %s", form, SPLIT)
    size = (
        megabytes(file, "*.safetensors")
        if file.is_dir()
        else megabytes(file.parent, f"{file.name}*")
    )
    figures = None if reference is None else reference.figures(load())
    return ExportedForm(form, str(file.relative_to(folder)), size, figures)


def _packages(forms: Sequence[Form]) -> list[str]:
    return list(dict.fromkeys(package for form in forms for package in PACKAGES[form]))
