"""The model card (README.md) and the recipe in the final model's folder.

Neither contains the paths of folders.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData
from ruamel.yaml import YAML

from opera.config.recipe import make_recipe
from opera.core.figures import DEFAULT_MEASURES, few_queries, in_points
from opera.core.files import replace_file
from opera.core.terminal import command_line, counted
from opera.data.names import DataName, command_words, source_title, without_folders
from opera.data.retrieval_data import counts_in_words
from opera.retrieval.locate import MINILM, model_type_in
from opera.run_folder.folder import CARD_FILE, RECIPE_FILE
from opera.run_folder.record import RunRecord
from opera.run_folder.summary import RunSummary, headlines

TAGS = ["sentence-transformers", "feature-extraction", "dense-retrieval", "opera"]
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
HUB_NAMES = {MINILM: "sentence-transformers/all-MiniLM-L6-v2"}
"""The hub ids of models with a short name."""
EXAMPLE_FOLDER = "path/to/this/folder"
"""Placeholder for the model's folder in the card of a run."""

MODEL_CARD = """---
{metadata}
---

# {base}, adapted with OPERA

`{base}` adapted to `{data}` by {method} over {steps:,} steps (seed {seed}).

## Measures

{measures}

## Data

`{data}`: {counts}.

Training read {query_length} of a query and {document_length} of a document. It put
{query_prompt} before queries and {document_prompt} before documents.{passages}

## Use

```python
from sentence_transformers import {model_class}
model = {model_class}("{folder}")
scores = model.similarity(model.encode_query(["a question"]), model.encode_document(["a document"]))
```

## Reproduce

```sh
{command}
```

`recipe.yaml` is in this folder. Replace the names of files and folders by your paths. {versions}.
"""

PASSAGES = """

OPERA split documents of more than {passages} tokens into passages, and ranked a document by its
best passage. Split your documents in the same way, store a vector per passage with the id of its
document, and keep the best passage of each document:

```python
from semantic_text_splitter import TextSplitter
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
tokenizer.no_truncation()
splitter = TextSplitter.from_huggingface_tokenizer(tokenizer, {passages})
parts = splitter.chunks(text)
parts = parts if len(parts) > 1 else [text]
passages = {passages_of_parts}
```"""

VECTORS_CARD = """# An adapter for the vectors of `{base}`, made with OPERA

Adapted to `{data}` by {method} over {steps:,} steps (seed {seed}).

## Measures

{measures}

## Use

`adapter.py` needs only NumPy. Copy it with `adapter.npz`.

```python
import adapter
queries = adapter.queries(vectors)  # your service's vectors, [n, d]; the results have length 1
documents = adapter.documents(vectors){note}
```

## Reproduce

```sh
{command}
```

{versions}.
"""


def write_model_card(folder: Path, summary: RunSummary) -> None:
    """Write the README.md of a run's model, and its recipe, into the model's folder."""
    record, settings = summary.record, summary.record.settings
    assert record.training is not None
    header = metadata(record, {name: summary.measures["final"][name] for name in DEFAULT_MEASURES})
    text = (MODEL_CARD if settings["query_vectors"] is None else VECTORS_CARD).format(
        metadata=header.to_yaml().strip(),
        base=_base_name(record.model.source),
        data=_short_data(record),
        method=settings["method"],
        steps=record.training.steps,
        seed=record.seed,
        measures=_measures(summary),
        counts=counts_in_words(record.data.counts),
        query_length=_length(settings["max_query_length"]),
        document_length=_length(settings["max_passage_length"]),
        passages="" if settings.get("passages") is None else _passages(settings),
        folder=EXAMPLE_FOLDER,
        model_class=model_type_in(folder),
        query_prompt=_prompt(settings["query_prompt"]),
        document_prompt=_prompt(settings["document_prompt"]),
        note="  # normalised only" if settings["adapter"] != "both" else "",
        command=repeat_command(record),
        versions=", ".join(f"{name} {number}" for name, number in record.versions.items()),
    )
    replace_file(folder / CARD_FILE, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    write_recipe(folder, record)


def _passages(settings: Mapping[str, Any]) -> str:
    """Return the section that splits documents as the run did."""
    parts = "parts"
    if settings["corpus_text"] == "title_text":
        parts = '[f"{title} {part}".strip() if title else part for part in parts]'
    return PASSAGES.format(passages=settings["passages"], passages_of_parts=parts)


def metadata(record: RunRecord, final: Mapping[str, float]) -> ModelCardData:
    """Describe a run's model for the hub, with the measures of the final model on test."""
    data, source = _short_data(record), record.model.source
    model = HUB_NAMES.get(source, source)
    dataset = data.removeprefix("hf:").partition("@")[0] if data.startswith("hf:") else ""
    known = dataset if HUB_ID.fullmatch(dataset) else None
    results = [
        EvalResult(
            task_type="information-retrieval",
            task_name="Information Retrieval",
            dataset_type=known or re.sub(r"[^\w.-]+", "-", data).strip("-") or "data",
            dataset_name=data,
            dataset_split="test",
            metric_type=name.lower().replace("@", "_at_"),
            metric_name=name,
            metric_value=round(value, 5),
        )
        for name, value in final.items()
    ]
    return ModelCardData(
        base_model=model if HUB_ID.fullmatch(model) and not is_local_path(source) else None,
        datasets=None if known is None else [known],
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=TAGS,
        model_name=f"{_base_name(source)} adapted to {data}",
        eval_results=results,
    )


def _length(tokens: int | None) -> str:
    return "all tokens" if tokens is None else f"at most {tokens} tokens"


def _prompt(prompt: str | None) -> str:
    return f"the prompt `{json.dumps(prompt)}`" if prompt else "no prompt"


def is_local_path(text: str) -> bool:
    """Whether a text, such as a prompt, is the path of an existing file or folder."""
    return os.path.exists(text)  # noqa: PTH110 - Path.exists fails if the name is too long


def repeat_command(record: RunRecord) -> str:
    """Return the ``opera train`` command that repeats a run; ``DATA`` stands for data in memory."""
    first, *also = [command_words(without_folders(source)) for source in _sources(record)]
    words = [
        command_line("train", *first),
        *(shlex.join(["--also", *source]) for source in also),
        shlex.join(["--model", _short(record.model.source)]),
        f"--config {RECIPE_FILE}",
        "--out run",
    ]
    return " \\\n  ".join(words)


def write_recipe(folder: Path, record: RunRecord) -> None:
    """Write the settings that differ from their defaults as a recipe."""
    values = {"method": record.identity["method"]}
    for name, default in make_recipe(values).flat().items():
        if (value := record.identity.get(name, default)) != default:
            values[name] = _without_folders(value)
    yaml = YAML(typ="safe")
    yaml.default_flow_style = False
    replace_file(folder / RECIPE_FILE, lambda temporary: yaml.dump(values, temporary))


def _without_folders(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_without_folders(part) for part in value]
    return _short(value) if isinstance(value, str) and os.sep in value else value


def _short(source: DataName) -> str:
    """Return the name of a data set or a model without folders, which readers do not have."""
    return source_title(without_folders(source))


def _sources(record: RunRecord) -> list[DataName]:
    return [data_set.source for data_set in record.data_sets]


def _short_data(record: RunRecord) -> str:
    return " + ".join(map(_short, _sources(record)))


def _base_name(source: str) -> str:
    return HUB_NAMES.get(source, _short(source))


def _measures(summary: RunSummary) -> str:
    """Return the measures on test with the intervals of their changes, and the verdict."""
    headings = {"base": "base", "fine_tuned": "fine-tuned", "final": "final"}
    measured = [name for name in headings if name in summary.measures]
    models = [summary.measures[name] for name in measured]
    heads = [counted(summary.queries, "test query"), *map(headings.__getitem__, measured)]
    rows = [
        [*heads, "change in points (95% interval)"],
        *(
            [name, *(in_points(model[name]) for model in models), summary.changes[name].in_points()]
            for name in DEFAULT_MEASURES
        ),
    ]
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    lines = [head, "|---" * len(rows[0]) + "|", *body]
    warning = (few_queries(summary.queries) or "").removeprefix("warning: ").capitalize()
    lines += [
        "",
        "The intervals (Student's t over the test queries) apply to this model, not to other "
        f"seeds. {warning}",
        "",
        f"Verdict: {' '.join(headlines(summary))}",
    ]
    if (cutoffs := summary.record.cutoffs) is not None:
        lines += ["", "When not to answer. " + " ".join(cutoffs.sentences)]
    return "\n".join(lines)
