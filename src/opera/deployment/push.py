"""``opera.push``: upload a run's model or an exported folder to the Hugging Face Hub."""

from __future__ import annotations

import re
from collections.abc import Sequence
from glob import escape
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, ModelCard
from huggingface_hub.errors import LocalTokenNotFoundError

from opera.core.arguments import expand_user, flag, text, texts
from opera.core.errors import ModelError, OperaError, SettingError, StorageError
from opera.core.files import foreign_files, read_text
from opera.core.terminal import counted, first_line_of, log, shortened, shown, shown_path
from opera.identity import check_keeps
from opera.retrieval.locate import locate_model
from opera.run.model_card import EXAMPLE_FOLDER, HUB_ID, is_local_path
from opera.run_folder.folder import CARD_FILE, MODEL_FILES, ORIGIN_FILE
from opera.run_folder.reading import read_object

LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")
"""An ISO 639 code, optionally with a script or region."""
REFUSED = (401, 403)


def push(
    model: str | Path,
    name: str,
    *,
    public: bool = False,
    language: Sequence[str] = (),
    keep_run: bool = False,
) -> str:
    """Upload a model to the Hugging Face Hub, and create the repository if necessary.

    The token comes from ``hf auth login`` or ``HF_TOKEN``.

    Args:
        model: a run, or a folder that :func:`opera.export` wrote.
        name: the repository, ``OWNER/NAME``.
        public: make a new repository public; an existing repository does not change.
        language: codes of the texts' languages for the card, such as ``en``.
        keep_run: also upload the hashes of the training queries, which a run leaves in its model.

    Returns:
        The URL of the repository.

    Raises:
        InputError: if the folder holds no model that other people can load, the name is invalid, or
            the token may not write to the repository.
        StorageError: if the hub is not reachable or refuses the files.

    Examples:
        >>> opera.push("my-run", "your-name/your-model")  # doctest: +SKIP
        'https://huggingface.co/your-name/your-model'
    """
    repository, languages = text(name, "name"), checked_languages(language)
    if not HUB_ID.fullmatch(repository):
        raise SettingError(f"name: must be a repository OWNER/NAME on the hub, got {shown(name)}")
    private = not flag(public, "public")
    folder = locate_model(expand_user(model, "model"))
    if isinstance(folder, str):
        raise ModelError(f"{folder}: must be the folder of a model, such as a run, to be pushed")
    check_keeps(folder, flag(keep_run, "keep_run"))
    left_out = None if keep_run else ORIGIN_FILE
    files = [file for file in _files_to_push(folder) if file.name != left_out]
    _reject_local_base(files)
    card = folder / CARD_FILE
    card_content = _card(card, repository, languages) if card in files else None
    size = sum(path.stat().st_size for path in files) / 1e6
    log.info("uploading %s, %.1f MB, to %s", counted(len(files), "file"), size, repository)
    names = [str(path.relative_to(folder)) for path in files if path != card]
    try:
        return _upload(folder, repository, private, names, card_content)
    except Exception as error:  # huggingface_hub raises errors of several libraries
        raise _described(error, repository) from error


def _upload(
    folder: Path, repository: str, private: bool, names: Sequence[str], card: bytes | None
) -> str:
    """Upload files of a folder and the card, and return the URL."""
    api, message = HfApi(library_name="opera"), "A model adapted with OPERA"
    url = api.create_repo(repository, private=private, exist_ok=True)
    api.upload_folder(
        repo_id=repository,
        folder_path=folder,
        allow_patterns=[escape(name) for name in names],
        commit_message=message,
    )
    if card is not None:
        api.upload_file(
            path_or_fileobj=card,
            path_in_repo=CARD_FILE,
            repo_id=repository,
            commit_message=f"{message}: its card",
        )
    return str(url)


def _described(error: Exception, repository: str) -> OperaError:
    """Say why an upload failed."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, LocalTokenNotFoundError) or status in REFUSED:
        reason = f"the hub refuses this token ({status})" if status else "no token was found"
        return SettingError(
            f"{repository}: {reason}; log in with 'hf auth login' as a user who may write there, "
            "or set HF_TOKEN"
        )
    return StorageError(f"{repository}: cannot be uploaded to the hub: {first_line_of(error)}")


def _files_to_push(folder: Path) -> list[Path]:
    """Return the files of a model. OPERA rejects links, because they could lead to
    private files.

    Raises:
        ModelError: for a link.
    """
    for link in (path for path in (folder, *folder.rglob("*")) if path.is_symlink()):
        raise ModelError(
            f"{shown_path(link)}: is a link, but OPERA uploads files only; replace it by a file"
        )
    files = {path for path in folder.rglob("*") if path.is_file()}
    unknown = set(foreign_files(folder, MODEL_FILES))
    if unknown:
        names = ", ".join(sorted(str(path.relative_to(folder)) for path in unknown))
        log.info(
            "note: these files are not uploaded, as OPERA did not write them: %s", shortened(names)
        )
    return sorted(files - unknown)


def checked_languages(languages: Sequence[str]) -> tuple[str, ...]:
    """Return codes of languages.

    Raises:
        SettingError: with the first invalid code.
    """
    codes = texts(languages, "language")
    if invalid := [code for code in codes if not LANGUAGE.fullmatch(code)]:
        raise SettingError(
            "--language: must be codes such as en or pt-BR, separated by commas, got "
            f"{shown(invalid[0])}"
        )
    return codes


def _reject_local_base(files: Sequence[Path]) -> None:
    """Reject LoRA matrices whose base model is a folder on this machine."""
    for path in (file for file in files if file.name == "adapter_config.json"):
        base = read_object(path).get("base_model_name_or_path")
        if isinstance(base, str) and is_local_path(base):
            raise ModelError(
                f"{shown_path(path)}: the base model of this LoRA adapter is a folder on this "
                "machine, so nobody else can load it; train with merge=true, or from a model on "
                "the hub"
            )


def _card(file: Path, repository: str, languages: Sequence[str]) -> bytes:
    """The model card with the name of the repository and the languages."""
    try:
        card = ModelCard(read_text(file), ignore_metadata_errors=True)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{shown_path(file)}: is not a model card: {first_line_of(error)}"
        ) from None
    data: Any = card.data
    if languages:
        data.language = list(languages)
    if data.eval_results:
        data.model_name = repository
    card.text = card.text.replace(EXAMPLE_FOLDER, repository)
    return str(card).encode("utf-8")
