"""Vision-language-action policies: images, state and an instruction in, chunks of discretised actions out."""

from rlinf.models.vla.options import VlaOptions
from rlinf.models.vla.policy import VlaPolicy

__all__ = ["VlaOptions", "VlaPolicy"]
