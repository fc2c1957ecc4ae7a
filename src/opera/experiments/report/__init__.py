"""A report: one self-contained HTML page on a grid or a run. It reads run folders and needs no torch."""

from opera.experiments.report.write import report

__all__ = ["report"]
