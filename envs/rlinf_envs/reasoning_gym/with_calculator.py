"""Solutions as conversations with the calculator: every calculation is sent to it, and its result read.

A small language model finds the way through a problem long before it multiplies reliably. The first models
that were trained on grade-school problems had a calculator too (Cobbe et al. 2021, arXiv:2110.14168).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from rlinf_envs.math.calculator import call_of, result_of
from rlinf_envs.reasoning_gym.small_steps import calculation

_BARE = re.compile(r"[-+*/x×÷().,\d\s$£€₹]*")
"""A calculation without words and units, which its call stands for."""


def with_calculator(lines: Sequence[str]) -> list[str]:
    """Split the lines of a solution into the turns of policy and calculator, the policy first and last.

    >>> with_calculator(["He had 45 pens - 19 pens = 26 pens.", "#### 26"])
    ['He had 45 pens - 19 pens = <calc>45-19</calc>', '<result>26</result>', '26 pens.\\n#### 26']
    >>> with_calculator(["They pay 24 * 3=$72."])
    ['They pay <calc>24*3</calc>', '<result>72</result>', '$72.']
    """
    texts = [""]
    for line in lines:
        parts = line.split("=")
        texts[-1] += parts[0]
        for before, after in pairwise(parts):
            result = calculation(before, after)
            if result is None:
                texts[-1] += f"={after}"
                continue
            if _BARE.fullmatch(before, result.start):
                kept = len(texts[-1]) - len(before) + result.start
                texts[-1] = texts[-1][:kept].rstrip("$£€₹")
            else:
                texts[-1] = f"{texts[-1].rstrip()} = "
            texts[-1] += call_of(result.text)
            texts += [result_of(result.text), after.lstrip()]
        texts[-1] += "\n"
    texts[-1] = texts[-1].removesuffix("\n")
    return texts
