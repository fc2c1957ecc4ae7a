"""A report: one self-contained HTML page on a grid or a run. Reads run folders only, needs no torch."""

from opera.experiments.report.write import report

__all__ = ["report"]
