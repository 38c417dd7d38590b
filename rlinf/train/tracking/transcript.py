"""Graded conversations as a terminal shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from rlinf.base.terminal import printable
from rlinf.data.pictures import described


def transcript(sample: Mapping[str, Any]) -> Text:
    """Return the conversation after the prompt: of several turns, each under the name of its speaker.

    ``sample`` has ``turns`` (see `conversation.Turn`), or, from an older run, a ``response`` alone.
    """
    turns = sample.get("turns") or ()
    if len(turns) < 2:
        return Text(printable(str(sample.get("response", ""))))
    return Text("\n").join(_spoken(turn) for turn in turns)


def _spoken(turn: Mapping[str, Any]) -> Text:
    policy = turn["speaker"] == "policy"
    facts = [turn["speaker"] if turn["role"] is None else f"{turn['speaker']} ({turn['role']})"]
    facts += [f"{turn['tokens']} tokens", *([] if policy else ["masked"])]
    if turn.get("versions"):
        facts.append(f"version {' to '.join(map(str, turn['versions']))}")
    if turn.get("seconds"):
        facts.append(f"{turn['seconds']:.2f} s")
    if turn.get("reward"):
        facts.append(f"reward {turn['reward']:.2f}")
    text = turn["text"] if policy else described(turn["text"])
    return Text.assemble((f"{', '.join(facts)}: ", "dim"), (printable(text), "" if policy else "cyan"))


def graded(sample: Mapping[str, Any]) -> Iterator[tuple[str, Text]]:
    """Yield (label, text) of a graded sample: the prompt as the policy read it, the conversation, and the verdict."""
    verdict = str(sample.get("verdict", ""))
    if sample.get("branches", 1) > 1:
        yield "branch", Text(f"{sample['branch'] + 1} of {sample['branches']} of this episode", style="dim")
    # Files of older versions have the question alone.
    yield "prompt", Text(printable(described(str(sample.get("rendered", sample.get("prompt", ""))))))
    yield "response", transcript(sample)
    yield (
        "graded",
        Text.assemble(
            (printable(verdict), "green" if verdict == "correct" else "red"),
            f"  answer {printable(str(sample.get('answer', '')))}  reward {sample.get('reward', 0.0):.2f}",
        ),
    )
