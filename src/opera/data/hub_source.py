"""``hf:OWNER/NAME[@REVISION][/CONFIG][:SPLIT]``: data sets of the Hugging Face hub, or a folder
with the same layout.

OPERA reads two layouts. BEIR and MTEB use the configurations ``corpus`` and ``queries``. Their
judgements are in ``qrels`` or ``default``, or in another data set, ``OWNER/NAME-qrels``. The second
layout is tables of pairs. The library ``datasets`` runs no code of a data set since version 4.0.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from opera.core.cache import cache_folder
from opera.core.errors import DataError
from opera.core.files import replace_file
from opera.core.progress import shows_bars
from opera.core.terminal import log, shown
from opera.data.add_tables import add_tables
from opera.data.columns import Columns, TableKind
from opera.data.memory import table_of_dataset
from opera.data.names import SPLIT_NAMES, DataName
from opera.data.numbering import TextNumbering, load_relation
from opera.data.relation import Relation
from opera.data.retrieval_data import RetrievalData
from opera.data.store import DataBuilder, digest_files, library_errors
from opera.data.tables import Table

_HUB = re.compile(
    r"([\w.-]+/[\w.-]+)(?:@(refs/\w+/[\w.-]+|\w[\w.-]*))?(?:/([\w.-]+))?(?::([\w.-]+))?"
)
SECONDS = 10
"""How long to wait for the hub's answer, before OPERA uses its cache."""
UNREACHABLE = "the hub cannot be reached"
_OUTSIDE = re.compile(r"[/~]|.*(://|::)|(.*/)?\.[^/]")
"""Paths that lead out of a folder, or to a hidden file in it."""


class HubName(NamedTuple):
    """The parts of the name after ``hf:``.

    Attributes:
        repository: ``OWNER/NAME``, or a folder.
        config: the configuration of a data set of pairs, or ``None``.
        split: the only split to read, or ``None``.
        local: whether it is a folder.
        revision: the commit, tag or branch of ``OWNER/NAME`` to read, or ``None``: the newest.
        qrels_revision: the commit of ``OWNER/NAME-qrels``, or ``None``: the newest.
    """

    repository: str
    config: str | None
    split: str | None
    local: bool
    revision: str | None = None
    qrels_revision: str | None = None

    @classmethod
    def parse(cls, name: str) -> HubName:
        """Parse the name after ``hf:``. A local folder takes precedence over the hub."""
        folder, _, last_part = name.rpartition(":")
        for repository, split in ((name, None), (folder, last_part)):
            if repository and Path(repository).is_dir():
                # the judgements may be in the folder NAME-qrels, so "." and ".." need a name
                return cls(os.path.abspath(repository), None, split, True)  # noqa: PTH100
        if (match := _HUB.fullmatch(name)) is None:
            raise DataError(
                f"hf:{shown(name)[1:-1]}: must be OWNER/NAME, OWNER/NAME/CONFIG or a folder; "
                "add :SPLIT if wanted"
            )
        repository, revision, config, split = match.groups()
        return cls(repository, config, split, False, revision)

    @property
    def folders(self) -> tuple[Path, Path]:
        """A local data set, and the folder that may contain its judgements."""
        return Path(self.repository), Path(f"{self.repository}-qrels")


def load_hub(
    name: str, source: DataName | None = None, columns: tuple[tuple[str, str], ...] = ()
) -> RetrievalData:
    """Load a data set of the hub, from the cache if possible.

    Args:
        name: the name after ``hf:``.
        source: the user's name for the data, if it is not ``hf:NAME``.
        columns: (role, column) of pairs, if the user names columns.

    Raises:
        DataError: if the download fails, the layout is unknown, or the data break a rule.
    """
    hub_name, parsed = f"hf:{name}", HubName.parse(name)
    last_read = cache_folder() / "hub" / digest_files([], str(parsed))
    commits, notes = ([], ()) if parsed.local else _commits(parsed, hub_name, last_read)
    pinned = "" if parsed.revision is None else f"--revision {shlex.quote(parsed.revision)} "
    parsed = HubName(*parsed[:4], *(commits or parsed[4:]))
    files = _files(parsed, hub_name) if parsed.local else []
    names = [str(path.relative_to(Path(parsed.repository).parent)) for path in files]
    # a folder's key depends on its contents, and a hub data set's on its commits
    key = digest_files(files, f"hf\0{columns}\0{parsed.split}\0{names or parsed}")
    online = (
        f"on a machine with internet access, run: hf download --repo-type dataset "
        f"{parsed.repository} {pinned}--local-dir FOLDER; then pass hf:FOLDER"
    )
    advice = "correct the folder" if parsed.local else online

    def read(relation: Relation, builder: DataBuilder) -> None:
        # the library's copy of the data is not needed afterwards
        with (
            tempfile.TemporaryDirectory(dir=builder.folder) as cache,
            library_errors(hub_name, Path(cache), advice),
        ):
            _read(relation, builder, hub_name, parsed, Columns(columns), cache)

    title = Path(parsed.repository).name
    data = load_relation(key, title, source or hub_name, read, lenient=True, skip_bad_rows=None)
    if commits and not notes:
        last_read.parent.mkdir(exist_ok=True)
        replace_file(last_read, lambda path: path.write_text(" ".join(commits), encoding="utf-8"))
    return replace(data, notes=(*data.notes, *notes))


def _commits(name: HubName, source: str, last_read: Path) -> tuple[list[str], tuple[str, ...]]:
    """Return the commits of a data set and of its judgements, if they have a data set themselves.

    They are the newest ones. If the hub does not give them, they are those in the file
    ``last_read``, and a note says why. If OPERA cannot reach the hub and has no such file, there
    are none.

    Raises:
        DataError: if the hub has no such data set, and OPERA has no such file.
    """
    from huggingface_hub import dataset_info  # slow to import
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    try:
        newest = [dataset_info(name.repository, revision=name.revision, timeout=SECONDS).sha]
        with suppress(RepositoryNotFoundError):
            newest.append(dataset_info(f"{name.repository}-qrels", timeout=SECONDS).sha)
        return [str(commit) for commit in newest], ()
    except (RepositoryNotFoundError, RevisionNotFoundError):
        problem = f"{source} does not exist on the hub or is private"
    except Exception:  # the library for connections has other errors than the hub's
        problem = UNREACHABLE
    if last_read.is_file():
        commits = last_read.read_text(encoding="utf-8").split()
        return commits, (f"{problem}, so OPERA reads commit {commits[0][:12]} from its cache",)
    if problem == UNREACHABLE:
        return [], ()
    raise DataError(f"{problem}; correct the name, or log in with: hf auth login")


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
    return [path for path in paths if path.is_file()]


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
        about = DatasetCard.load(card).data.to_dict() if card.is_file() else {}
        texts = re.findall(r'"((?:[^"\\]|\\.)*)"', json.dumps(about.get("configs"), default=str))
        if outside := [text for text in texts if _OUTSIDE.match(text)]:
            raise DataError(
                f"{card}: configs: must name files in this folder, got {shown(outside[0])}"
            )


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

    if name.local:
        _check_card(name, source)
    else:
        log.info("asking the hub for %s", name.repository)
    if not shows_bars():
        datasets.disable_progress_bars()
    revision = name.revision
    if re.fullmatch("[0-9a-f]{40}", revision or ""):
        relation.note(f"read at commit {str(revision)[:12]}")

    def tables(repository: str, config: str) -> dict[str, Table]:
        """The splits of a configuration, memory-mapped."""
        splits = datasets.load_dataset(repository, config, cache_dir=cache, revision=revision)
        return {
            split: table_of_dataset(f"{source}, {config if split == config else split}", rows)
            for split, rows in splits.items()
        }

    configs = datasets.get_dataset_config_names(name.repository, revision=revision)
    texts: dict[TableKind, list[Table]] = {}
    repository = name.repository
    if {"corpus", "queries"} <= set(configs) and name.config is None:
        texts["documents"] = list(tables(repository, "corpus").values())
        texts["queries"] = list(tables(repository, "queries").values())
        judged = [config for config in configs if config in ("qrels", "default")]
        if not judged:
            repository, revision = f"{repository}-qrels", name.qrels_revision
            judged = datasets.get_dataset_config_names(repository, revision=revision)
        config = judged[0]
    else:
        config = _config_of_pairs(source, name, configs)
    pairs = _named_splits(source, name, tables(repository, config))
    add_tables(relation, texts, list(pairs.items()), columns)
    TextNumbering(relation, builder, next(iter(pairs.values())).name).build()


def _config_of_pairs(source: str, name: HubName, configs: Sequence[str]) -> str:
    """Return the configuration of a data set of pairs."""
    config = name.config or (configs[0] if len(configs) == 1 else "default")
    if config not in configs:
        raise DataError(
            f"{source}: choose one of its configurations ({', '.join(configs)}), as in "
            f"hf:{name.repository}/{configs[0]}"
        )
    return config


def _named_splits(source: str, name: HubName, splits: dict[str, Table]) -> dict[str, Table]:
    """Return the splits to read. A single split of another name is train."""
    wanted = name.split or (next(iter(splits)) if len(splits) == 1 else None)
    if wanted is None:
        return splits
    if wanted not in splits:
        raise DataError(f"{source}: has no split {shown(wanted)} (it has: {', '.join(splits)})")
    return {wanted if wanted in SPLIT_NAMES else "train": splits[wanted]}
