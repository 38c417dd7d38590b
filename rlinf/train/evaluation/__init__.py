"""Evaluation on held-out tasks and start states, with confidence intervals."""
