"""Log-probabilities of given tokens from an OpenAI-compatible server that echoes prompts (``vllm serve``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from rlinf.base.errors import UserError
from rlinf.data.batch import Batch
from rlinf.data.inputs import TextInputs
from rlinf.samplers.server_http import Server, ServerError

_TRIES = 3


class EchoServer:
    """A model behind HTTP that scores conversations, several at a time."""

    def __init__(
        self, base_url: str, *, model: str | None, timeout_s: float, concurrency: int, api_key_env: str | None = None
    ) -> None:
        """Raise ServerError if no server answers, UserError if the model is not the one or among those served."""
        self._server = Server(base_url, timeout_s=timeout_s, api_key_env=api_key_env)
        self._concurrency = concurrency
        served = [str(one["id"]) for one in self._server.call(f"{self._server.base}/models")["data"]]
        if model is None and len(served) != 1:
            raise UserError(f"teacher.base_url serves {', '.join(served)}: set teacher.model to one of them")
        if model is not None and model not in served:
            raise UserError(f"teacher.model: {self._server.name} serves {', '.join(served)}, not {model}")
        self.model = model or served[0]

    def tokenize(self, text: str) -> list[int] | None:
        """Return the ids that the server's tokenizer gives ``text``; None if the server has no ``/tokenize``."""
        body = {"model": self.model, "prompt": text, "add_special_tokens": False}
        try:
            return [int(token) for token in self._server.call(f"{self._server.root}/tokenize", body)["tokens"]]
        except ServerError:
            return None

    def score(self, batch: Batch) -> Tensor:
        """Return log-probabilities [B, T] of the batch's tokens; 0 where ``mask`` is false."""
        inputs = TextInputs.of(batch.inputs)
        prompts, lengths = inputs.prompt_ids, inputs.prompt_lengths.tolist()
        responses = inputs.response_lengths.tolist()
        rows = [
            (prompts[row, : lengths[row]].tolist(), batch.actions[row, : responses[row]].tolist())
            for row in range(batch.num_rows)
        ]
        result = torch.zeros(batch.mask.shape)
        with ThreadPoolExecutor(self._concurrency) as pool:
            for row, logprobs in enumerate(pool.map(lambda one: self._echoed(*one), rows)):
                result[row, : len(logprobs)] = torch.tensor(logprobs)
        return torch.where(batch.mask, result, 0.0)

    def _answer(self, body: Mapping[str, Any]) -> Any:
        """Return the server's answer; retry a connection that breaks off, since a request changes nothing there."""
        for left in reversed(range(_TRIES)):
            try:
                return self._server.call(f"{self._server.base}/completions", body)
            except ServerError as error:
                if not left or not isinstance(error.__cause__, ConnectionError):
                    raise
        raise AssertionError("the last try returns or raises")

    def _echoed(self, prompt: Sequence[int], response: Sequence[int]) -> list[float]:
        """Log-probability of each token of ``response`` behind ``prompt``."""
        if not response:
            return []
        body = {
            "model": self.model,
            "prompt": [*prompt, *response],
            "max_tokens": 1,
            "temperature": 1.0,
            "echo": True,
            "logprobs": 1,
        }
        (choice,) = self._answer(body)["choices"]
        reported = (choice.get("logprobs") or {}).get("token_logprobs") or []
        logprobs = reported[len(prompt) : len(prompt) + len(response)]
        if len(logprobs) != len(response) or None in logprobs:
            raise ServerError(f"{self._server.name} does not echo the log-probabilities of a prompt's tokens")
        return [float(logprob) for logprob in logprobs]
