"""Rollouts: environments driven by a policy, and the batches that come of it."""
