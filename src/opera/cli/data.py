"""``opera data``: the paper's data sets, where they come from, and fetching them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opera.cli.options import Answer, path_option
from opera.cli.screen import Screen, number_of
from opera.core.errors import SettingError, nearest
from opera.core.terminal import place, shown

if TYPE_CHECKING:
    from opera.data.catalogue import PaperSet

DIFFERS = 1
"""Exit status where a count differs from Table 8 and nobody knows why."""
COUNTS = ("documents", "train queries", "train pairs", "test queries", "test pairs")


def data(
    action: Annotated[
        str | None,
        typer.Argument(help="'get' fetches; without it, the sets are listed", show_default=False),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="data sets of the paper, or irds:ID, or hf:OWNER/NAME", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None,
        path_option("--out", "write the one set as a BEIR folder, too", show_default=False),
    ] = None,
) -> Answer:
    """List the paper's data sets, or fetch some and check their counts against the paper's Table
    8.
    """
    if action == "get":
        return _get(names or [], out)
    if action is not None:
        raise SettingError(
            f"{shown(action)}: must be get{nearest(action, ['get'])}; opera data alone lists the "
            "sets"
        )
    if out is not None:
        raise SettingError("--out: needs a data set to write: opera data get NAME --out FOLDER")
    from opera.data.catalogue import PAPER_SETS

    return Answer(lambda: [_record(entry) for entry in PAPER_SETS.values()], _print_sets)


def _record(entry: PaperSet) -> dict[str, Any]:
    """A data set of the paper as ``--json`` prints it."""
    from opera.data.irds_source import stored_at

    fields = ("name", "title", "domain", "source", "licence", "relevant_grade", "download_bytes")
    return {
        **{name: getattr(entry, name) for name in fields},
        "ir_datasets": dict(entry.splits),
        "counts": entry.table_counts,
        "text_bytes_estimate": entry.text_bytes,
        "embedding_bytes": entry.embedding_bytes(),
        "here": stored_at(entry.splits) is not None,
    }


def _print_sets(screen: Screen) -> None:
    """Print the paper's data sets: sizes, licences, sources and disk."""
    from rich.filesize import decimal

    from opera.data.catalogue import PAPER_SETS
    from opera.data.irds_source import stored_at

    sizes, origins = [], []
    for entry in PAPER_SETS.values():
        here = "yes" if stored_at(entry.splits) else ""
        counts = (f"{count:,}" for count in entry.table_counts.values())
        fetch = decimal(entry.download_bytes) if entry.download_bytes else "on request"
        disk = (f"~{decimal(entry.text_bytes)}", decimal(entry.embedding_bytes()))
        sizes.append((entry.name, f"{entry.title}, {entry.domain}", here, *counts))
        origins.append((entry.name, ", ".join(entry.splits.values()), entry.licence, fetch, *disk))
    screen.heading("the paper's data sets (Table 8)")
    screen.table(("NAME", "in the paper", "here", *COUNTS), sizes, words=3)
    heads = ("NAME", "ir_datasets", "licence", "to fetch", "texts", "embeddings")
    screen.table(heads, origins, words=3)
    screen.lines(
        "texts: in OPERA's cache. embeddings: of 1,024 fp32 numbers per document, as bge-large's.",
        "opera data get NAME fetches one; then paper:NAME is a data set wherever one is asked for.",
    )


def _get(names: Sequence[str], out: Path | None) -> Answer:
    """Fetch data sets, and set their counts beside the paper's."""
    from opera.core.files import replace_folder
    from opera.data import load_data
    from opera.data.catalogue import find_set
    from opera.data.irds_source import stored_at
    from opera.data.names import PUBLISHED
    from opera.experiments.paper.reproduce import count_notes

    if not names:
        raise SettingError(
            "get: needs the name of a data set, such as nfcorpus (opera data lists them)"
        )
    sources = [name if name.startswith(PUBLISHED) else find_set(name).source for name in names]
    entries = [find_set(s[6:]) if s.startswith("paper:") else None for s in sources]
    if out is not None:
        _check_out(out, sources)
    records: list[dict[str, Any]] = []
    lines: list[str] = []
    status = 0
    for source, entry in zip(sources, entries, strict=True):
        loaded = load_data(source)
        counts = loaded.counts() if entry is None else entry.counts_of(loaded)
        differing = [] if entry is None else entry.differing_counts(counts, loaded.left_out)
        listed = ", ".join(number_of(count, what) for what, count in counts.items())
        lines += [f"{loaded.source}: {listed}", *(f"  note: {note}" for note in loaded.notes)]
        if entry is not None:
            lines += [f"  {note}" for note in count_notes(entry, differing)] or [
                "  all counts are those of Table 8"
            ]
        if entry is not None and not all(each.reason for each in differing):
            status = DIFFERS
            files = f"They are read anew without {place(stored_at(entry.splits))}"
            lines.append(f"  no reason is known; are its files whole? {files}")
        if out is not None:
            replace_folder(out, loaded.write_beir)
            lines.append(f"  written to {place(out)}")
        facts = {"source": loaded.source, "fingerprint": loaded.fingerprint, "counts": counts}
        about = {"differs_from_table_8": list(map(vars, differing)), "notes": list(loaded.notes)}
        records.append({**facts, **about})
    return Answer(lambda: records, lambda screen: screen.lines(*lines), status)


def _check_out(out: Path, sources: Sequence[str]) -> None:
    from opera.core.files import check_folder
    from opera.data import check_stays_out

    if len(sources) > 1:
        raise SettingError(f"--out {place(out)}: takes one data set, got {len(sources)}")
    check_folder(out, "--out")
    if out.is_dir() and any(out.iterdir()):
        raise SettingError(f"--out {place(out)}: is not empty; pass a new folder")
    check_stays_out(out, "--out", sources[0], folder=True)
