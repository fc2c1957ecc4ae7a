"""The paper's result tables, side by side with those of a grid of runs."""
