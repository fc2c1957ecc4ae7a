"""Which files ir_datasets reads for an id, where it looks for them, and how to bring them there by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

_FILES = {
    "antique/train": ("docs", "train/queries", "train/qrels"),
    "antique/test": ("docs", "test/queries", "test/qrels"),
    "tripclick": ("benchmark",),
    "dpr-w100/trivia-qa/train": ("docs", "tqa-train"),
    "dpr-w100/trivia-qa/dev": ("docs", "tqa-dev"),
    "dpr-w100/natural-questions/train": ("docs", "nq-train"),
    "dpr-w100/natural-questions/dev": ("docs", "nq-dev"),
}
"""Files of ids that are not named as their files are."""


class SourceFile(NamedTuple):
    """A file that ir_datasets reads.

    Attributes:
        place: where it looks for the file.
        url: where it downloads the file from; empty where it cannot.
    """

    place: Path
    url: str


def home() -> Path:
    """Return ``$IR_DATASETS_HOME``, or the library's own choice."""
    import ir_datasets

    return Path(ir_datasets.util.home_path())


def source_files(ids: Iterable[str]) -> list[SourceFile]:
    """Return the files of some ids, each once, as far as ir_datasets tells; it must be installed."""
    import ir_datasets

    listed: dict[str, Any] = ir_datasets.util.DownloadConfig.contents()
    files = (file for identifier in ids for file in _files_of(listed, identifier))
    return list(dict.fromkeys(files))


def _files_of(listed: dict[str, Any], identifier: str) -> Iterator[SourceFile]:
    collection, _, rest = identifier.partition("/")
    entries = listed.get(collection, {})
    own = next(
        (keys for name, keys in _FILES.items() if f"{identifier}/".startswith(f"{name}/")), None
    )
    keys = own or [
        key for key in entries if f"{rest}/".startswith(f"{key}/") or key.startswith(f"{rest}/")
    ]
    for key in keys:
        entry = entries.get(key, {})
        if "cache_path" in entry:
            yield SourceFile(home() / collection / entry["cache_path"], entry.get("url", ""))
        elif "expected_md5" in entry:
            yield SourceFile(home() / "downloads" / entry["expected_md5"], entry.get("url", ""))


def how_to_fetch(ids: list[str]) -> str:
    """Say in one sentence which files are missing, where to get them, and where to put them."""
    collection = ids[0].split("/")[0]
    files = source_files(ids)
    page = f"https://ir-datasets.com/{collection}.html"
    missing = [file for file in files if not file.place.exists()]
    if missing:
        return "fetch by hand: " + "; ".join(
            f"{file.url} as {file.place}"
            if file.url
            else f"{file.place.name}, which has to be requested ({page}), as {file.place}"
            for file in missing
        )
    if files:
        places = ", ".join(
            f"{file.place} (from {file.url})" if file.url else str(file.place) for file in files
        )
        return f"if one of {places} is damaged, remove it"
    return f"{page} says where its files come from; they belong below {home() / collection}"
