"""Reward terms beyond the verdict: texts compared, constraints counted, programs tested, services and models asked."""
