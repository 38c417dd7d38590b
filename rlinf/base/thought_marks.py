"""The marks that models write around their thoughts, as regular expressions for prompts, training data and grading."""

from __future__ import annotations

_WORDS = "think|thinking|thought|thoughts|reasoning|reflection|seed:think"
OPENING = rf"<(?:{_WORDS})>|\[THINK\]|<\|begin_of_thought\|>"
CLOSING = rf"</(?:{_WORDS})>|\[/THINK\]|<\|end_of_thought\|>"
