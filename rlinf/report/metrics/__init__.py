"""What every metric of a run means: formula, unit, where it is healthy, and what to do where it is not."""
