"""Learners own weights and optimiser; one instance per rank."""
