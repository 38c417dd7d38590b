"""From a question to the text a policy reads.

Chat templates belong to the tokenizer, so they are applied next to it, in the rollout. What is rendered here
is the user's turn: few-shot examples and the question, each through the same template. The system prompt
stays separate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlinf_envs.errors import SettingError


@dataclass(frozen=True)
class PromptTemplate:
    """Renders questions; made by :func:`prompt_template`, which checks the parts."""

    template: str
    prefix: str

    def render(self, question: str) -> str:
        """Return the few-shot prefix, then the question in the template."""
        # Not str.format: a question is free to contain braces (LaTeX does), and so is the rest of the template.
        return self.prefix + self.template.replace("{question}", question)


def prompt_template(template: str, few_shot: Sequence[Mapping[str, str]] = ()) -> PromptTemplate:
    """Build a template around ``{question}``, preceded by worked examples.

    Args:
        template: contains ``{question}`` once; other braces stand for themselves.
        few_shot: examples with the keys ``question`` and ``response``, put before the question, a blank line
            between.

    Raises:
        SettingError: the template has no ``{question}``, or an example lacks a key or has another.
    """
    # YAML reads an unquoted {question} as a mapping.
    if not isinstance(template, str) or template.count("{question}") != 1:
        raise SettingError(f"prompt_template must be text (quoted) with {{question}} exactly once, got {template!r}")
    parts = []
    for number, example in enumerate(few_shot):
        if set(example) != {"question", "response"} or not all(isinstance(v, str) for v in example.values()):
            raise SettingError(
                f"few_shot[{number}] must have the text keys question and response, got {sorted(map(str, example))}"
            )
        parts.append(f"{template.replace('{question}', example['question'])}\n{example['response']}\n\n")
    return PromptTemplate(template=template, prefix="".join(parts))
