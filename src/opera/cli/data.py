"""``opera data``: the paper's data sets, where they come from, and fetching them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opera.cli.options import JsonOption, path_option
from opera.core.errors import SettingError, nearest
from opera.core.terminal import json_text, place, say, shown

if TYPE_CHECKING:
    from opera.data import RetrievalData
    from opera.data.catalogue import CountDifference

DIFFERS = 1
"""Exit status where a count differs from Table 8 and nobody knows why."""


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
    json_: JsonOption = False,
) -> None:
    """List the paper's data sets, or fetch some and check their counts against the paper's Table
    8.
    """
    from opera.cli.printing.console import console
    from opera.cli.printing.data import print_sets, set_record

    if action is None:
        if out is not None:
            raise SettingError("--out: needs a data set to write: opera data get NAME --out FOLDER")
        if json_:
            from opera.data.catalogue import PAPER_SETS

            say(json_text([set_record(entry) for entry in PAPER_SETS.values()]))
        else:
            print_sets(console())
        return
    if action != "get":
        raise SettingError(
            f"{shown(action)}: must be get{nearest(action, ['get'])}; opera data alone lists the "
            "sets"
        )
    _get(names or [], out, json_)


def _get(names: list[str], out: Path | None, as_json: bool) -> None:
    from opera.cli.printing.data import print_counts
    from opera.core.files import check_folder, replace_folder
    from opera.data import check_stays_out, load_data
    from opera.data.catalogue import find_set
    from opera.data.names import PUBLISHED

    if not names:
        raise SettingError(
            "get: needs the name of a data set, such as nfcorpus (opera data lists them)"
        )
    if out is not None:
        if len(names) > 1:
            raise SettingError(f"--out {place(out)}: takes one data set, got {len(names)}")
        check_folder(out, "--out")
        if out.is_dir() and any(out.iterdir()):
            raise SettingError(f"--out {place(out)}: is not empty; pass a new folder")
    sources = [name if name.startswith(PUBLISHED) else find_set(name).source for name in names]
    entries = [
        find_set(source.removeprefix("paper:")) if source.startswith("paper:") else None
        for source in sources
    ]
    if out is not None:
        check_stays_out(out, "--out", sources[0], folder=True)
    records, unexplained = [], False
    for source, entry in zip(sources, entries, strict=True):
        loaded = load_data(source)
        counts = loaded.counts() if entry is None else entry.counts_of(loaded)
        differences = [] if entry is None else entry.differing_counts(counts, loaded.left_out)
        unexplained |= any(not difference.reason for difference in differences)
        records.append(_record(loaded, counts, differences))
        if out is not None:
            replace_folder(out, loaded.write_beir)
        if not as_json:
            print_counts(loaded, counts, entry, differences, out)
    if as_json:
        say(json_text(records))
    if unexplained:
        raise typer.Exit(DIFFERS)


def _record(
    loaded: RetrievalData, counts: dict[str, int], differences: list[CountDifference]
) -> dict[str, Any]:
    return {
        "source": loaded.source,
        "fingerprint": loaded.fingerprint,
        "counts": counts,
        "differs_from_table_8": [vars(difference) for difference in differences],
        "notes": list(loaded.notes),
    }
