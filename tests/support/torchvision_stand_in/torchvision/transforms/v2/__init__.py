"""As torchvision has it."""

from torchvision.transforms import InterpolationMode as InterpolationMode
