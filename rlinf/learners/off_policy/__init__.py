"""Learning from a replay buffer: one learner, and an objective for each algorithm."""
