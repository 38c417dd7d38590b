"""Metrics, samples, progress and the summary of a run."""
