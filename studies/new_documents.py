"""Give a data set a test split of new documents: no training pair names any of them.

    .venv/bin/python studies/new_documents.py ../shared/data/toollens runs/toollens-new
    .venv/bin/opera train runs/toollens-new --model ../shared/models/potion-base-4m --out runs/new

Writes a BEIR folder. The old test split is left out, and so is dev: opera train draws a dev split as new as test.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from opera.data import load_data
from opera.data.splits import hold_out


def main() -> None:
    """Read the command line, and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="anything that opera.load_data reads")
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--fraction", type=float, default=0.05, help="share of the train queries that become test")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.out.exists():
        parser.error(f"{arguments.out} exists; give another folder")
    data = load_data(arguments.data)
    alone = replace(data, splits={"train": data.split("train")})
    split = hold_out(alone, "test", arguments.fraction, arguments.seed, "new-documents")
    split.write_beir(arguments.out)
    print(split.notes[-1])


if __name__ == "__main__":
    main()
