"""Rollouts drive environments with samplers and make batches."""
