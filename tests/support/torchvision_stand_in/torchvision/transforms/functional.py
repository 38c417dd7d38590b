"""Functions that are imported and never called."""

from torchvision.transforms import InterpolationMode as InterpolationMode


def __getattr__(name: str) -> None:
    """Any name is there, and is nothing."""
    if name.startswith("__"):
        raise AttributeError(name)
