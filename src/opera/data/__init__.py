"""Retrieval data: corpus, queries, qrels and training pairs, and the sources that OPERA reads."""

from opera.core.cache import cache_folder
from opera.data.irds_source import load_irds_splits
from opera.data.loading import check_stays_out, files_read, load_all, load_data
from opera.data.mixture import Mixture, Source
from opera.data.python_source import load_python
from opera.data.qrels import GivenNegatives, Qrels, TeacherScores
from opera.data.retrieval_data import RetrievalData, counts_in_words, with_relevant_grade
from opera.data.sources import SOURCES, DataSource, register_source
from opera.data.splits import draw_missing_splits
from opera.data.texts import TextTable

__all__ = [
    "SOURCES",
    "DataSource",
    "GivenNegatives",
    "Mixture",
    "Qrels",
    "RetrievalData",
    "Source",
    "TeacherScores",
    "TextTable",
    "cache_folder",
    "check_stays_out",
    "counts_in_words",
    "draw_missing_splits",
    "files_read",
    "load_all",
    "load_data",
    "load_irds_splits",
    "load_python",
    "register_source",
    "with_relevant_grade",
]
