"""Names of torchvision that transformers' classes for films import. A CPU build of torchvision is in no registry."""

__version__ = "0.28.0"
