"""Networks of the off-policy algorithms: actors trained through critics of state and action, and Q-networks."""
