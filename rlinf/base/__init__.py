"""The base layer without reinforcement learning: errors, durable files, signals, processes, random streams."""
