"""``opera.push``: a run's model, or an exported folder, to the Hugging Face Hub."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from glob import escape
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, ModelCard
from huggingface_hub.errors import LocalTokenNotFoundError

from opera.core.arguments import flag, text, texts
from opera.core.errors import ModelError, SettingError, StorageError
from opera.core.files import foreign_files
from opera.core.paths import expand_user
from opera.core.reading import read_text
from opera.core.terminal import first_line, place, shortened, shown
from opera.retrieval.locate import locate_model
from opera.run.model_card import HUB_ID, is_local_path
from opera.runs.folder import CARD_FILE, MODEL_FILES
from opera.runs.reading import read_object

log = logging.getLogger("opera")

LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")
"""A code of ISO 639, with a script or a region after it."""
REFUSED = (401, 403)
EXAMPLE_FOLDER = "path/to/this/folder"
"""What the card of a run calls its own folder."""


def push(
    model: str | Path, name: str, *, public: bool = False, language: Sequence[str] = ()
) -> str:
    """Upload a model to the Hugging Face Hub; a repository that does not exist is created.

    The token is the one of ``hf auth login``, or of ``HF_TOKEN``.

    Args:
        model: a run, or a folder that :func:`opera.export` wrote.
        name: ``OWNER/NAME`` of the repository.
        public: make a new repository public; one that is there stays as it is.
        language: codes of the texts' languages, such as ``en``, for the card; without them it names
            none.

    Returns:
        The address of the repository.

    Raises:
        InputError: for anything that is no folder of a model that others can load, no name of a
            repository, or no token
            that may write there.
        StorageError: if the hub cannot be reached, or refuses the files.
    """
    repository, languages = checked_name(name, "name"), checked_languages(language)
    private = not flag(public, "public")
    folder = locate_model(expand_user(model, "model"))
    if isinstance(folder, str):
        raise ModelError(f"{folder}: must be a folder to push, such as a run's")
    files = _files_to_push(folder)
    _refuse_local_base(files)
    card = folder / CARD_FILE
    described = _card(card, repository, languages) if card in files else None
    names = [str(path.relative_to(folder)) for path in files if path != card]
    size = sum(path.stat().st_size for path in files) / 1e6
    log.info("uploading %d files, %.1f MB, to %s", len(files), size, repository)
    api, what = HfApi(library_name="opera"), "A model adapted with OPERA"
    try:
        made = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            allow_patterns=[escape(name) for name in names],
            commit_message=what,
        )
        if described is not None:
            api.upload_file(
                path_or_fileobj=described,
                path_in_repo=CARD_FILE,
                repo_id=repository,
                commit_message=f"{what}: its card",
            )
    except Exception as error:  # the hub's library raises errors of several others
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(error, LocalTokenNotFoundError) or status in REFUSED:
            reason = f"the hub refuses this token ({status})" if status else "no token was found"
            raise SettingError(
                f"{repository}: {reason}; log in with 'hf auth login' as someone who may write "
                "there, or set HF_TOKEN"
            ) from error
        raise StorageError(
            f"{repository}: cannot be uploaded to the hub: {first_line(error)}"
        ) from error
    return str(made)


def _files_to_push(folder: Path) -> list[Path]:
    """Return the files of a model by their names. Links could lead to anything of the user's.

    Raises:
        ModelError: for a link.
    """
    for link in (path for path in (folder, *folder.rglob("*")) if path.is_symlink()):
        raise ModelError(f"{place(link)}: is a link, and OPERA uploads files only; replace it")
    files = {path for path in folder.rglob("*") if path.is_file()}
    others = set(foreign_files(folder, MODEL_FILES))
    if others:
        names = ", ".join(sorted(str(path.relative_to(folder)) for path in others))
        log.info("note: not uploaded, as OPERA does not write it: %s", shortened(names))
    return sorted(files - others)


def checked_name(name: str, argument: str) -> str:
    """Return the name of a repository; ``argument`` is what the user passed it as.

    Raises:
        SettingError: if it is none, or names no owner.
    """
    repository = text(name, argument)
    if not HUB_ID.fullmatch(repository):
        raise SettingError(
            f"{argument}: must be OWNER/NAME, as the hub names repositories, got {shown(name)}"
        )
    return repository


def checked_languages(languages: Sequence[str]) -> tuple[str, ...]:
    """Return codes of languages.

    Raises:
        SettingError: naming what is none.
    """
    codes = texts(languages, "language")
    for code in codes:
        if not LANGUAGE.fullmatch(code):
            raise SettingError(
                "--language: must be codes such as en or pt-BR, separated by commas, got "
                f"{shown(code)}"
            )
    return codes


def _refuse_local_base(files: Sequence[Path]) -> None:
    """Refuse LoRA's matrices whose model is a folder of this machine."""
    for path in (file for file in files if file.name == "adapter_config.json"):
        base = read_object(path).get("base_model_name_or_path")
        if isinstance(base, str) and is_local_path(base):
            raise ModelError(
                f"{place(path)}: these matrices belong to a model in a folder here, which nobody "
                "else has; train with "
                "merge=true, or from a model of the hub"
            )


def _card(file: Path, repository: str, languages: Sequence[str]) -> bytes:
    """The card under its name on the hub, with the languages."""
    try:
        card = ModelCard(read_text(file), ignore_metadata_errors=True)
    except (OSError, ValueError) as error:
        raise ModelError(f"{place(file)}: is no model card: {first_line(error)}") from None
    data: Any = card.data
    if languages:
        data.language = list(languages)
    if data.eval_results:
        data.model_name = repository
    card.text = card.text.replace(EXAMPLE_FOLDER, repository)
    return str(card).encode("utf-8")
