"""A small valid file to be spoiled by one line at a time."""

from config_cases import minimal as minimal
from config_cases import write as write
