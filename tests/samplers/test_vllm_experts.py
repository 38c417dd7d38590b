"""The experts that vLLM returns with a response, as a completion has them; no engine is started."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlinf.data.messages import SampleRequest, SamplingParams
from rlinf.samplers.vllm import VllmSampler

REQUEST = SampleRequest(0, (5, 6, 7), 1, SamplingParams(max_new_tokens=4), (1,))


def routes(found: Any, tokens: int = 3) -> np.ndarray:
    output: Any = SimpleNamespace(token_ids=list(range(tokens)), routed_experts=found)
    unmade: Any = None
    return VllmSampler._routes(unmade, REQUEST, output)


@pytest.mark.parametrize("given", [5, 6])
def test_each_token_but_the_last_has_its_experts_layer_after_layer(given: int) -> None:
    """3 tokens of the prompt and 3 of the response; an engine may return those of the last one too."""
    experts = np.arange(given * 2 * 4, dtype=np.int64).reshape(given, 2, 4)
    found = routes(experts)
    assert found.dtype == np.int16
    assert found.tolist() == experts[:5].reshape(5, 8).tolist()


@pytest.mark.parametrize("given", [None, np.zeros((4, 2, 4))])
def test_experts_that_are_missing_end_the_run(given: Any) -> None:
    with pytest.raises(RuntimeError, match="of a row of 6"):
        routes(given)
