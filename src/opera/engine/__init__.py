"""One path through the trainer: rows, sampler, loss, observer, checkpoint; and PairPruning."""
