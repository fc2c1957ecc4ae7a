"""The paper's eight data sets: where they come from, what they hold (Table 8), and under which
terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from opera.core.errors import DataError, nearest
from opera.core.terminal import shown

if TYPE_CHECKING:
    from opera.data.retrieval_data import RetrievalData

ON_REQUEST = "on request from the Trip Database, for research: tripdatabase.github.io/tripclick"


@dataclass(frozen=True)
class CountDifference:
    """A count of loaded data that is not Table 8's.

    Attributes:
        name: which one, as in ``RetrievalData.counts``.
        table: Table 8's.
        found: that of the data.
        reason: why, where it is known; else empty.
    """

    name: str
    table: int
    found: int
    reason: str


@dataclass(frozen=True)
class PaperSet:
    """A data set of the paper, with the counts of its Table 8.

    Attributes:
        name: what ``paper:NAME`` and ``opera data get NAME`` take; the recipe has the same name.
        title: the name in the paper's tables.
        domain: as in Table 8.
        licence: what its publisher states.
        splits: the ir_datasets id of each of our splits.
        documents: size of the corpus.
        train_queries: queries with a relevant document in train.
        train_pairs: relevant pairs in train.
        test_queries: queries with a relevant document in test.
        test_pairs: relevant pairs in test.
        download_bytes: the files to fetch, as ir_datasets states them; ``None`` where it does not.
        text_bytes: about what the texts take in the cache; an estimate.
        relevant_grade: lowest grade that counts as relevant; the recipe sets it too.
        on_request: how to get a set that cannot be downloaded; empty for one that can.
        known_counts: counts that differ from Table 8 in the files themselves, with the reason.
    """

    name: str
    title: str
    domain: str
    licence: str
    splits: Mapping[str, str]
    documents: int
    train_queries: int
    train_pairs: int
    test_queries: int
    test_pairs: int
    download_bytes: int | None
    text_bytes: int
    relevant_grade: int = 1
    on_request: str = ""
    known_counts: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """What loads it: ``paper:NAME``, wherever data are asked for."""
        return f"paper:{self.name}"

    @property
    def table_counts(self) -> dict[str, int]:
        """The counts of Table 8, by the names of ``RetrievalData.counts``."""
        names = ("documents", "train_queries", "train_pairs", "test_queries", "test_pairs")
        return {name: getattr(self, name) for name in names}

    def counts_of(self, loaded: RetrievalData) -> dict[str, int]:
        """Count loaded data as Table 8 does: at :attr:`relevant_grade`."""
        return loaded.with_relevant_grade(self.relevant_grade).counts()

    def differences(self, loaded: RetrievalData) -> list[CountDifference]:
        """Compare the counts of loaded data with Table 8."""
        return self.differing_counts(self.counts_of(loaded), loaded.left_out)

    def differing_counts(
        self, counts: Mapping[str, int], left_out: Mapping[str, int]
    ) -> list[CountDifference]:
        """Compare counts with Table 8.

        Args:
            counts: those of :meth:`counts_of`, which a run records.
            left_out: relevant pairs that name an empty text, by split, where they are known.
        """
        differing = []
        for name, expected in self.table_counts.items():
            found = counts.get(name, 0)
            known, reason = self.known_counts.get(name, (None, ""))
            if found == expected:
                continue
            empty_pairs = left_out.get(name.rpartition("_")[0], 0)
            if 0 < (expected if known is None else known) - found <= empty_pairs:
                empty = f"{empty_pairs:,} relevant pairs that name an empty text are left out"
                reason = f"{reason}; {empty}" if reason else empty
            elif found != known:
                reason = ""
            differing.append(CountDifference(name, expected, found, reason))
        return differing

    def embedding_bytes(self, dimension: int = 1024) -> int:
        """Disk that the documents' embeddings take: fp32 numbers; 1,024 of them for
        bge-large-en-v1.5.
        """
        return self.documents * dimension * 4


def _beir(name: str) -> dict[str, str]:
    return {split: f"beir/{name}/{split}" for split in ("train", "dev", "test")}


def _tripclick(part: str) -> dict[str, str]:
    # TripClick's own test has no public judgements; the counts of the paper's test are those of
    # val.
    return {"train": f"tripclick/train/{part}", "test": f"tripclick/val/{part}"}


PAPER_SETS: dict[str, PaperSet] = {
    entry.name: entry
    for entry in (
        PaperSet(
            "nfcorpus", "NFCorpus", "Nutrition", "free for academic use", _beir("nfcorpus"),
            3_633, 2_590, 110_575, 323, 12_334, download_bytes=2_448_432, text_bytes=6_000_000,
        ),
        PaperSet(
            "tripclick-head", "TripClick (h)", "Medical", ON_REQUEST, _tripclick("head"),
            1_523_878, 3_529, 55_663, 1_175, 32_067, download_bytes=None, text_bytes=2_700_000_000,
            on_request="benchmark.tar.gz",
        ),
        PaperSet(
            "tripclick-torso", "TripClick (t)", "Medical", ON_REQUEST, _tripclick("torso"),
            1_523_878, 105_964, 424_820, 1_175, 6_202, download_bytes=None, text_bytes=2_700_000_000,
            on_request="benchmark.tar.gz",
        ),
        PaperSet(
            "fiqa", "FiQA", "Finance", "none stated", _beir("fiqa"),
            57_638, 5_500, 14_166, 648, 1_706, download_bytes=17_948_027, text_bytes=46_000_000,
        ),
        PaperSet(
            "antique", "ANTIQUE", "Non-Factoid QA", "research use, under the authors' agreement",
            {"train": "antique/train", "test": "antique/test"},
            403_666, 2_426, 19_813, 200, 2_976, download_bytes=94_531_437, text_bytes=94_000_000, relevant_grade=3,
            known_counts={
                "test_pairs": (2_530, "levels 3 and 4 make 1,196 + 1,334; Table 8's 2,976 is what levels 1 and 4 make")
            },
        ),
        PaperSet(
            "triviaqa", "TriviaQA", "Factoid QA", "DPR's files: CC BY-NC 4.0; passages: Wikipedia, CC BY-SA 3.0",
            # The paper's test is DPR's dev: 8,837 queries, 82,658 pairs.
            {"train": "dpr-w100/trivia-qa/train", "test": "dpr-w100/trivia-qa/dev"},
            21_015_324, 78_785, 741_436, 8_837, 82_658, download_bytes=6_750_372_748, text_bytes=14_000_000_000,
        ),
        PaperSet(
            "hotpotqa", "HotpotQA", "Factoid QA", "CC BY-SA 4.0", _beir("hotpotqa"),
            5_233_329, 85_000, 170_000, 7_405, 14_810, download_bytes=654_025_350, text_bytes=1_700_000_000,
        ),
        PaperSet(
            "fever", "FEVER", "Fact Verif.", "CC BY-SA 3.0", _beir("fever"),
            5_416_568, 109_810, 140_085, 6_666, 7_937, download_bytes=1_236_988_269, text_bytes=3_000_000_000,
        ),
    )
}  # fmt: skip
"""All eight, in the order of Table 8."""


def find_set(name: str) -> PaperSet:
    """Return a data set of the paper by its name.

    Raises:
        DataError: for a name that is none of the eight.
    """
    found = PAPER_SETS.get(name)
    if found is None:
        known = ", ".join(PAPER_SETS)
        raise DataError(
            f"paper:{shown(name)[1:-1]}: no such data set{nearest(name[:100].lower(), PAPER_SETS)} "
            f"(known: {known})"
        )
    return found
