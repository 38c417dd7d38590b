"""Runs in a verifier process. Importing it loads math-verify, so that no answer pays for that from its time."""

from __future__ import annotations

from rlinf_envs.math import symbolic
from rlinf_envs.math.grading import grade_answer

symbolic.equal("x+1", "1+x")

__all__ = ["grade_answer"]
