"""Generation that goes on while the learner trains: bounded staleness and over-sampling."""
