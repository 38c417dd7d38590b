"""Functions that are imported and never called."""


def __getattr__(name: str) -> None:
    """Any name is there, and is nothing."""
    if name.startswith("__"):
        raise AttributeError(name)
