"""Doubtful labels: ranks at the first visit, the estimate of wrong labels, and the list of
suspicious pairs."""
