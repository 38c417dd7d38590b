"""From the bytes of an instruction to token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rlinf.data.spaces import SpaceError
from rlinf.schema.derived import prompted


def require_instruction(names: Sequence[str], task: str | None) -> None:
    """Raise SpaceError if neither text leaves ``names`` nor ``task`` give an instruction."""
    if not names and task is None:
        raise SpaceError(
            "the environment gives no instruction (no Text entry in its observation): write in policy.vla.task "
            "what it is to do"
        )


def instruction_texts(leaves: Mapping[str, Tensor], names: Sequence[str], task: str | None, rows: int) -> list[str]:
    """Return the instruction of each of ``rows``: its text leaves ``names`` in one line, or ``task`` without any."""
    if not names:
        return [task or ""] * rows
    joined = torch.cat([leaves[name] for name in names], dim=1).cpu().numpy()
    return [" ".join(part.decode() for part in row.tobytes().split(b"\0") if part) for row in joined]


def padded(ids: Sequence[Tensor], device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids int64 [N, L], zeros after the end, and which of them are there, bool [N, L]; L is the longest here."""
    lengths = torch.tensor([len(each) for each in ids])
    whole = torch.nn.utils.rnn.pad_sequence(list(ids), batch_first=True)
    return whole.to(device), (torch.arange(whole.shape[1])[None, :] < lengths[:, None]).to(device)


class Instructions:
    """Text leaves to padded ids. Every instruction ends in the end-of-sequence token, so none is empty.

    Each text is tokenised once.
    """

    def __init__(
        self, tokenizer: Any, names: Sequence[str], task: str | None, max_tokens: int, prompt: str | None = None
    ) -> None:
        """``task``: the instruction if no leaf in ``names`` has one; ``prompt``: see `config.facts.prompted`."""
        require_instruction(names, task)
        self.tokenizer = tokenizer
        self._names, self._task, self._max_tokens, self._prompt = tuple(names), task, max_tokens, prompt
        self._known: dict[str, Tensor] = {}

    def __call__(self, inputs: dict[str, Tensor], rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Ids int64 [N, L], zeros after the end, and which of them are there, bool [N, L]; L is the longest here."""
        return padded([self._ids(text) for text in instruction_texts(inputs, self._names, self._task, rows)], device)

    def _ids(self, text: str) -> Tensor:
        found = self._known.get(text)
        if found is None:
            words = prompted(self._prompt, text)
            ids = self.tokenizer.encode(words, add_special_tokens=False)
            if len(ids) >= self._max_tokens:
                raise SpaceError(
                    f"the instruction {words!r} has {len(ids)} tokens; policy.vla.max_instruction_tokens is "
                    f"{self._max_tokens}, the end of the sequence included"
                )
            found = self._known[text] = torch.tensor([*ids, self.tokenizer.eos_token_id], dtype=torch.int64)
        return found
