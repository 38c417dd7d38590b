"""The meaning of every metric of a run: formula, unit, where it is healthy, and what to do where it is not."""
