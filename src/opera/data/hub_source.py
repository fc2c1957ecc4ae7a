"""``hf:OWNER/NAME[@REVISION][/CONFIG][:SPLIT]``: data sets of the Hugging Face hub, or a folder
like one.

Two layouts are read. That of BEIR and MTEB on the hub: configurations ``corpus`` and ``queries``,
and judgements in ``qrels`` or ``default``, or in a data set of their own, ``OWNER/NAME-qrels``. And
tables of pairs, as in :mod:`opera.data.tables`. No code of a data set runs: the library
``datasets`` has no way to, since 4.0.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from opera.core.errors import DataError, OperaError
from opera.core.storage import ADVICE, storage_error
from opera.core.terminal import first_line, shortened, shown
from opera.data.adapters import add_tables
from opera.data.checks import check_id
from opera.data.columns import Columns, TableKind
from opera.data.index import Index, parse_relation
from opera.data.memory import table_of_dataset
from opera.data.names import SPLIT_NAMES
from opera.data.read import Table
from opera.data.relation import Relation
from opera.data.retrieval_data import RetrievalData
from opera.data.store import LAYOUT, DataBuilder, digest_files, load_or_parse

log = logging.getLogger("opera")

_HUB = re.compile(
    r"([\w.-]+/[\w.-]+)(?:@(refs/\w+/[\w.-]+|\w[\w.-]*))?(?:/([\w.-]+))?(?::([\w.-]+))?"
)
_OUTSIDE = re.compile(r"[/~]|.*(://|::)|(.*/)?\.[^/]")
"""Paths that lead out of a folder, or to what is hidden in it."""


class HubName(NamedTuple):
    """What stands behind ``hf:``.

    Attributes:
        place: ``OWNER/NAME``, or a folder.
        config: the configuration of a data set of pairs, or ``None``.
        split: the only split to read, or ``None``.
        local: whether it is a folder.
        revision: the commit, tag or branch of ``OWNER/NAME`` to read, or ``None``: the newest.
    """

    place: str
    config: str | None
    split: str | None
    local: bool
    revision: str | None = None

    @classmethod
    def parse(cls, name: str) -> HubName:
        """Read what stands behind ``hf:``; a folder goes before a data set of the hub."""
        source = f"hf:{shown(name)[1:-1]}"
        folder, _, part = name.rpartition(":")
        for place, split in ((name, None), (folder, part)):
            if place and Path(place).is_dir():
                # the judgements may be in the folder beside it, so "." and ".." need a name
                home = Path(place).resolve() if Path(place).name in ("", "..") else Path(place)
                if not home.name:
                    raise DataError(f"{source}: must be the folder of one data set")
                return cls(str(home), None, split, True)
        if (match := _HUB.fullmatch(name)) is None:
            raise DataError(
                f"{source}: must be OWNER/NAME, OWNER/NAME/CONFIG or a folder, then perhaps :SPLIT"
            )
        place, revision, config, split = match.groups()
        return cls(place, config, split, False, revision)

    @property
    def folders(self) -> tuple[Path, Path]:
        """A local data set, and the folder beside it that may have its judgements."""
        return Path(self.place), Path(f"{self.place}-qrels")


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
    if parsed.local:  # by contents; the hub is asked once, and the cache keeps what it said
        files = _files(parsed, place)
        names = [str(path.relative_to(Path(parsed.place).parent)) for path in files]
        key = digest_files(files, f"hf\0{columns}\0{parsed.split}\0{names}")
    else:
        key = hashlib.sha256(
            "\0".join((LAYOUT, "hf", *map(str, (columns, *parsed)))).encode()
        ).hexdigest()

    def read(relation: Relation, builder: DataBuilder) -> None:
        if parsed.local:
            _check_card(parsed, place)
        # the library's own copy is not needed afterwards
        with tempfile.TemporaryDirectory(dir=builder.folder) as cache:
            try:
                with _quiet_libraries():
                    _read(relation, builder, place, parsed, Columns(columns), cache)
            except (OperaError, MemoryError):
                raise
            except Exception as error:
                raise _explained(error, place, parsed, cache) from error

    name = Path(parsed.place).resolve().name if parsed.local else Path(parsed.place).name
    parse = partial(parse_relation, read, lenient=True, fast=False, skip_bad_rows=None)
    return load_or_parse(key, name, source or place, parse, named=not parsed.local)


def _files(name: HubName, source: str) -> list[Path]:
    """Return the files of a folder, and of the one with its judgements, but hidden ones."""
    paths = [
        path
        for home in name.folders
        for path in sorted(home.rglob("*"))
        if not any(part.startswith(".") for part in path.relative_to(home).parts)
    ]
    if linked := [path for path in paths if path.is_symlink() and path.is_dir()]:
        raise DataError(
            f"{source}: {linked[0]}: is a link to a folder, which is not read; put the folder "
            "itself there"
        )
    files = [path for path in paths if path.is_file()]
    if not files:
        raise DataError(f"{source}: has no files but hidden ones")
    return files


def _check_card(name: HubName, source: str) -> None:
    """Check that a folder's card names no file outside it, and no address to fetch."""
    from huggingface_hub import DatasetCard  # slow to import, and only a folder has a card

    for home in name.folders:
        card, hidden = home / "README.md", home / ".huggingface.yaml"
        if os.path.lexists(hidden):  # where the library would look, too
            raise DataError(
                f"{source}: {hidden}: hidden files are not read; write it into README.md"
            )
        try:
            about = DatasetCard.load(card).data.to_dict() if card.is_file() else {}
        except Exception as error:  # of the library's YAML
            raise DataError(
                f"{card}: cannot be read as the card of a data set ({first_line(error)})"
            ) from None
        texts = re.findall(r'"((?:[^"\\]|\\.)*)"', json.dumps(about.get("configs"), default=str))
        if outside := [text for text in texts if _OUTSIDE.match(text)]:
            raise DataError(
                f"{card}: configs: must name files in this folder, got {shown(outside[0])}"
            )


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Let ``datasets`` and ``huggingface_hub`` report errors alone, until the end."""
    import datasets

    loggers = [logging.getLogger(name) for name in ("datasets", "huggingface_hub")]
    levels = [logger.level for logger in loggers]
    bars = datasets.are_progress_bars_disabled()
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)  # what is raised is reported once, by OPERA
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if not bars:
            datasets.enable_progress_bars()


def _read(
    relation: Relation,
    builder: DataBuilder,
    source: str,
    name: HubName,
    columns: Columns,
    cache: str,
) -> None:
    """Read the layout that is there, by the library ``datasets``; ``cache`` is for its copies."""
    import datasets

    if not name.local:
        log.info("asking the hub for %s", name.place)
    revision = name.revision

    def tables(place: str, config: str) -> dict[str, Table]:
        """The splits of a configuration, memory-mapped; the commit that was read is noted."""
        splits = datasets.load_dataset(place, config, cache_dir=cache, revision=revision)
        urls = " ".join(str(part.info.download_checksums) for part in splits.values())
        commits = re.findall(r"@([0-9a-f]{12})[0-9a-f]{28}/", urls)
        notes = [f"read at commit {commit}" for commit in commits[:1]]
        relation.notes += [note for note in notes if note not in relation.notes]
        return {
            split: table_of_dataset(f"{source}, {config if split == config else split}", part)
            for split, part in splits.items()
        }

    folder = Path(name.place)
    if name.local and (folder / "corpus.jsonl").is_file() and any(folder.glob("qrels/*.tsv")):
        raise DataError(f"{source}: is a BEIR folder: pass it without hf:")
    place = str(folder.absolute()) if name.local else name.place
    configs = datasets.get_dataset_config_names(place, revision=revision)
    texts: dict[TableKind, list[Table]] = {}
    if {"corpus", "queries"} <= set(configs) and name.config is None:
        texts["documents"] = list(tables(place, "corpus").values())
        texts["queries"] = list(tables(place, "queries").values())
        judged = [config for config in configs if config in ("qrels", "default")]
        if not judged:
            place, revision = f"{place}-qrels", None  # a repository with commits of its own
            judged = datasets.get_dataset_config_names(place)
        config = judged[0]
    else:
        config = _config_of_pairs(source, name, configs)
    pairs = _named_splits(source, name, tables(place, config))
    add_tables(relation, texts, list(pairs.items()), columns)
    Index(relation, builder, next(iter(pairs.values())).name).build()


def _config_of_pairs(source: str, name: HubName, configs: list[str]) -> str:
    wanted = name.config or ("default" if "default" in configs else configs[0])
    if wanted not in configs:
        listed = ", ".join(configs)
        raise DataError(f"{source}: has no configuration {shown(wanted)} (it has: {listed})")
    if name.config is None and len(configs) > 1 and wanted != "default":
        raise DataError(
            f"{source}: has several configurations; give one, as in hf:{name.place}/{wanted}"
        )
    return wanted


def _named_splits(source: str, name: HubName, splits: dict[str, Table]) -> dict[str, Table]:
    """Return the splits to read by our names; a single split of another name is train."""
    wanted = name.split or (next(iter(splits)) if len(splits) == 1 else None)
    if wanted is None:
        named = {SPLIT_NAMES.get(split, split): part for split, part in splits.items()}
    elif wanted in splits:
        named = {SPLIT_NAMES.get(wanted, "train"): splits[wanted]}
    else:
        listed = ", ".join(splits)
        raise DataError(f"{source}: has no split {shown(wanted)} (it has: {listed})")
    for split in named:
        check_id(f"{source}: the name of a split", split)
    return named


def _explained(error: Exception, source: str, name: HubName, cache: str) -> OperaError:
    """Return an error of the library in one sentence."""
    if isinstance(error, OSError) and error.errno in ADVICE:
        return storage_error(Path(cache), error)
    lines = [line for line in str(error.__cause__ or error).splitlines() if line.strip()]
    reason = shortened(f"{type(error).__name__}: {lines[0] if lines else ''}")
    if name.local:
        return DataError(f"{source}: cannot be read ({reason})")
    pinned = "" if name.revision is None else f"--revision {name.revision} "
    fetch = f"hf download --repo-type dataset {name.place} {pinned}--local-dir FOLDER"
    return DataError(
        f"{source}: cannot be fetched ({reason}); where there is a network: {fetch}; then pass "
        "hf:FOLDER"
    )
