"""The texts that go before queries and documents: which are in force, and which a model should have and does not."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from opera.config.encoding import EncodingSettings
from opera.core.errors import SettingError
from opera.core.processes import process_index
from opera.core.terminal import shown
from opera.data import RetrievalData
from opera.retrieval.families import family_of, json_values
from opera.retrieval.locate import locate_model
from opera.runs.folder import holds_run

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

log = logging.getLogger("opera")

Role = Literal["query", "document"]
ROLES: tuple[Role, ...] = ("query", "document")
LENGTH_SETTINGS: dict[Role, str] = {"query": "max_query_length", "document": "max_passage_length"}

PROMPTS_FILE = "config_sentence_transformers.json"
PROMPT_NAMES: dict[Role, tuple[str, ...]] = {
    "query": ("query",),
    "document": ("document", "passage", "corpus"),
}
"""Names of prompts that sentence-transformers looks up for each role, in this order."""

_WARNED: set[tuple[str, Role]] = set()
"""Models that were warned of in this process, and the prompts."""


def prompt_for(model: SentenceTransformer, role: Role) -> str:
    """Return the prompt that ``encode_query`` or ``encode_document`` prepends; empty for none."""
    return next(
        (str(model.prompts[name]) for name in PROMPT_NAMES[role] if name in model.prompts), ""
    )


def set_prompts(model: SentenceTransformer, query: str | None, document: str | None) -> None:
    """Set the prompts of a model, which saves them; its lengths must be set already.

    Args:
        model: changed in place.
        query: before each query; empty for none, ``None`` for the model's own.
        document: before each document, likewise.

    Raises:
        SettingError: if a prompt leaves no room for the text.
    """
    given = {"query": query, "document": document}
    model.prompts.update({role: prompt for role, prompt in given.items() if prompt is not None})
    for role in ROLES:
        _check_room(model, role)


def _check_room(model: SentenceTransformer, role: Role) -> None:
    prompt, first = prompt_for(model, role), model[0]
    limit = getattr(first, f"{role}_length", None) or model.max_seq_length
    if not prompt or limit is None or not hasattr(first, f"{role}_length"):
        return
    tokens = first.preprocess([prompt])["input_ids"].shape[-1]  # cut at the model's own limit
    if tokens >= limit:
        raise SettingError(
            f"{role}_prompt: has {tokens:,} tokens, and {LENGTH_SETTINGS[role]}={limit} leaves no room for the {role}; "
            f"raise {LENGTH_SETTINGS[role]}, or shorten the prompt"
        )


def as_setting(role: Role, prompt: str) -> str:
    """Write a prompt as an argument of ``opera train``."""
    return f"--set {shlex.quote(f'{role}_prompt={_in_double_quotes(prompt)}')}"


def as_option(role: Role, prompt: str) -> str:
    """Write a prompt as an option of the commands that use a model."""
    quoted = shlex.quote(prompt)
    if not prompt.isprintable():  # as bash reads line breaks
        escaped = _in_double_quotes(prompt)[1:-1].replace("'", "\\'")
        quoted = f"$'{escaped}'"
    return f"--{role}-prompt {quoted}"


def _in_double_quotes(prompt: str) -> str:
    """Write a text as YAML does in double quotes; bash reads the same escapes."""
    as_json = json.dumps(prompt, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in as_json)


def prompts_in_folder(folder: Path) -> dict[str, str]:
    """Return the prompts that a model's folder names, without loading it; none where it does not say."""
    values = json_values(folder / PROMPTS_FILE).get("prompts")
    return (
        {name: text for name, text in values.items() if isinstance(text, str)}
        if isinstance(values, dict)
        else {}
    )


def warn_of_missing_prompts(
    prompts: Mapping[str, str],
    name: str,
    decided: Iterable[Role],
    how: Callable[[Role, str], str],
) -> None:
    """Warn of each prompt that the model was trained with and its files do not name, once in a process.

    The level is one that Python shows where nobody has set up logging.

    Args:
        prompts: the model's, by the names that its files give them.
        name: what the user called the model.
        decided: the roles whose prompts the user set, even to none.
        how: writes a prompt as the user may give it: :func:`as_setting` or :func:`as_option`.
    """
    place = locate_model(name)
    family = family_of(name, place if isinstance(place, Path) else None)
    for role in [role for role in ROLES if role not in set(decided) and not prompts.get(role)]:
        unused = next((other for other in PROMPT_NAMES[role] if prompts.get(other)), None)
        prompt = prompts[unused] if unused else family.prompts[role] if family else ""
        warned = (str(place.resolve() if isinstance(place, Path) else place), role)
        if not prompt or warned in _WARNED:
            continue
        _WARNED.add(warned)
        why = (
            f"its files name the prompt {unused!r}, which sentence-transformers does not use for a {role}"
            if unused or family is None
            else f"models of the family {family.name} are used with a {role} prompt (model card of {family.card}), "
            "and its files name none"
        )
        log.warning(
            "warning: %s: %s; add %s, or leave it empty for none", name, why, how(role, prompt)
        )


def warn_of_prompts(
    prompts: Mapping[str, str],
    name: str,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
) -> None:
    """Warn a command's user of missing prompts, but not of a run's, which decided on them; the main process does."""
    if process_index() == 0 and not holds_run(Path(name)):
        given: dict[Role, str | None] = {"query": query_prompt, "document": document_prompt}
        warn_of_missing_prompts(
            prompts, name, [role for role in ROLES if given[role] is not None], as_option
        )


def given_prompts(query: str | None, document: str | None) -> dict[str, Any]:
    """Check the prompts that a function was given, for :func:`open_encoder`.

    Raises:
        SettingError: for a prompt that is no text.
    """
    prompts = {"query_prompt": query, "document_prompt": document}
    given = {name: prompt for name, prompt in prompts.items() if prompt is not None}
    return EncodingSettings.parse(given).model_dump(exclude_unset=True)


def with_data_prompt(
    prompts: Mapping[str, Any], data: RetrievalData, model: str | Path
) -> dict[str, Any]:
    """Add the query prompt that the data bring to those that the user gave, as a run on these data does.

    Args:
        prompts: those that the user gave, by the names of their settings.
        data: the data set.
        model: what the user passed; a run has decided on its prompts already.

    Raises:
        SettingError: for a prompt that no user could give.
    """
    if data.query_prompt is None or "query_prompt" in prompts or holds_run(Path(model)):
        return dict(prompts)
    if process_index() == 0:
        log.info(
            "note: the data's query prompt %s is used; --query-prompt gives another",
            shown(data.query_prompt),
        )
    return {**prompts, **given_prompts(data.query_prompt, None)}
