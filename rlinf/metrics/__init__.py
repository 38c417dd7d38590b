"""The meaning of every metric of a run: formula, unit, its healthy range, and what to do outside it."""
