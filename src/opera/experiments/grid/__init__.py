"""Plan, run and analyse a grid of methods, seeds and steps on data sets."""
