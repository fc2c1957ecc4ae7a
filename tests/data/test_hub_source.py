"""``hf:``: the library's own loading code on folders laid out as on the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pytest

from hub_world import write_beir_hub, write_mteb
from opera.core.errors import DataError
from opera.data import RetrievalData, files_read, load_data
from opera.data.hub_source import HubName
from tiny_world import write_beir

ROW = {"anchor": "a", "positive": "p", "negative": "n"}


def judged(data: RetrievalData, split: str) -> list[tuple[str, str, int]]:
    qrels = data.split(split)
    queries = data.queries.ids(qrels.query_rows[qrels.query_index])
    return list(zip(queries, data.corpus.ids(qrels.doc_rows), qrels.grades.tolist(), strict=True))


def test_the_layout_of_mteb(tmp_path: Path) -> None:
    folder = write_mteb(tmp_path / "small")
    data = load_data(f"hf:{folder}")
    with pytest.raises(DataError, match=r"is a BEIR folder: pass it without hf:$"):
        load_data(f"hf:{write_beir(tmp_path / 'data', n_docs=12, n_train=4, n_test=4)}")
    assert list(data.splits) == ["train", "dev", "test"]
    assert data.corpus.texts() == ["Title one", "two", ""]
    assert judged(data, "dev") == [("q2", "d1", 1), ("q2", "d2", 1)]
    assert "left out 3 judgements of missing documents, such as 'd9'" in data.notes
    assert data.name == "small"
    assert files_read(f"hf:{folder}") == [folder]
    assert list(load_data(f"hf:{folder}:test").splits) == ["test"]


def test_the_layout_of_beir(tmp_path: Path) -> None:
    folder = write_beir_hub(tmp_path / "small")
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "link-qrels").symlink_to(tmp_path / "small-qrels")
    for source in (f"hf:{folder}", f"hf:{folder}/", f"hf:{tmp_path / 'link'}"):
        data = load_data(source)
        assert judged(data, "train") == [("q1", "1", 2), ("q1", "2", 0)]
        assert list(data.splits) == ["train", "test"]


@pytest.mark.parametrize("name", [".hidden", "small"])
@pytest.mark.parametrize("way", ["folder", "here", "above"])
def test_no_folder_gives_the_data_of_another(
    name: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_mteb(tmp_path / name)
    monkeypatch.chdir(folder / "qrels" if way == "above" else folder)
    source = {"here": "hf:.", "above": "hf:.."}.get(way, f"hf:{folder}")
    first = load_data(source)
    assert (first.name, judged(first, "dev")) == (name, [("q2", "d1", 1), ("q2", "d2", 1)])
    path = folder / "qrels" / "validation.jsonl"
    path.unlink()
    (tmp_path / "linked").write_text('{"query-id": "q3", "corpus-id": "d1", "score": 1}\n')
    path.symlink_to(tmp_path / "linked")  # as in the hub's own cache
    assert judged(load_data(source), "dev") == [("q3", "d1", 1)]
    (folder / "again").symlink_to(tmp_path)
    with pytest.raises(DataError, match="again: is a link to a folder, which OPERA does not follow; replace"):
        load_data(source)


def test_a_single_split_is_train_unless_its_name_says_otherwise(tmp_path: Path) -> None:
    for split, ours in (("pairs", "train"), ("validation", "dev")):
        folder = write_mteb(tmp_path / split)
        card = (folder / "README.md").read_text().split("- config_name: default")[0]
        only = f"- config_name: default\n  data_files:\n  - split: {split}\n    path: qrels/test.jsonl\n"
        (folder / "README.md").write_text(f"{card}{only}---\n")
        for source in (f"hf:{folder}", f"hf:{folder}:{split}"):
            assert list(load_data(source).splits) == [ours]


def test_a_spoilt_file_is_one_message(tmp_path: Path) -> None:
    folder = write_mteb(tmp_path / "small")
    (folder / "corpus.jsonl").write_text('{"_id": "d1", \n')
    with pytest.raises(DataError, match=rf"^hf:{folder}: cannot be read \(DatasetGenerationError: "):
        load_data(f"hf:{folder}")
    (folder / "corpus.jsonl").write_text('{"name": "d1", "text": "x"}\n')
    with pytest.raises(
        DataError, match=r"small, corpus: OPERA recognises no column for the id; the columns are 'name'"
    ):
        load_data(f"hf:{folder}")


@pytest.mark.parametrize(
    ("home", "form", "path"),
    [
        *(("small", "data_files: {}", path) for path in (
            "../secret.csv", "hf://datasets/someone/something/x.csv", "https://there/x.csv", "zip://x.csv::../x.zip",
            "/etc/x", "~/x.csv", "in/../../secret.csv", ".hidden/x.csv")),
        ("small", "data_files: [{{split: '\\\"', path: [in.csv, {}]}}]", "/etc/x"),
        ("small-qrels", "data_dir: {}", "../secret.csv"),
    ],
)  # fmt: skip
def test_a_card_names_files_of_its_own_folder_only(
    path: str, form: str, home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.get_dataset_config_names", None)  # nothing is looked for before the card is read
    folder = write_mteb(tmp_path / "small")
    (tmp_path / home).mkdir(exist_ok=True)
    value = form.format(json.dumps(path))
    (tmp_path / home / "README.md").write_text(f"---\nconfigs:\n- config_name: a\n  {value}\n---\n")
    with pytest.raises(DataError, match=rf"/{home}/README\.md: configs: must name files in this folder, got "):
        load_data(f"hf:{folder}")


def test_a_card_in_another_place_or_that_is_none_is_refused(tmp_path: Path) -> None:
    folder = write_mteb(tmp_path / "small")
    (folder / "README.md").write_text("---\n[\n---\n")
    with pytest.raises(DataError, match=r"small/README\.md: is not a valid data set card"):
        load_data(f"hf:{folder}")
    (folder / ".huggingface.yaml").write_text("configs: []")
    with pytest.raises(DataError, match=r"\.huggingface\.yaml: OPERA does not read hidden files; move its contents"):
        load_data(f"hf:{folder}")


def test_no_file_is_opened_because_a_row_names_it(tmp_path: Path) -> None:
    """A card may call a column of texts one of images, which the library then opens or fetches."""
    folder = write_mteb(tmp_path / "small")
    kinds = "dataset_info:\n- config_name: corpus\n  features:\n" + "".join(
        f"  - name: {name}\n    dtype: {kind}\n"
        for name, kind in (("_id", "string"), ("title", "string"), ("text", "image"))
    )
    card = (folder / "README.md").read_text()
    (folder / "README.md").write_text(card.replace("---\n", f"---\n{kinds}", 1))
    with pytest.raises(DataError, match=r"column 'text' must contain texts or whole numbers, but its type is struct<"):
        load_data(f"hf:{folder}")


@pytest.mark.parametrize(
    ("file", "record", "message"),
    [
        ("corpus", {"_id": "d1", "text": ["a"]}, "corpus[0]: column 'text' must contain texts or whole numbers, but"),
        ("corpus", {"_id": None, "text": "a"}, "corpus[0]: column '_id' must not be empty"),
        ("corpus", {"_id": "a\n", "text": "a"}, "column '_id' must not contain a tab, a line break or another control"),
        ("queries", {"_id": 1.5, "text": "a"}, "column '_id' must be a text or a whole number, got 1.5"),
        ("qrels/test", {"query-id": "q3", "corpus-id": "d1", "score": None}, "column 'score' is missing"),
        ("qrels/test", {"query-id": "q9", "corpus-id": "d1", "score": 1}, "test: has no pairs"),
        ("qrels/test", {"query-id": "q9", "corpus": "d1", "score": 1}, "OPERA recognises no column for the document"),
    ],
)
def test_values_that_are_no_data(tmp_path: Path, file: str, record: dict[str, Any], message: str) -> None:
    folder = write_mteb(tmp_path / "small")
    for split in ("train", "validation", "test") if file.startswith("qrels") else ("",):
        path = folder / (f"qrels/{split}.jsonl" if split else f"{file}.jsonl")
        path.write_text(json.dumps(record) + "\n")
    with pytest.raises(DataError) as caught:
        load_data(f"hf:{folder}:test")
    assert message in str(caught.value)


def test_names() -> None:
    assert HubName.parse("mteb/nfcorpus") == ("mteb/nfcorpus", None, None, False, None)
    assert HubName.parse("a/b/triplet-hard:dev") == ("a/b", "triplet-hard", "dev", False, None)
    assert HubName.parse("a/b@1f2e/hard:dev") == ("a/b", "hard", "dev", False, "1f2e")
    assert HubName.parse("a/b@refs/pr/3") == ("a/b", None, None, False, "refs/pr/3")
    assert HubName.parse("a/b@refs/convert/parquet/hard") == ("a/b", "hard", None, False, "refs/convert/parquet")
    for wrong in ("", "nfcorpus", "a/b/c/d", "a/b:", "a b/c", "/etc/passwd", "a/b@", "a@x/b", "a/b@../x", "a/b@x/y/z"):
        with pytest.raises(DataError, match=r"must be OWNER/NAME, OWNER/NAME/CONFIG or a folder"):
            HubName.parse(wrong)


def test_a_revision_is_read_and_its_judgements_elsewhere_are_not_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"_id": ["1"], "text": ["a"]}
    columns = {"corpus": texts, "queries": texts, "default": {"query-id": ["1"], "corpus-id": ["1"], "score": [1]}}
    asked = []

    def configs(place: str, revision: str | None = None) -> list[str]:
        return ["default"] if place.endswith("-qrels") else ["corpus", "queries"]

    def load(place: str, config: str, cache_dir: str, revision: str | None) -> datasets.DatasetDict:
        asked.append((place, config, revision))
        return datasets.DatasetDict(train=datasets.Dataset.from_dict(columns[config]))

    monkeypatch.setattr("datasets.get_dataset_config_names", configs)
    monkeypatch.setattr("datasets.load_dataset", load)
    pinned = load_data("hf:o/n@v1")
    assert judged(pinned, "train") == [("1", "1", 1)]
    assert asked == [("o/n", "corpus", "v1"), ("o/n", "queries", "v1"), ("o/n-qrels", "default", None)]


def test_offline_it_says_what_to_fetch() -> None:
    with pytest.raises(DataError) as caught:
        load_data("hf:nobody/nothing:train")
    message = str(caught.value)
    assert message.startswith("hf:nobody/nothing:train: cannot be downloaded (")
    fetch = "hf download --repo-type dataset nobody/nothing --local-dir FOLDER"
    assert message.endswith(f"run: {fetch}; then pass hf:FOLDER")
    with pytest.raises(DataError, match="nobody/nothing --revision v1 --local-dir"):
        load_data("hf:nobody/nothing@v1")
