"""Train: batches, loss and trainer of ``opera train``, and PairPruning for other scripts."""
