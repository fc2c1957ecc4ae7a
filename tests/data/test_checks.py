"""Ids and texts that pass the checks survive a BEIR folder; the others are refused."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from opera.core.errors import DataError
from opera.data import RetrievalData, load_data
from opera.data.checks import check_id, check_text

STRINGS = st.text(st.characters() | st.sampled_from("\t\n\r\x0b\x85\u2028\ud83d \"'\\"), max_size=5)


def passes(check: object, value: object) -> bool:
    try:
        check("mine: value", value)  # type: ignore[operator]
    except DataError:
        return False
    return True


@settings(max_examples=40)
@given(STRINGS, STRINGS)
def test_what_passes_survives_a_beir_folder(identifier: str, text: str) -> None:
    assume(passes(check_id, identifier) and passes(check_text, text))
    qrels = {"train": {identifier: {identifier: 1}}}
    data = RetrievalData.from_dicts("mine", corpus={identifier: text}, queries={identifier: text}, qrels=qrels)
    with tempfile.TemporaryDirectory() as folder:
        data.write_beir(Path(folder))
        again = load_data(folder)
    assert again.corpus.ids() == again.queries.ids() == [identifier]
    assert again.corpus.texts() == again.queries.texts() == [text]
    assert again.split("train").grades.tolist() == [1]
