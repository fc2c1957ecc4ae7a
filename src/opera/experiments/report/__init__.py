"""A report: one self-contained HTML page on a grid or a run; reads run folders alone."""

from opera.experiments.report.write import report

__all__ = ["report"]
