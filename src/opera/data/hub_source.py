"""``hf:OWNER/NAME[/CONFIG][:SPLIT]``: data sets of the Hugging Face hub, or a folder laid out like one.

Two layouts are read. That of BEIR and MTEB on the hub: configurations ``corpus`` and ``queries``, and judgements in
``qrels`` or ``default``, or in a data set of their own, ``OWNER/NAME-qrels``. And tables of pairs, as in
:mod:`opera.data.tables`. No code of a data set runs: the library ``datasets`` has no way to, since 4.0.
"""

from __future__ import annotations

import hashlib
import logging
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from opera.core.errors import DataError, OperaError
from opera.core.storage import ADVICE, storage_error
from opera.core.terminal import shortened, shown
from opera.data.checks import check_id
from opera.data.hub_folder import HubName, check_card, hub_files
from opera.data.names import SPLIT_NAMES
from opera.data.published import RULES, Judgements, check_published_ids, published_texts
from opera.data.retrieval_data import RetrievalData, load_or_parse
from opera.data.store import LAYOUT, DataBuilder, digest_files
from opera.data.tables.columns import Columns
from opera.data.tables.from_python import DatasetTable
from opera.data.tables.load import RULES as TABLE_RULES
from opera.data.tables.load import store_tables
from opera.data.texts import ROWS_AT_ONCE, TextRow

log = logging.getLogger("opera")

_COLUMNS = {
    "id": ("_id", "id"),
    "text": ("text",),
    "query": ("query-id", "query_id"),
    "document": ("corpus-id", "corpus_id"),
    "score": ("score",),
}


def load_hub(
    name: str, source: str | None = None, columns: tuple[tuple[str, str], ...] = ()
) -> RetrievalData:
    """Load a data set of the hub; what is not in the cache is downloaded.

    Args:
        name: what stands behind ``hf:``.
        source: what the user passed, if not ``hf:NAME``.
        columns: (role, column) of pairs, where names are not known or others are meant.

    Raises:
        DataError: if it cannot be fetched, has another layout, or breaks a rule.
    """
    place, parsed = f"hf:{name}", HubName.parse(name)
    rules = f"{RULES}\0{TABLE_RULES}\0{columns}"

    def digest() -> str:
        if parsed.local:  # by contents; the hub is asked once, and the cache keeps what it said
            files, names = hub_files(Path(parsed.place), place)
            return digest_files(files, f"hf\0{rules}\0{parsed.split}\0{names}")
        return hashlib.sha256(
            "\0".join((LAYOUT, rules, "hf", *map(str, parsed))).encode()
        ).hexdigest()

    short = Path(parsed.place).resolve().name if parsed.local else parsed.place.split("/")[1]

    def parse(builder: DataBuilder) -> None:
        _parse(builder, parsed, place, Columns(columns))

    return load_or_parse(digest, short, source or place, parse, named=not parsed.local)


def _parse(builder: DataBuilder, name: HubName, source: str, given: Columns) -> None:
    folder = Path(name.place)
    if name.local and (folder / "corpus.jsonl").is_file() and any(folder.glob("qrels/*.tsv")):
        raise DataError(f"{source}: is a BEIR folder: pass it without hf:")
    if name.local:
        check_card(folder, source)
    with tempfile.TemporaryDirectory(
        dir=builder.folder
    ) as cache:  # the library's own copy is not needed afterwards
        hub = _Hub(source, cache, name)
        configs = hub.configs(name.place)
        if {"corpus", "queries"} <= set(configs) and name.config is None:
            if given.given:
                raise DataError(
                    f"{source}: has a corpus, queries and judgements; --columns is for tables of pairs"
                )
            _store_beir(builder, hub, name, configs)
        else:
            config = _only_config(name, configs, source)
            splits = _chosen(hub.splits(name.place, config), name.split, source)
            tables = [
                (
                    split,
                    DatasetTable(
                        f"{source}, {split}",
                        part,
                        lambda error: hub.explained(error, name.place),
                    ),
                )
                for split, part in splits.items()
            ]
            store_tables(builder, {}, tables, given, lenient=True)
            hub.note_commit(builder, splits.values())


def _only_config(name: HubName, configs: list[str], source: str) -> str:
    if name.config is not None and name.config not in configs:
        raise DataError(
            f"{source}: has no configuration {shown(name.config)} (it has: {', '.join(configs)})"
        )
    if name.config is None and len(configs) > 1 and "default" not in configs:
        raise DataError(
            f"{source}: has several configurations; give one, as in hf:{name.place}/{configs[0]}"
        )
    return name.config or ("default" if "default" in configs else configs[0])


def _chosen(splits: dict[str, Any], wanted: str | None, source: str) -> dict[str, Any]:
    """Return the splits to read by our names; a single split of another name is train."""
    if wanted is None and len(splits) == 1:
        wanted = next(iter(splits))
    if wanted is None:
        named = {SPLIT_NAMES.get(split, split): dataset for split, dataset in splits.items()}
    elif wanted in splits:
        named = {SPLIT_NAMES.get(wanted, "train"): splits[wanted]}
    else:
        raise DataError(f"{source}: has no split {shown(wanted)} (it has: {', '.join(splits)})")
    for split in named:
        check_id(f"{source}: the name of a split", split)
    return named


def _store_beir(builder: DataBuilder, hub: _Hub, name: HubName, configs: list[str]) -> None:
    source = hub.source
    read: list[Any] = []
    for config, kind in (("corpus", "document"), ("queries", "query")):
        parts = list(hub.splits(name.place, config).values())
        rows = (row for part in parts for row in _texts(hub, part, source, config))
        total = sum(part.num_rows for part in parts)
        builder.write_texts(config, published_texts(rows, source, kind, builder.notes, total))
        read += parts
    check_published_ids(builder, source)
    own = next((config for config in ("qrels", "default") if config in configs), None)
    if own:
        judged = hub.splits(name.place, own)
    else:
        place = f"{name.place.rstrip('/')}-qrels"
        judged = hub.splits(place, hub.configs(place)[0])
    for split, part in _chosen(judged, name.split, source).items():
        judgements = Judgements(source, split)
        columns = [
            _column(part, what, source, "the judgements") for what in ("query", "document", "score")
        ]
        for batch in hub.read(part, columns):
            for query, document, score in zip(*(batch[column] for column in columns), strict=True):
                judgements.add(_id(query, source), _id(document, source), _as_integer(score))
        judgements.store(builder)
    hub.note_commit(builder, read)


def _texts(hub: _Hub, part: Any, source: str, config: str) -> Iterator[TextRow]:
    identifier, text = (_column(part, what, source, config) for what in ("id", "text"))
    title = ["title"] if config == "corpus" and "title" in part.column_names else []
    for batch in hub.read(part, [identifier, text, *title]):
        titles = batch["title"] if title else None
        for row, own in enumerate(batch[identifier]):
            yield _id(own, source), (titles[row] or "") if titles else "", batch[text][row] or ""


def _column(part: Any, what: str, source: str, where: str) -> str:
    for name in _COLUMNS[what]:
        if name in part.column_names:
            return name
    has = shortened(", ".join(map(str, part.column_names)))
    raise DataError(f"{source}: column '{_COLUMNS[what][0]}' is missing in {where} (it has: {has})")


def _id(value: object, source: str) -> str:
    """An id; the hub has some as numbers.

    Raises:
        DataError: if it is neither a text nor a number.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise DataError(f"{source}: an id must be a text or a whole number, got {shown(value)}")
    return str(value)


def _as_integer(score: object) -> object:
    """A whole score as an integer, also where it is written with a point or as text; any other as it is."""
    if isinstance(score, float) and score.is_integer():
        return int(score)
    return int(score) if isinstance(score, str) and re.fullmatch("-?[0-9]{1,4}", score) else score


class _Hub:
    """The library ``datasets``, with its errors in one sentence.

    Args:
        source: what the user passed.
        cache: folder for its copies.
        name: what is read.
    """

    def __init__(self, source: str, cache: str, name: HubName) -> None:
        import datasets

        self.source, self._cache, self._name, self._library = source, cache, name, datasets
        datasets.utils.logging.set_verbosity(datasets.utils.logging.CRITICAL)
        logging.getLogger("huggingface_hub").setLevel(
            logging.ERROR
        )  # it logs each of its tries twice
        if not name.local:
            log.info("asking the hub for %s", name.place)
        if not sys.stderr.isatty():
            datasets.disable_progress_bars()

    def configs(self, place: str) -> list[str]:
        """Return the configurations of a data set."""
        try:
            return [
                str(name) for name in self._library.get_dataset_config_names(self._absolute(place))
            ]
        except Exception as error:
            raise self.explained(error, place) from error

    def splits(self, place: str, config: str) -> dict[str, Any]:
        """Return the splits of a configuration, memory-mapped."""
        try:
            return dict(
                self._library.load_dataset(self._absolute(place), config, cache_dir=self._cache)
            )
        except Exception as error:
            raise self.explained(error, place) from error

    def read(self, part: Any, columns: Sequence[str]) -> Iterator[dict[str, list[Any]]]:
        """Yield columns of a split in batches. Images and their like are refused: to decode one, a file that the row
        names is opened, or fetched."""
        from datasets.features.features import require_decoding

        for column in columns:
            kind = part.features[column]
            if require_decoding(kind) and type(kind).__name__ != "Json":
                raise DataError(
                    f"{self.source}: column {shown(column)} must hold texts or numbers, not {shown(kind)}"
                )
        try:
            yield from part.select_columns(list(dict.fromkeys(columns))).iter(
                batch_size=ROWS_AT_ONCE
            )
        except MemoryError:
            raise
        except Exception as error:
            raise self.explained(error, self._name.place) from error

    def note_commit(self, builder: DataBuilder, parts: Any) -> None:
        """Note which commit of the hub was read."""
        for part in parts:
            for url in part.info.download_checksums or {}:
                if found := re.search(r"@([0-9a-f]{12})[0-9a-f]{28}/", str(url)):
                    builder.notes.append(f"read at commit {found[1]}")
                    return

    def _absolute(self, place: str) -> str:
        return str(Path(place).resolve()) if self._name.local else place

    def explained(self, error: Exception, place: str) -> OperaError:
        """Return an error of the library in one sentence."""
        if isinstance(error, OperaError):
            return error
        if isinstance(error, OSError) and error.errno in ADVICE:
            return storage_error(Path(self._cache), error)
        lines = [line for line in str(error.__cause__ or error).splitlines() if line.strip()]
        reason = shortened(f"{type(error).__name__}: {lines[0] if lines else ''}")
        if self._name.local:
            return DataError(f"{self.source}: cannot be read ({reason})")
        fetch = f"hf download --repo-type dataset {place} --local-dir FOLDER"
        return DataError(
            f"{self.source}: cannot be fetched ({reason}); where there is a network: {fetch}; then pass hf:FOLDER"
        )
