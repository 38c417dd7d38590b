"""rlinf: one loop that trains language models on verified tasks and policies in simulators."""

__version__ = "0.1.0"
