"""Verified mathematics: grading answers, and an environment of question-and-answer datasets."""

from rlinf_envs.math.grading import Verdict
from rlinf_envs.math.pool import verify

__all__ = ["Verdict", "verify"]
