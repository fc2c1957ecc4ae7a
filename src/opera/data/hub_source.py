"""``hf:OWNER/NAME[@REVISION][/CONFIG][:SPLIT]``: data sets of the Hugging Face hub, or a folder
with the same layout.

OPERA reads two layouts. BEIR and MTEB use the configurations ``corpus`` and ``queries``. Their
judgements are in ``qrels`` or ``default``, or in another data set, ``OWNER/NAME-qrels``. The second
layout is tables of pairs. The library ``datasets`` runs no code of a data set since version 4.0.
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
"""Paths that lead out of a folder, or to a hidden file in it."""


class HubName(NamedTuple):
    """The parts of the name after ``hf:``.

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
        """Parse the name after ``hf:``. A folder goes before a data set of the hub."""
        source = f"hf:{shown(name)[1:-1]}"
        folder, _, part = name.rpartition(":")
        for place, split in ((name, None), (folder, part)):
            if place and Path(place).is_dir():
                # the judgements may be in the folder NAME-qrels, so "." and ".." need a name
                home = Path(place).resolve() if Path(place).name in ("", "..") else Path(place)
                if not home.name:
                    raise DataError(f"{source}: must be the folder of one data set")
                return cls(str(home), None, split, True)
        if (match := _HUB.fullmatch(name)) is None:
            raise DataError(
                f"{source}: must be OWNER/NAME, OWNER/NAME/CONFIG or a folder; add :SPLIT if wanted"
            )
        place, revision, config, split = match.groups()
        return cls(place, config, split, False, revision)

    @property
    def folders(self) -> tuple[Path, Path]:
        """A local data set, and the folder that may contain its judgements."""
        return Path(self.place), Path(f"{self.place}-qrels")


def load_hub(
    name: str, source: str | None = None, columns: tuple[tuple[str, str], ...] = ()
) -> RetrievalData:
    """Load a data set of the hub, from the cache if possible.

    Args:
        name: the name after ``hf:``.
        source: the user's argument, if it is not ``hf:NAME``.
        columns: (role, column) of pairs, if the user names columns.

    Raises:
        DataError: if the download fails, the layout is unknown, or the data break a rule.
    """
    place, parsed = f"hf:{name}", HubName.parse(name)
    if parsed.local:  # a folder's key depends on its contents; a hub data set is downloaded once
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
        # the library's copy of the data is not needed afterwards
        with tempfile.TemporaryDirectory(dir=builder.folder) as cache:
            try:
                with _quiet_libraries():
                    _read(relation, builder, place, parsed, Columns(columns), cache)
            except (OperaError, MemoryError):
                raise
            except Exception as error:
                raise _explained(error, place, parsed, cache) from error

    name = Path(parsed.place).resolve().name if parsed.local else Path(parsed.place).name
    parse = partial(parse_relation, read, lenient=True, skip_bad_rows=None)
    return load_or_parse(key, name, source or place, parse, named=not parsed.local)


def _files(name: HubName, source: str) -> list[Path]:
    """Return the files of a folder and of its judgements, without hidden files."""
    paths = [
        path
        for home in name.folders
        for path in sorted(home.rglob("*"))
        if not any(part.startswith(".") for part in path.relative_to(home).parts)
    ]
    if linked := [path for path in paths if path.is_symlink() and path.is_dir()]:
        raise DataError(
            f"{source}: {linked[0]}: is a link to a folder, which OPERA does not follow; replace "
            "it with a copy of the folder"
        )
    files = [path for path in paths if path.is_file()]
    if not files:
        raise DataError(f"{source}: has no files, or only hidden files")
    return files


def _check_card(name: HubName, source: str) -> None:
    """Check that a folder's card names only files inside the folder, and no URL."""
    from huggingface_hub import DatasetCard  # slow to import, and only a folder has a card

    for home in name.folders:
        card, hidden = home / "README.md", home / ".huggingface.yaml"
        if os.path.lexists(hidden):  # the library would read it
            raise DataError(
                f"{source}: {hidden}: OPERA does not read hidden files; move its contents to "
                "README.md"
            )
        try:
            about = DatasetCard.load(card).data.to_dict() if card.is_file() else {}
        except Exception as error:  # from the YAML parser
            raise DataError(f"{card}: is not a valid data set card ({first_line(error)})") from None
        texts = re.findall(r'"((?:[^"\\]|\\.)*)"', json.dumps(about.get("configs"), default=str))
        if outside := [text for text in texts if _OUTSIDE.match(text)]:
            raise DataError(
                f"{card}: configs: must name files in this folder, got {shown(outside[0])}"
            )


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Silence the log of ``datasets`` and ``huggingface_hub`` inside the block."""
    import datasets

    loggers = [logging.getLogger(name) for name in ("datasets", "huggingface_hub")]
    levels = [logger.level for logger in loggers]
    bars = datasets.are_progress_bars_disabled()
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)  # OPERA reports each error once
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
    """Read either layout with the library ``datasets``, which stores its copies in ``cache``."""
    import datasets

    if not name.local:
        log.info("asking the hub for %s", name.place)
    revision = name.revision

    def tables(place: str, config: str) -> dict[str, Table]:
        """The splits of a configuration, memory-mapped. A note has the commit."""
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
            place, revision = f"{place}-qrels", None  # another repository, with other commits
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
            f"{source}: has several configurations; choose one, as in hf:{name.place}/{wanted}"
        )
    return wanted


def _named_splits(source: str, name: HubName, splits: dict[str, Table]) -> dict[str, Table]:
    """Return the splits to read as train, dev and test. A single split of another name is train."""
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
    """Turn an error of the library into one sentence with advice."""
    if isinstance(error, OSError) and error.errno in ADVICE:
        return storage_error(Path(cache), error)
    lines = [line for line in str(error.__cause__ or error).splitlines() if line.strip()]
    reason = shortened(f"{type(error).__name__}: {lines[0] if lines else ''}")
    if name.local:
        return DataError(f"{source}: cannot be read ({reason})")
    pinned = "" if name.revision is None else f"--revision {name.revision} "
    download = f"hf download --repo-type dataset {name.place} {pinned}--local-dir FOLDER"
    return DataError(
        f"{source}: cannot be downloaded ({reason}); on a machine with internet access, run: "
        f"{download}; then pass hf:FOLDER"
    )
