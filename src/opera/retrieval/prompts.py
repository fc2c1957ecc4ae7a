"""Prompts before queries and documents: those that a model uses, and those that it should use.

The table of well-known models does not change what a model does. OPERA only compares a model's
files with the table, and warns of differences or refuses the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from opera.config.training import EncodingSettings
from opera.core.errors import ModelError, SettingError
from opera.core.files import read_text
from opera.core.processes import process_index
from opera.core.terminal import log, printable, shown
from opera.data import RetrievalData
from opera.retrieval.locate import Model, locate_model, model_title, origin_of

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Role = Literal["query", "document"]
ROLES: tuple[Role, ...] = ("query", "document")
LENGTH_SETTINGS: dict[Role, str] = {"query": "max_query_length", "document": "max_passage_length"}

PROMPT_NAMES: dict[Role, tuple[str, ...]] = {
    "query": ("query",),
    "document": ("document", "passage", "corpus"),
}
"""Names of the prompts that sentence-transformers looks up for a role, in this order."""

BGE = "Represent this sentence for searching relevant passages: "
WEB_SEARCH = (
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "
)


@dataclass(frozen=True)
class Family:
    """Models with the same pooling and prompts.

    Attributes:
        name: the name of the family.
        pattern: matches the lower-case names of its models.
        pooling: how token embeddings become one vector.
        query: the prompt before a query in retrieval; empty for none.
        document: the prompt before a document; empty for none.
        card: the model whose card documents pooling and prompts.
        model_type: a ``model_type`` of transformers that only this family has.
    """

    name: str
    pattern: str
    pooling: Literal["cls", "mean", "lasttoken"]
    query: str
    document: str
    card: str
    model_type: str | None = None

    @property
    def prompts(self) -> dict[str, str]:
        """The prompts by role."""
        return {"query": self.query, "document": self.document}


FAMILIES = (
    Family("bge-en", r"bge-(small|base|large)-en\b", "cls", BGE, "", "BAAI/bge-large-en-v1.5"),
    Family(
        "bge-zh",
        r"bge-(small|base|large)-zh\b",
        "cls",
        "为这个句子生成表示以用于检索相关文章：",
        "",
        "BAAI/bge-large-zh-v1.5",
    ),
    Family("bge-m3", r"bge-m3\b", "cls", "", "", "BAAI/bge-m3"),
    Family(
        "multilingual-e5-instruct",
        r"multilingual-e5-large-instruct\b",
        "mean",
        WEB_SEARCH,
        "",
        "intfloat/multilingual-e5-large-instruct",
    ),
    Family(
        "e5-mistral",
        r"e5-mistral-7b-instruct\b",
        "lasttoken",
        WEB_SEARCH,
        "",
        "intfloat/e5-mistral-7b-instruct",
    ),
    Family(
        "e5",
        r"(^|multilingual-)e5-(small|base|large)\b",
        "mean",
        "query: ",
        "passage: ",
        "intfloat/e5-base-v2",
    ),
    Family(
        "gte-Qwen2",
        r"gte-qwen[12](\.5)?-",
        "lasttoken",
        WEB_SEARCH,
        "",
        "Alibaba-NLP/gte-Qwen2-1.5B-instruct",
    ),
    Family(
        "gte-en-v1.5", r"gte-(base|large)-en-v1\.5", "cls", "", "", "Alibaba-NLP/gte-base-en-v1.5"
    ),
    Family(
        "gte-multilingual",
        r"gte-(multilingual|modernbert)-base",
        "cls",
        "",
        "",
        "Alibaba-NLP/gte-multilingual-base",
    ),
    Family("gte", r"gte-(small|base|large)$", "mean", "", "", "thenlper/gte-base"),
    Family(
        "Qwen3-Embedding",
        r"qwen3-embedding\b",
        "lasttoken",
        WEB_SEARCH.rstrip(),
        "",
        "Qwen/Qwen3-Embedding-0.6B",
    ),
    Family(
        "arctic-embed-v2",
        r"arctic-embed-[ml]-v2",
        "cls",
        "query: ",
        "",
        "Snowflake/snowflake-arctic-embed-l-v2.0",
    ),
    Family(
        "arctic-embed",
        r"arctic-embed-(xs|s|m|l)\b",
        "cls",
        BGE,
        "",
        "Snowflake/snowflake-arctic-embed-m",
    ),
    Family(
        "nomic-embed",
        r"nomic-embed-text\b|modernbert-embed-(base|large)",
        "mean",
        "search_query: ",
        "search_document: ",
        "nomic-ai/nomic-embed-text-v1.5",
        "nomic_bert",
    ),
    Family(
        "mxbai-embed", r"mxbai-embed-large-v1", "cls", BGE, "", "mixedbread-ai/mxbai-embed-large-v1"
    ),
    Family("UAE", r"uae-large-v1", "cls", BGE, "", "WhereIsAI/UAE-Large-V1"),
    Family(
        "embeddinggemma",
        r"embeddinggemma-300m",
        "mean",
        "task: search result | query: ",
        "title: none | text: ",
        "google/embeddinggemma-300m",
    ),
)

_WARNED: set[tuple[str, Role]] = set()
"""Models and roles for which this process has logged the warning."""


def prompt_for(model: SentenceTransformer, role: Role) -> str:
    """Return the prompt that ``encode_query`` or ``encode_document`` prepends; empty for none."""
    return next(
        (str(model.prompts[name]) for name in PROMPT_NAMES[role] if name in model.prompts), ""
    )


def set_prompts(model: SentenceTransformer, query: str | None, document: str | None) -> None:
    """Set the prompts of a model, which saves them; its lengths must be set already.

    Args:
        model: changed in place.
        query: before each query; empty for none, ``None`` for the model's prompt.
        document: before each document; empty for none, ``None`` for the model's prompt.

    Raises:
        SettingError: if a prompt leaves no room for the text.
    """
    prompts = {"query": query, "document": document}
    model.prompts.update({role: prompt for role, prompt in prompts.items() if prompt is not None})
    for role, setting in LENGTH_SETTINGS.items():
        prompt, limit = prompt_for(model, role), length_limit(model, role)
        if not prompt or limit is None or not hasattr(model[0], f"{role}_length"):
            continue
        tokens = model[0].preprocess([prompt])["input_ids"].shape[-1]  # cut at the model's limit
        if tokens >= limit:
            raise SettingError(
                f"{role}_prompt: has {tokens:,} tokens, so {setting}={limit} leaves no room for "
                f"the {role}; raise {setting}, or shorten the prompt"
            )


def length_limit(model: SentenceTransformer, role: Role) -> int | None:
    """Return the maximum number of tokens that the model reads; ``None`` for no limit."""
    return getattr(model[0], f"{role}_length", None) or getattr(model, "max_seq_length", None)


def warn_of_missing_prompts(
    prompts: Mapping[str, str],
    model: Model,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
) -> None:
    """Warn of each prompt that a model needs but its files lack, once per process.

    Runs get no warning, because they have fixed their prompts.

    Args:
        prompts: the model's prompts, by their names in its files.
        model: the user's model.
        query_prompt: the user's setting; ``None`` if it is not set.
        document_prompt: the user's setting; ``None`` if it is not set.
    """
    if process_index() > 0 or origin_of(model) is not None:
        return
    location, name = locate_model(model), model_title(model)
    folder = location if isinstance(location, Path) else None
    family, origin = family_of(name, folder), str(folder.resolve() if folder else location)
    settings: dict[Role, str | None] = {"query": query_prompt, "document": document_prompt}
    for role in ROLES:
        if settings[role] is not None or prompts.get(role) or (origin, role) in _WARNED:
            continue
        unused = next((key for key in PROMPT_NAMES[role] if prompts.get(key)), None)
        if unused is not None:
            prompt = prompts[unused]
            problem = (
                f"its files have the prompt {unused!r}, but sentence-transformers does not use it "
                f"for a {role}"
            )
        elif family is not None and family.prompts[role]:
            prompt = family.prompts[role]
            problem = (
                f"models of the family {family.name} need a {role} prompt (model card of "
                f"{family.card}), but its files have none"
            )
        else:
            continue
        _WARNED.add((origin, role))
        advice = f"set {role}_prompt to {printable(repr(prompt))}, or to an empty text for none"
        log.warning("warning: %s: %s; %s", name, problem, advice)


def with_data_prompt(
    settings: Mapping[str, Any], data: RetrievalData, model: Model
) -> dict[str, Any]:
    """Add the data's query prompt to the user's settings, unless the user or a run sets one.

    Args:
        settings: the user's settings of encoding by name.
        data: the data set.
        model: the model or run as the user named it.

    Raises:
        SettingError: if the data's prompt is invalid.
    """
    if data.query_prompt is None or "query_prompt" in settings or origin_of(model):
        return dict(settings)
    if process_index() == 0:
        log.info(
            "note: using the data's query prompt %s; --query-prompt sets another",
            shown(data.query_prompt),
        )
    return {**settings, **EncodingSettings.chosen(query_prompt=data.query_prompt)}


def family_of(spec: str, folder: Path | None) -> Family | None:
    """Recognise a model by its name, by the name in its configuration, or by its architecture.

    A folder in huggingface_hub's cache is ``models--OWNER--NAME/snapshots/COMMIT``.
    """
    config = {} if folder is None else json_values(folder / "config.json")
    path, saved = (folder or Path(spec)).absolute(), str(config.get("_name_or_path", ""))
    hub = [part.rpartition("--")[2] for part in path.parts if part.startswith("models--")]
    names = [Path(spec).name, path.name, *hub, Path(saved).name]
    for name in (name.lower().rpartition("_")[2] for name in names):
        for family in FAMILIES:
            if re.search(family.pattern, name):
                return family
    kind = config.get("model_type", "")
    return next((family for family in FAMILIES if family.model_type == kind), None)


def check_pooling(model: SentenceTransformer, spec: str, folder: Path) -> None:
    """Check the pooling that sentence-transformers guesses for a folder without ``modules.json``.

    Logs the guess if the model's family is unknown.

    Raises:
        ModelError: if the model's family needs another pooling.
    """
    if (folder / "modules.json").is_file():
        return
    guess = next((module.pooling_mode for module in model if hasattr(module, "pooling_mode")), None)
    guesses = [guess] if isinstance(guess, str) else list(guess or [])
    family, pooling = family_of(spec, folder), " and ".join(guesses) or "none"
    if family is None:
        log.info("note: %s: has no modules.json, so its pooling is %s", spec, pooling)
    elif guesses != [family.pooling]:
        raise ModelError(
            f"{spec}: has no modules.json, so its pooling would be {pooling}, but models of the "
            f"family {family.name} need {family.pooling} (model card of {family.card}); use the "
            "whole model folder, or save it with sentence_transformers as Transformer and "
            f"Pooling(dimension, {family.pooling!r})"
        )


def json_values(path: Path) -> dict[str, Any]:
    """The object in a model's JSON file; empty if the file is missing."""
    return dict(json.loads(read_text(path))) if path.is_file() else {}
