"""``opera review``: what a run writes for it, the page, and the table for another judge."""

import csv
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opera
from opera.labels import review
from opera.labels.estimate import FirstVisits
from opera.labels.review import Labelled, chosen_items, in_order, training_items
from tiny_world import data_from_dicts, write_noisy_beir, write_table

HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def run(static_model, tmp_path_factory) -> opera.Run:
    """A run on pairs 40% of which are random, and whose queries hold HTML."""
    folder = write_noisy_beir(tmp_path_factory.mktemp("review") / "data", wrong_grade=1)
    queries = folder / "queries.jsonl"
    queries.write_text(queries.read_text().replace('"text": "', f'"text": "{HOSTILE} '))
    settings = {"per_device_train_batch_size": 32, "max_steps": 60, "learning_rate": 0.1}
    return opera.adapt(folder, model=static_model, out=folder.parent / "run", **settings)


def data_of(page: Path) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert match
    return dict(json.loads(match[1]))


def test_the_page_holds_every_list_and_its_texts_stay_texts(run):
    page = opera.review(run.path)
    assert page == run.path / "review.html"
    data = data_of(page)
    lists = Counter(item["list"] for item in data["items"])
    assert 0 < sum(lists.values()) <= 200
    assert lists["pairs"] > 0
    assert lists["changed"] > 0
    assert HOSTILE in data["items"][0]["query"]
    assert "default-src 'none'" in page.read_text()  # the browser fetches nothing
    assert len({item["id"] for item in data["items"]}) == len(data["items"])


def test_items_are_of_the_run(run):
    pairs = {*zip(*(run.pairs()[name].to_pylist() for name in ("query_id", "doc_id")), strict=True)}
    record = run.review()
    train = record["train"]
    assert {(item["query_id"], item["doc_id"]) for item in train["pairs"]} <= pairs
    assert not {(item["query_id"], item["doc_id"]) for item in train["missing"]} & pairs
    assert sum(train["strata"].values()) == run.pairs()["kept"].to_numpy(zero_copy_only=False).sum()
    table = run.per_query()
    labelled = dict(zip(table["query_id"].to_pylist(), table["relevant"].to_pylist(), strict=True))
    for item in record["test"]["missing"]:
        assert item["doc_id"] not in labelled[item["query_id"]]
    changes = record["changed"]
    assert changes["lost"] + changes["gained"] + changes["same"] == table.num_rows
    assert all(item["final"] < item["base"] for item in changes["losses"])


def test_a_notebook_shows_the_noise(run):
    assert "of the training pairs look" in (run._repr_html_() or "")


def test_the_same_run_gives_the_same_page_and_another_number_of_items(run, tmp_path):
    pages = [opera.review(run, tmp_path / f"{number}.html", items=20) for number in range(2)]
    assert pages[0].read_bytes() == pages[1].read_bytes()
    assert len(data_of(pages[0])["items"]) <= 20


def test_a_table_for_another_judge_can_be_given_back(run, static_model, tmp_path):
    table = opera.review(run, tmp_path / "review.csv")
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["decision"] for row in rows} == {""}
    pairs = [row for row in rows if row["list"] == "pairs"]
    for row, decision in zip(pairs, ("wrong", "correct", "correct"), strict=False):
        row["decision"] = decision
    write_table(table, rows)
    again = opera.adapt(run.record.data.source, model=static_model, out=tmp_path / "run", max_steps=2, decisions=table)
    done = f"1 pair removed, 0 added, 2 confirmed by {table}"
    assert again.record.data.notes[-1].endswith(done)
    assert opera.inspect(run.record.data.source, model=static_model, decisions=table).notes[-1] == done


def test_any_beginning_of_a_list_holds_a_random_sample_of_each_stratum():
    listed, unlisted = np.arange(50), np.arange(50, 1000)
    counts = np.zeros(1000)
    for seed in range(400):
        order = in_order(seed, listed, {"listed": listed, "unlisted": unlisted})
        assert len({pair for pair, _ in order}) == len(order)
        worst = [pair for pair, stratum in order if stratum is None]
        assert worst == sorted(worst)
        assert sum(stratum == "listed" for _, stratum in order) <= 1 + 0.4 * 50
        sample = [pair for pair, stratum in order[:35] if stratum == "listed"]
        counts[sample] += 1
    assert counts[listed].min() > 0.5 * counts[listed].mean()
    assert counts[listed].max() < 1.6 * counts[listed].mean()


def test_pruned_and_confirmed_pairs_are_not_reviewed_and_the_worst_come_first():
    train = {"a": {"d0": 1, "d1": 1, "d2": 1, "d3": 1}, "b": {"d4": 1}}
    corpus = {f"d{n}": f"text {n}" for n in range(5)}
    data = data_from_dicts("m", corpus=corpus, queries={"a": "a", "b": "b"}, qrels={"train": train})
    qrels, visits = data.split("train"), FirstVisits.none(5)
    labelled = Labelled(data, qrels.query_rows, qrels.pairs())
    visits.confirmed[0] = True
    record = training_items(labelled, None, visits, np.array([True, True, False, True, True]), 0)
    items = {item["doc_id"]: item for item in record["pairs"]}
    assert (items.keys(), record["strata"], record["confirmed"]) == ({"d1", "d3", "d4"}, {"unlisted": 3}, 1)
    assert [other["doc_id"] for other in items["d1"]["others"]] == ["d0", "d2"]
    ranks = dict(zip(corpus, (1, 5, 2, 9, 3), strict=True))
    pairs = review.test_items(labelled, np.array([*ranks.values()]), [""] * 5, 0)["pairs"]
    worst = [ranks[item["doc_id"]] for item in pairs if item["stratum"] is None]
    assert worst
    assert worst == sorted(worst, reverse=True)


def test_a_page_has_missing_labels_losses_gains_and_pairs_and_a_table_has_no_queries_or_formulas(tmp_path):
    part = {name: [{"query_id": f"{name}{n}"} for n in range(90)] for name in ("pairs", "missing", "losses", "gains")}
    items = chosen_items(part, {**part, "gains": part["gains"][:3]}, 100)
    changed = [item["query_id"] for item in items if item["list"] == "changed"]
    assert Counter(item["list"] for item in items) == {"pairs": 70, "missing": 20, "changed": 10}
    assert changed == [f"losses{n}" for n in range(7)] + [f"gains{n}" for n in range(3)]
    items[0]["query"] = "=1+1"
    step = review.NextStep("d.csv", "opera")
    review.ReviewPage("title", "train", part, items, step).write(tmp_path / "r.csv")
    rows = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert (len(rows), rows[0]["query"]) == (90, "'=1+1")


@pytest.mark.slow
def test_a_reader_decides_with_the_keyboard_reloads_saves_and_trains_again(run, static_model, tmp_path, open_page):
    page_file = opera.review(run)
    items = [item for item in data_of(page_file)["items"] if item["list"] == "pairs"][:40]
    page = open_page(page_file.as_uri())
    marks = 0
    for number, item in enumerate(items):
        assert page.inner_text(".query").startswith(HOSTILE)
        marks += page.locator("mark").count()
        page.keyboard.press("x" if item["stratum"] != "unlisted" else "c")
        if number == 20:
            page.reload()
    page.keyboard.press("u")
    page.keyboard.press("z")
    assert marks > 0, "words that query and document share are marked"
    left = (
        len(data_of(page_file)["items"]) - 40 - sum(item["list"] == "changed" for item in data_of(page_file)["items"])
    )
    assert page.inner_text("#left").startswith(f"{left} left to decide.")
    estimate = page.inner_text("#estimate")
    with page.expect_download() as download:
        page.click("#save")
    assert download.value.suggested_filename == data_of(page_file)["next"]["file"]
    assert page.inner_text("#next").startswith("Saved 40 decisions as data_decisions.csv")
    assert page.inner_text("#next code") == data_of(page_file)["next"]["command"]
    page.click("text=Changed queries")
    assert page.inner_text("#keys").endswith("opera review RUN --split test.")
    decisions = tmp_path / "decisions.csv"
    download.value.save_as(decisions)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    sampled = [item for item in items if item["stratum"]]
    assert estimate.startswith(f"{len(sampled)} random labels checked: ")
    with decisions.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 40
    wrong = sum(row["decision"] == "wrong" for row in rows)
    settings = {"per_device_train_batch_size": 32, "max_steps": 60, "learning_rate": 0.1}
    again = opera.adapt(
        run.record.data.source, model=static_model, out=tmp_path / "again", decisions=decisions, **settings
    )
    assert again.record.data.notes[-1].startswith(f"{wrong} pairs removed, 0 added, {40 - wrong} confirmed by ")
    assert again.per_query()["query_id"].equals(run.per_query()["query_id"])
    listed = {(row["query_id"], row["doc_id"]) for row in rows}
    with (again.path / "suspicious_pairs.csv").open(newline="") as file:
        assert listed.isdisjoint((row["query_id"], row["doc_id"]) for row in csv.DictReader(file))


@pytest.mark.slow
def test_saved_decisions_carry_the_line_and_the_users_columns_and_train(static_model, tmp_path, open_page):
    table = tmp_path / "tickets.csv"
    rows = [f"{row},Zoë {row},how to reset part {row},press button {row}" for row in range(60)]
    table.write_text("\n".join(["id,agent,question,answer", *rows]), encoding="utf-8")
    page = open_page(opera.review(opera.adapt(table, model=static_model, out=tmp_path / "run", max_steps=2)).as_uri())
    assert page.inner_text("#title") == "Labels of tickets.csv in run"
    item = data_of(tmp_path / "run" / "review.html")["items"][0]
    assert page.locator("#item .label").nth(1).inner_text() == f"document {item['doc_id']} · labelled as relevant"
    for _ in range(5):
        page.keyboard.press("c")
    with page.expect_download() as download:
        page.click("#save")
    download.value.save_as(tmp_path / "d.csv")
    with (tmp_path / "d.csv").open(newline="", encoding="utf-8") as file:
        saved = list(csv.DictReader(file))
    assert len(saved) == 5
    for row in saved:
        number = int(row["line"]) - 2
        assert (row["file"], row["my:agent"], row["my:id"]) == ("tickets.csv", f"Zoë {number}", str(number))
        assert row["query"] == f"how to reset part {number}"
    again = opera.adapt(table, model=static_model, out=tmp_path / "again", max_steps=2, decisions=tmp_path / "d.csv")
    assert "5 confirmed" in again.record.data.notes[-1]


def test_the_next_command_repeats_the_run_with_the_decisions_of_all_rounds(trained, tmp_path, run_opera, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained.path, "a run")
    record = json.loads(Path("a run", "run.json").read_text())
    Path("a run-2").mkdir()
    for earlier, options in (
        ([], "--decisions DATA_decisions.csv"),
        (["DATA_decisions.csv"], "--decisions DATA_decisions.csv --decisions DATA_decisions2.csv"),
    ):
        data = Path(record["data"]["source"]).stem
        record["settings"]["decisions"] = [name.replace("DATA", data) for name in earlier]
        Path("a run", "run.json").write_text(json.dumps(record))
        step = data_of(opera.review("a run"))["next"]
        assert step["file"] in options.replace("DATA", data).split()[-1]
        model = f"--model {record['model']['source']} --config 'a run/model/recipe.yaml'"
        command = f"opera train {record['data']['source']} {model} --out 'a run-3' {options.replace('DATA', data)}"
        assert step["command"] == command
        printed = run_opera("review", "a run").stdout
        assert f"  {command}\n" in printed, "one line, however long"
    step = data_of(opera.review("a run", split="test"))["next"]
    assert step["command"] == f"opera report 'a run' --decisions {data}_test_decisions.csv"


def test_the_data_of_a_run_are_written_without_the_wrong_pairs(static_model, tmp_path, run_opera, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [f"{row},how to reset part {row},press button {row}\n" for row in range(60)]
    Path("tickets.csv").write_text("id,question,answer\n" + "".join(lines))
    opera.adapt("tickets.csv", model=static_model, out="run", max_steps=2)
    Path("d.csv").write_text(
        'query_id,doc_id,decision,query,document\nx,x,wrong,"how to reset part 7","press button 7"\n'
        'y,y,correct,"how to reset part 8","press button 8"\n'
    )
    done = run_opera("review", "run", "--clean", "clean.csv", "--decisions", "d.csv", "--json")
    assert json.loads(done.stdout) == {"file": "clean.csv"}, done.stderr
    assert Path("clean.csv").read_text() == "id,question,answer\n" + "".join(lines[:7] + lines[8:])
    with pytest.raises(opera.SettingError, match="--clean: pass the saved decisions"):
        opera.review("run", clean="other.csv")
    with pytest.raises(opera.SettingError, match="needs --clean"):
        opera.review("run", with_missing=True)
    with pytest.raises(opera.SettingError, match="is read by this command"):
        opera.review("run", clean="tickets.csv", decisions="d.csv", overwrite=True)
    with Path("tickets.csv").open("a") as file:
        file.write("60,new,row\n")
    with pytest.raises(opera.DataError, match=r"tickets\.csv: has changed since the run"):
        opera.review("run", clean="other.csv", decisions="d.csv")


def test_lists_carry_the_line_and_the_columns_of_the_users_file(static_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [f"{chr(97 + row % 26)}{row}" for row in range(700)]
    rows = [f'Zoë {row};word{word} other{word};"the {word}\nanswer {row}"\n' for row, word in enumerate(words)]
    Path("tickets.csv").write_text("agent;question;answer\n" + "".join(rows), encoding="utf-8")
    run = opera.adapt("tickets.csv", model=static_model, out="run", max_steps=60, per_device_train_batch_size=32)
    items = run.review()["train"]["pairs"]
    item = next(item for item in items if item["query"].startswith("worda0 "))
    assert item["row"] == {"file": "tickets.csv", "line": "2", "my:agent": "Zoë 0"}
    changed = run.review()["changed"]
    others = [*run.review()["train"]["missing"], *changed["losses"], *changed["gains"]]
    rows_of_others = [(item["query"].split()[0], item["row"]) for item in others if "row" in item]
    assert rows_of_others
    for word, row in rows_of_others:
        assert word == f"word{words[int(row['line']) // 2 - 1]}"
        assert row["my:agent"] == f"Zoë {int(row['line']) // 2 - 1}"
    with opera.review(run, "review.csv").open(newline="", encoding="utf-8") as file:
        table = [row for row in csv.DictReader(file) if row["list"] == "pairs"]
    assert {"file", "line", "my:agent"} <= table[0].keys()
    assert {row["my:agent"].split()[1] for row in table} >= {str(int(row["line"]) // 2 - 1) for row in table}
    with (run.path / "suspicious_pairs.csv").open(newline="", encoding="utf-8") as file:
        suspicious = list(csv.DictReader(file))
    for row in suspicious:
        assert row["query"].split()[0] == f"word{words[int(row['line']) // 2 - 1]}"
    again = opera.adapt(
        "tickets.csv", model=static_model, out="run2", max_steps=2, decisions="run/suspicious_pairs.csv"
    )
    assert again.record.data.notes[-1].startswith(f"{len(suspicious)} pairs removed")
