"""``opera search``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from opera.cli.options import (
    ColumnsOption,
    DataArgument,
    DocumentPromptOption,
    DocumentsOption,
    IndexOption,
    JsonOption,
    ModelOption,
    PairsOption,
    QueriesOption,
    QueryPromptOption,
    one_source,
)
from opera.core.arguments import MOST
from opera.core.errors import SettingError
from opera.core.terminal import json_text, say


def search(
    *,
    data: DataArgument = None,
    query: Annotated[str | None, typer.Argument(help="what to search for", metavar="QUERY")] = None,
    model: ModelOption,
    top: Annotated[int, typer.Option("--top", help="how many documents", min=1, max=MOST)] = 5,
    index: IndexOption = "exact",
    query_prompt: QueryPromptOption = None,
    document_prompt: DocumentPromptOption = None,
    json_: JsonOption = False,
    pairs: PairsOption = None,
    documents: DocumentsOption = None,
    queries: QueriesOption = None,
    columns: ColumnsOption = None,
) -> None:
    """Search a corpus with a model."""
    from opera.cli.printing.console import console
    from opera.cli.printing.results import print_search
    from opera.retrieval.search import search as search_data

    if query is None:
        if not pairs or data is None:
            raise SettingError("missing argument 'QUERY'; see opera search --help")
        query, data = data, None
    data = one_source(data, pairs, documents, queries, columns)
    prompts = {"query_prompt": query_prompt, "document_prompt": document_prompt}
    found = search_data(data, query, model=model, top=top, index=index, **prompts)
    if json_:
        say(json_text([asdict(document) for document in found]))
    else:
        print_search(console(), found, f"“{query}” in {data}")
