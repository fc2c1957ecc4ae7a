"""Texts such as "n/a" that fill empty cells."""

import json
from pathlib import Path

import opera
from opera.data.placeholders import find_placeholders, placeholders_sentence

TICKETS = [
    *((f"a real question {n}", f"a real answer {n}") for n in range(3)),
    *(("N/A", f"some answer {n}") for n in range(4)),
    *((f"another question {n}", "-") for n in range(3)),
    *(("asked twice", f"reply {n}") for n in range(3)),
    *((f"unanswered {n}", "<Unknown>") for n in range(3)),
    *(("test", f"twice {n}") for n in range(2)),
    *[("ok", "the same answer")] * 3,
    *((f"どこですか {n}", "東京です") for n in range(3)),
]


def test_repeated_short_texts_are_found_with_their_first_line(tmp_path):
    table = tmp_path / "tickets.csv"
    table.write_text("query,document\n" + "".join(f"{query},{document}\n" for query, document in TICKETS))
    found = find_placeholders(opera.load_data(table))
    assert [(each.role, each.text, each.pairs, each.file, each.line) for each in found] == [
        ("query", "N/A", 4, "tickets.csv", 5),
        ("document", "-", 3, "tickets.csv", 9),
        ("document", "<Unknown>", 3, "tickets.csv", 15),
    ]
    sentence = placeholders_sentence(found)
    assert sentence is not None
    assert "the query 'N/A' (4 pairs, the first at tickets.csv:5)" in sentence
    assert opera.inspect(table).placeholders == found
    in_memory = find_placeholders(opera.load_data(TICKETS))
    assert [(each.text, each.line) for each in in_memory] == [("N/A", None), ("-", None), ("<Unknown>", None)]


def test_a_run_warns_of_placeholders_and_keeps_them(tmp_path, static_model, caplog):
    rows = [
        *({"query": f"t{n % 4}w{n}", "positive": f"t{n % 4}w{n} w{n}"} for n in range(60)),
        *({"query": "?", "positive": f"a{n}"} for n in range(3)),
    ]
    Path(tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with caplog.at_level("INFO", logger="opera"):
        run = opera.adapt(tmp_path / "t.jsonl", model=static_model, out=tmp_path / "run", max_steps=2, bm25=False)
    (warning,) = [text for text in caplog.messages if "look like placeholders" in text]
    assert warning.startswith(
        "warning: t.jsonl: these texts look like placeholders: the query '?' (3 pairs, the first at t"
    )
    assert sum(count for name, count in run.record.data.counts.items() if name.endswith("_pairs")) == 63
