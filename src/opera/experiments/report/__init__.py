"""Write a self-contained HTML page on a grid or a run; reads only run folders."""

from opera.experiments.report.write import report

__all__ = ["report"]
