"""A data source of one's own: a .csv file with the columns question and answer, one training pair per row."""

import csv
from pathlib import Path

from opera.data import RetrievalData, register_source


@register_source
class QuestionAnswerCsv:
    description = "a .csv file with the columns question and answer"

    def matches(self, source: str) -> bool:
        return source.endswith(".csv")

    def load(self, source: str) -> RetrievalData:
        rows = dict(enumerate(csv.DictReader(Path(source).read_text(encoding="utf-8").splitlines())))
        return RetrievalData.from_dicts(
            source,
            queries={f"q{n}": row["question"] for n, row in rows.items()},
            corpus={f"d{n}": row["answer"] for n, row in rows.items()},
            qrels={"train": {f"q{n}": {f"d{n}": 1} for n in rows}},
        )
