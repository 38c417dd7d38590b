"""What a picture costs a run: tokens of its prompt, and memory of a learner rank, by `policy.vision.max_pixels`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from rlinf.config import Config
from rlinf.config.derived import rows_per_iteration
from rlinf.data.pictures import opened
from rlinf.planning.describe import rank_memory
from rlinf.train.assemble.conversations import policy_reader

_SHARES = (1, 2, 4)
"""All, half and a quarter of a picture's pixels."""


def token_count(count: int) -> str:
    """Return a number of tokens in words.

    >>> token_count(1), token_count(1234)
    ('1 token', '1,234 tokens')
    """
    return f"{count:,} token{'s' * (count != 1)}"


def picture_costs(config: Config, tokenizer: Any, uri: str) -> list[str]:
    """Describe, a line a bound, the tokens of the picture at ``uri`` and the memory of a learner rank with them.

    The memory is of micro-batches in which each row has such a picture: an estimate from the architecture.
    """
    pixels = math.prod(opened(uri).size)
    lines = []
    for share in _SHARES:
        vision = replace(config.policy.vision, max_pixels=pixels // share, min_pixels=None)
        reader = policy_reader(replace(config, policy=replace(config.policy, vision=vision)), tokenizer)
        count = 0 if reader is None else reader.pixels(uri).count
        needed = rank_memory(config, count * rows_per_iteration(config))
        memory = f", a learner rank with one in each row needs at most {needed}" if needed else ""
        lines.append(f"max_pixels {pixels // share:,}: {token_count(count)}{memory}")
    return lines
