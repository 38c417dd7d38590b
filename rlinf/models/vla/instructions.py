"""From the bytes of an instruction to token ids: each text is tokenised once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlinf.data.spaces import SpaceError
from rlinf.schema.derived import prompted


class Instructions:
    """Text leaves to padded ids. Every instruction ends in the end-of-sequence token, so none is empty."""

    def __init__(
        self, tokenizer: Any, names: Sequence[str], task: str | None, max_tokens: int, prompt: str | None = None
    ) -> None:
        """``task``: the instruction if no leaf in ``names`` has one; ``prompt``: see `config.facts.prompted`."""
        if not names and task is None:
            raise SpaceError(
                "the environment gives no instruction (no Text entry in its observation): say in policy.vla.task what "
                "it is to do"
            )
        self.tokenizer = tokenizer
        self._names, self._task, self._max_tokens, self._prompt = tuple(names), task, max_tokens, prompt
        self._known: dict[bytes, Tensor] = {}

    def __call__(self, inputs: dict[str, Tensor], rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Ids int64 [N, L], zeros after the end, and which of them are there, bool [N, L]; L is the longest here."""
        if self._names:
            joined = torch.cat([inputs[name] for name in self._names], dim=1).cpu().numpy()
            ids = [self._ids(row.tobytes()) for row in joined]
        else:
            ids = [self._ids((self._task or "").encode())] * rows
        lengths = torch.tensor([len(each) for each in ids])
        padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
        present = torch.arange(padded.shape[1])[None, :] < lengths[:, None]
        return padded.to(device), present.to(device)

    def _ids(self, text: bytes) -> Tensor:
        found = self._known.get(text)
        if found is None:
            words = prompted(self._prompt, " ".join(part.decode() for part in text.split(b"\0") if part))
            ids = self.tokenizer.encode(words, add_special_tokens=False)
            if len(ids) >= self._max_tokens:
                raise SpaceError(
                    f"the instruction {words!r} has {len(ids)} tokens; policy.vla.max_instruction_tokens is "
                    f"{self._max_tokens}, the end of the sequence included"
                )
            found = self._known[text] = torch.tensor([*ids, self.tokenizer.eos_token_id], dtype=torch.int64)
        return found
