"""Sentences for prompts on the form that a response needs: one for each format and each tool."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rlinf_envs.marks import MARKS

_PLAIN = "Give only the answer, nothing else."
_SENTENCES: Mapping[str, str] = {
    "boxed": "Put the final answer in \\boxed{}.",
    "tag": "Put the final answer between <answer> and </answer>.",
    "think": "Think between <think> and </think>, then give the answer between <answer> and </answer>.",
    "####": 'End with a line that has "####" and then the final answer.',
    "plain": _PLAIN,
}
_CALCULATOR = "To calculate, write for example <calc>12 * 7</calc> and wait for the result."


def instructions(answer_format: str, rewarded: tuple[str, ...] = (), *, calculator: bool = False) -> Mapping[str, str]:
    """Return mark -> the sentence that requests it. A prompt that already holds the mark needs no such sentence.

    ``rewarded``: marks that a format reward pays for, if they are not those of ``answer_format``.

    >>> dict(instructions("boxed"))
    {'\\\\boxed': 'Put the final answer in \\\\boxed{}.'}
    >>> list(instructions("tag", ("<think>",), calculator=True))
    ['<think>', '<calc>']
    """
    formats = [name for name, mark in MARKS.items() if mark in rewarded and name != answer_format]
    if "think" in formats and answer_format == "tag":
        formats.remove("think")
        answer_format = "think"  # whose sentence requests the tag too
    sentences = {MARKS.get(name, _PLAIN): _SENTENCES[name] for name in (*formats, answer_format)}
    if calculator:
        sentences["<calc>"] = _CALCULATOR
    return MappingProxyType(sentences)
