"""The graded responses of a run as a page shows them: every token with what is known of it, in little space."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlinf.data.pictures import for_page, pictures_of
from rlinf.report.runs import RunRecord

Decoder = Callable[[Sequence[int]], list[str]]
"""From token ids to their pieces of text, which joined are the whole."""
# UTF-8 has at most four bytes to a character, and a token at least one: more than that is no character at all.
_LONGEST_CHARACTER = 4

# A page stays below what a browser opens at once: responses beyond these are thinned or cut, and a note reports it.
MAX_SAMPLES = 1000
MAX_BYTES = 14_000_000
_TOKENS = (2000, 1000, 500, 250, 120, 60)
"""Of a response: the most that keep the whole below MAX_BYTES."""
_DIGITS = 4
_PER_TOKEN = ("logprobs", "advantages")
_OPTIONAL = ("seconds", "reward", "reward_terms", "versions")
"""Of a turn: left out where there is no value."""
_FEATURE = "▦"
"""What stands for a feature token of a picture."""
_REPEATED = ("mask", "response")
"""What the tokens of a response contain already."""


def samples(run: RunRecord) -> dict[str, Any]:
    """Return ``steps``: step -> responses; evenly many steps if there would be too many responses.

    Prompts and the pieces of tokens are numbers of entries of ``texts``, since both recur.
    """
    numbers = some_steps(run.samples, MAX_SAMPLES)
    has_tokens = any("tokens" in row for number in numbers for row in run.samples[number])
    decode = token_decoder(run.path) if has_tokens else None
    pieces = {number: [_pieces(row, decode) for row in run.samples[number]] for number in numbers}
    for most in _TOKENS:
        texts: dict[str, int] = {}
        steps = {
            str(number): [
                _sample(row, known, most, texts) for row, known in zip(run.samples[number], pieces[number], strict=True)
            ]
            for number in numbers
        }
        results = {"steps": steps, "texts": list(texts), "left_out": len(run.samples) - len(numbers)}
        if len(json.dumps(results, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")) <= MAX_BYTES:
            break
    return results


def some_steps(rows: Mapping[int, Sequence[object]], limit: int) -> list[int]:
    """All steps, or evenly many of them, so that there are at most about ``limit`` rows; the first and last stay."""
    numbers = sorted(rows)
    room = max(2, limit // max((len(one) for one in rows.values()), default=1))
    if len(numbers) <= room:
        return numbers
    return sorted({numbers[round(i * (len(numbers) - 1) / (room - 1))] for i in range(room)})


def _pieces(row: Mapping[str, Any], decode: Decoder | None) -> list[str] | None:
    return None if decode is None or "tokens" not in row else decode(row["tokens"][: _TOKENS[0]])


def _sample(row: Mapping[str, Any], pieces: Sequence[str] | None, most: int, texts: dict[str, int]) -> dict[str, Any]:
    """Return a row with at most ``most`` tokens; ``texts`` receives its texts."""

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    shown = {name: value for name, value in row.items() if name != "tokens"}
    for name in ("prompt", "rendered"):
        if isinstance(shown.get(name), str):
            shown[name] = number(for_page(shown[name]))
    if pieces is None:
        return shown
    count = len(row["tokens"])
    for name in _REPEATED:
        shown.pop(name, None)
    for name in [name for name in shown if name.endswith(_PER_TOKEN) and isinstance(shown[name], list)]:
        shown[name] = [None if value is None else round(value, _DIGITS) for value in shown[name][:most]]
    if "turns" in shown:
        shown["turns"] = [
            {
                **{key: value for key, value in turn.items() if key != "text" and (value or key not in _OPTIONAL)},
                **_turn_pictures(turn),
            }
            for turn in shown["turns"]
        ]
    shown["pieces"] = [number(piece) for piece in pieces[:most]]
    shown["cut_tokens"] = max(0, count - most)
    return shown


def _turn_pictures(turn: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the pictures that the environment shows in a turn."""
    if turn.get("speaker") == "policy":
        return {}
    result = pictures_of(for_page(str(turn.get("text", ""))))
    return {"pictures": result} if result else {}


def token_decoder(folder: Path) -> Decoder | None:
    """From token ids to their pieces of text; None without a tokenizer."""
    saved = folder / "tokenizer"
    if not saved.exists() or importlib.util.find_spec("transformers") is None:
        return None
    from rlinf.models.loading import load_tokenizer

    tokenizer = load_tokenizer(str(saved))

    def pieces(tokens: Sequence[int]) -> list[str]:
        # A character may take several tokens, and then belongs to the one that completes it. Each piece is decoded
        # behind the one before, as some tokenizers drop a leading space: the time is linear in the tokens.
        texts = []
        begin, seen = 0, 0
        for end in range(1, len(tokens) + 1):
            if tokens[end - 1] < 0:  # of a picture, which is shown next to its turn
                texts.append(_FEATURE)
                begin = seen = end
                continue
            known, text = tokenizer.decode(list(tokens[begin:seen])), tokenizer.decode(list(tokens[begin:end]))
            if text.endswith("\ufffd") and end < len(tokens) and end - seen < _LONGEST_CHARACTER:
                texts.append("")
                continue
            texts.append(text[len(known) :])
            begin, seen = seen, end
        return texts

    return pieces
