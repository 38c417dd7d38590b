"""The ground that knows no reinforcement learning: errors, durable files, signals, child processes, random streams."""
