"""Conversations written as one text, with the roles' names or headings in it: of data sets, and of chat templates."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from rlinf.base.published_end_marks import without_end_marks

# HH-RLHF (arXiv:2204.05862) writes "\n\nHuman: ...\n\nAssistant: ...", Guanaco "### Human: ...### Assistant: ...".
_TURN = {
    "###": re.compile(r"### (Human|Assistant):"),
    "": re.compile(r"(?:\A\s*|\n\n)(Human|Assistant):"),
}
_ROLES = {"Human": "user", "Assistant": "assistant"}


def transcript_messages(value: Any) -> Any:
    """Return the messages of a transcript that begins with the human; all else as it is.

    A last turn without words, where a prompt stops for the answer, is left out.

    >>> transcript_messages("\\n\\nHuman: 2 + 2?\\n\\nAssistant: 4")
    [{'role': 'user', 'content': '2 + 2?'}, {'role': 'assistant', 'content': '4'}]
    """
    if not isinstance(value, str):
        return value
    start = value.lstrip()
    pattern = _TURN["###" if start.startswith("### ") else ""]
    marks = list(pattern.finditer(value))
    if not start.startswith(("Human:", "### Human:")) or "Assistant" not in {mark[1] for mark in marks}:
        return value
    ends = [*(mark.start() for mark in marks), len(value)]
    contents = [value[mark.end() : end].strip() for mark, (_, end) in zip(marks, pairwise(ends), strict=True)]
    turns = [{"role": _ROLES[mark[1]], "content": content} for mark, content in zip(marks, contents, strict=True)]
    return turns if contents[-1] else turns[:-1]


_INSTRUCTED = re.compile(r"^###\s*(?:Instruction|Question|User|Input):", re.MULTILINE)
_ANSWERED = re.compile(r"^###\s*(?:Response|Answer|Assistant|Output):(?:[ \t]*\n)?", re.MULTILINE)


def instructed_messages(value: Any) -> Any:
    """Return the messages of a text under Alpaca's headings: prompts to the letter, answers from ``### Response:`` on.

    All else, and a prompt without its answer, is returned as it is.

    >>> [one["content"] for one in instructed_messages("### Question: 2 + 2?\\n### Answer: 4")]
    ['### Question: 2 + 2?\\n### Answer:', ' 4']
    """
    if not isinstance(value, str):
        return value
    turns, start, opening = list[dict[str, str]](), 0, _INSTRUCTED.search(value)
    while opening is not None and (answered := _ANSWERED.search(value, opening.end())) is not None:
        opening = _INSTRUCTED.search(value, answered.end())
        end = len(value) if opening is None else opening.start()
        prompt, answer = value[start : answered.end()], without_end_marks(value[answered.end() : end]).rstrip()
        turns += [
            {"role": "user", "content": prompt.strip() if start else prompt},
            {"role": "assistant", "content": answer},
        ]
        start = end
    return turns if opening is None and turns and turns[-1]["content"].strip() else value


_RENDERED = (
    re.compile(r"<\|im_start\|>(\w+)\n"),
    re.compile(r"<\|start_header_id\|>(\w+)<\|end_header_id\|>"),
    re.compile(r"<start_of_turn>(\w+)\n"),
    re.compile(r"<\|(system|user|assistant|prompter)\|>"),
    re.compile(r"\[(/?INST)\]"),
)
"""What opens a message in texts of ChatML, Llama 3, Gemma, Zephyr and Llama 2; the latter two ends are open."""
_BEGIN = re.compile(r"\A\s*(?:<s>|<bos>|<\|begin_of_text\|>)?\s*")
_SYSTEM = re.compile(r"\s*<<SYS>>(.*?)<</SYS>>", re.DOTALL)
_RENDERED_ROLES = {"model": "assistant", "ipython": "tool", "INST": "user", "/INST": "assistant"}


def rendered_messages(value: Any) -> Any:
    """Return the messages of a text that a chat template of a widely used form has written; all else as it is.

    >>> rendered_messages("<s>[INST] <<SYS>>Be brief.<</SYS>> 2 + 2? [/INST] 4 </s>")[1:]
    [{'role': 'user', 'content': '2 + 2?'}, {'role': 'assistant', 'content': '4'}]
    """
    if not isinstance(value, str):
        return value
    text = _BEGIN.sub("", value)
    pattern = next((one for one in _RENDERED if one.match(text)), None)
    if pattern is None:
        return value
    marks = list(pattern.finditer(text))
    turns = []
    for mark, end in zip(marks, [*(mark.start() for mark in marks[1:]), len(text)], strict=True):
        content = text[mark.end() : end].strip().removesuffix("<s>")
        if mark[1] == "INST" and (system := _SYSTEM.match(content)) is not None:
            turns.append({"role": "system", "content": system[1].strip()})
            content = content[system.end() :]
        turns.append({"role": _RENDERED_ROLES.get(mark[1], mark[1]), "content": without_end_marks(content).strip()})
    return turns if turns[-1]["content"] else turns[:-1]
