"""Reward terms beyond the verdict: text comparisons, constraints, tests of programs, services and models."""
