"""Which data sets a reproduction takes, and how its cells are cut into shards."""

from __future__ import annotations

from pathlib import Path

import pytest

from opera.core.errors import DataError, SettingError
from opera.experiments.paper import find_table
from opera.experiments.paper.cells import TableSettings
from opera.experiments.paper.plan import ReproductionPlan, Shard, plan_reproduction
from opera.experiments.paper.scale import SCALES
from opera.experiments.paper.sets import choose_sets, fetch_sets

MAIN = find_table("main")


def planned(seeds: tuple[int, ...] = (0, 1)) -> ReproductionPlan:
    shared = TableSettings(MAIN, "minilm", "paper", SCALES["full"], None, seeds, {})
    return plan_reproduction(shared, Path("grid"), *choose_sets(MAIN, SCALES["full"], None))


@pytest.mark.parametrize("count", [1, 3, 8, 64, 100])
def test_shards_share_the_cells_and_few_of_them_have_one_data_set(count: int) -> None:
    cells = planned().cells
    shards = [Shard(number, count).of(cells) for number in range(1, count + 1)]
    assert sorted(cell.folder for shard in shards for cell in shard) == sorted(cell.folder for cell in cells)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1
    if count == 8:
        assert [len({cell.data_name for cell in shard}) for shard in shards] == [1] * 8


@pytest.mark.parametrize("text", ["3", "0/3", "4/3", "1/0", "-1/3", "a/b", "1/2/3", "١/٢", ""])
def test_what_is_no_shard(text: str) -> None:
    with pytest.raises(SettingError, match="--shard: must be K/N with 1 <= K <= N <= 100,000, such as 3/32, got"):
        Shard.parse(text)


def test_data_sets_by_name_and_by_place() -> None:
    sources, left_out = choose_sets(MAIN, SCALES["full"], ["fiqa, antique", "nfcorpus=a,b/c=d"])
    assert sources == {"fiqa": "paper:fiqa", "antique": "paper:antique", "nfcorpus": "a,b/c=d"}
    assert left_out == {}
    assert len(choose_sets(MAIN, SCALES["full"], None)[0]) == 8


def test_a_small_scale_leaves_large_data_sets_out_and_says_so() -> None:
    sources, left_out = choose_sets(MAIN, SCALES["small"], None)
    assert list(sources) == ["nfcorpus", "fiqa"]
    assert left_out["fever"] == "5,416,568 documents are many for --scale small; --data fever takes it all the same"
    with pytest.raises(SettingError, match=r"fever: 5,416,568 documents are many .*; --data fever takes"):
        choose_sets(find_table("components"), SCALES["small"], None)
    assert list(choose_sets(MAIN, SCALES["small"], ["fever"])[0]) == ["fever"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["fiqaa"], "--data fiqaa: table main has no such data set; did you mean 'fiqa'?"),
        (["fiqa", "fiqa=x"], "--data: fiqa is given twice"),
        ([","], "--data: give at least one data set"),
        (["fiqa="], "--data fiqa: must not be empty"),
    ],
)
def test_mistakes_in_data_sets(given: list[str], message: str) -> None:
    with pytest.raises(SettingError) as caught:
        choose_sets(MAIN, SCALES["full"], given)
    assert message in str(caught.value)


def test_a_set_that_cannot_be_had_is_an_error(beir: Path) -> None:
    sources = {"nfcorpus": str(beir), "fiqa": "absent"}
    with pytest.raises(DataError, match="fiqa: absent: no such file") as caught:
        fetch_sets(sources, sources)
    assert str(caught.value).endswith("\n1 of 2 data sets cannot be had; --data nfcorpus goes without")
    (note,) = fetch_sets(sources, ["nfcorpus"])  # a shard loads its own data sets alone
    assert "nfcorpus has other counts than Table 8: documents" in note


def test_a_set_of_the_catalogue_that_cannot_be_had_may_come_from_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str) -> None:
        raise DataError("no network")

    monkeypatch.setattr("opera.experiments.paper.sets.load_data", refuse)
    with pytest.raises(DataError, match="1 of 1 data sets cannot be had; --data NAME=FOLDER takes one that you have"):
        fetch_sets({"fiqa": "paper:fiqa"}, ["fiqa"])
