"""The guard: how much of a training to hand over, chosen on the dev split (issue 11)."""
