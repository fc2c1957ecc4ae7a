"""What the cards of well-known models say of prompts and pooling, for models whose files do not say it.

Nothing here changes what a model does. It is what warnings and refusals compare a model's files with.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from opera.core.errors import ModelError
from opera.core.reading import read_text

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

log = logging.getLogger("opera")

Pooling = Literal["cls", "mean", "lasttoken"]

BGE = "Represent this sentence for searching relevant passages: "
BGE_ZH = "为这个句子生成表示以用于检索相关文章："
WEB_SEARCH = (
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "
)


@dataclass(frozen=True)
class Family:
    """Models that are used alike.

    Attributes:
        name: what to call it.
        pattern: matches the name of a model of the family, in lower case.
        pooling: how token embeddings become one vector.
        query: the prompt before a query in retrieval; empty for none.
        document: the prompt before a document.
        card: the model whose card says so.
        model_type: a ``model_type`` of transformers that only this family has.
    """

    name: str
    pattern: str
    pooling: Pooling
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
        BGE_ZH,
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


def family_of(spec: str, folder: Path | None) -> Family | None:
    """Recognise a model by the name it was asked for, by what its configuration says it is, or by its architecture.

    Args:
        spec: what the user called it.
        folder: where it lies, if that is known.
    """
    for name in model_names(spec, folder):
        for family in FAMILIES:
            if re.search(family.pattern, name.rpartition("_")[2]):
                return family
    config = {} if folder is None else json_values(folder / "config.json")
    kind = config.get("model_type")
    return next(
        (family for family in FAMILIES if family.model_type and family.model_type == kind), None
    )


def model_names(spec: str, folder: Path | None) -> list[str]:
    """Names that a model goes by, in lower case and without its owner, likeliest first; some may be empty.

    Args:
        spec: what the user called it.
        folder: where it lies, if that is known.
    """
    config = {} if folder is None else json_values(folder / "config.json")
    place = (folder or Path(spec)).absolute()
    names = [
        Path(spec).name,
        place.name,
        *_hub_name(place),
        Path(str(config.get("_name_or_path", ""))).name,
    ]
    return [name.lower() for name in names]


def check_pooling(model: SentenceTransformer, spec: str, folder: Path) -> None:
    """Look at the pooling of a folder that does not say it, so that sentence-transformers guesses.

    Logs the guess for a model of no known family.

    Raises:
        ModelError: for a model of a family that is pooled otherwise.
    """
    if (folder / "modules.json").is_file():
        return
    guess = next((module.pooling_mode for module in model if hasattr(module, "pooling_mode")), None)
    guesses = [guess] if isinstance(guess, str) else list(guess or [])
    family = family_of(spec, folder)
    if family is None:
        if guesses:
            log.info(
                "note: %s: has no modules.json, so its tokens are pooled by %s",
                spec,
                " and ".join(guesses),
            )
        return
    if guesses != [family.pooling]:
        raise ModelError(
            f"{spec}: has no modules.json, which says how tokens are pooled: sentence-transformers takes "
            f"{' and '.join(guesses) or 'none'}, and models of the family {family.name} need {family.pooling} (model "
            f"card of {family.card}); use the model's whole folder, with modules.json, or save it with "
            f"sentence_transformers as the modules Transformer and Pooling(dimension, {family.pooling!r})"
        )


def json_values(path: Path) -> dict[str, object]:
    """The contents of a model's JSON file, empty without one; whoever loads the model reports what is wrong with it."""
    try:
        values = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _hub_name(folder: Path) -> list[str]:
    """The name of a model in huggingface_hub's cache, whose folders are ``models--OWNER--NAME/snapshots/COMMIT``."""
    return [part.rpartition("--")[2] for part in folder.parts if part.startswith("models--")]
