"""The sampling distribution against hand-made cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tiny_models import seen_tokens

from rlinf.data.messages import SamplingParams
from rlinf.models.distribution import draw, processed_logits
from rlinf.samplers.streams import stream_key, uniforms

INF = float("inf")
PROBABILITIES = torch.tensor([[0.5, 0.25, 0.15, 0.1]])


def params(**changes: float) -> SamplingParams:
    return SamplingParams(max_new_tokens=1, **changes)  # type: ignore[arg-type]


def probabilities(**changes: float) -> torch.Tensor:
    return processed_logits(PROBABILITIES.log(), params(**changes)).softmax(-1)[0]


def test_temperature_sharpens() -> None:
    expected = PROBABILITIES[0] ** 2 / (PROBABILITIES[0] ** 2).sum()
    torch.testing.assert_close(probabilities(temperature=0.5), expected)


def test_top_k_and_top_p_keep_the_likeliest() -> None:
    torch.testing.assert_close(probabilities(top_k=2), torch.tensor([2 / 3, 1 / 3, 0.0, 0.0]))
    torch.testing.assert_close(probabilities(top_p=0.6), torch.tensor([2 / 3, 1 / 3, 0.0, 0.0]))
    torch.testing.assert_close(probabilities(top_p=0.01), torch.tensor([1.0, 0.0, 0.0, 0.0]))
    torch.testing.assert_close(probabilities(top_k=9), PROBABILITIES[0])


def test_filters_keep_a_token_that_was_drawn() -> None:
    logits = PROBABILITIES.log()
    kept = processed_logits(logits, params(top_p=0.6), chosen=torch.tensor([3]))
    assert torch.isfinite(kept[0]).tolist() == [True, True, False, True]


def test_repetition_penalty_acts_on_seen_tokens() -> None:
    logits = torch.tensor([[2.0, -2.0, 2.0]])
    seen = torch.tensor([[True, True, False]])
    processed = processed_logits(logits, params(repetition_penalty=2.0), seen=seen)
    assert processed.tolist() == [[1.0, -4.0, 2.0]]
    with pytest.raises(ValueError, match="needs `seen`"):
        processed_logits(logits, params(repetition_penalty=2.0))


def test_greedy_is_unfiltered_at_temperature_one() -> None:
    torch.testing.assert_close(probabilities(temperature=0.0, top_k=1, top_p=0.1), PROBABILITIES[0])


def test_seen_tokens_of_each_position() -> None:
    seen = seen_tokens(torch.tensor([2, 0, 1, 0]), start=2, length=2, vocabulary=4)
    assert seen.tolist() == [[True, False, True, False], [True, True, True, False]]


def test_draw_inverts_the_cumulative_distribution() -> None:
    numbers = torch.tensor([0.0, 0.499, 0.501, 0.76, 0.999999999], dtype=torch.float64)
    tokens, logprobs = draw(PROBABILITIES.log().expand(5, 4), params(), numbers)
    assert tokens.tolist() == [0, 0, 1, 2, 3]
    expected = [math.log(float(PROBABILITIES[0, token])) for token in tokens.tolist()]
    assert logprobs.tolist() == pytest.approx(expected, abs=1e-6)


def test_draw_never_takes_an_impossible_token() -> None:
    logits = torch.tensor([[-INF, 0.0, -INF, 0.0, -INF]]).expand(2, 5)
    tokens, _ = draw(logits, params(), torch.tensor([0.0, 1.0 - 2**-53], dtype=torch.float64))
    assert tokens.tolist() == [1, 3]


def test_streams_are_uniform_and_independent_of_each_other() -> None:
    keys = np.array([stream_key(0, (1, row), sample) for row in range(20) for sample in range(20)], dtype=np.uint64)
    assert len(set(keys.tolist())) == 400
    numbers = uniforms(keys, np.zeros(400, dtype=np.uint64), 500)
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    assert abs(numbers.mean() - 0.5) < 5 * math.sqrt(1 / 12 / numbers.size)
    columns = np.corrcoef(numbers[:50])
    assert np.abs(columns - np.eye(50)).max() < 0.25
    later = uniforms(keys[3:4], np.array([100], dtype=np.uint64), 5)
    assert later.tolist() == numbers[3:4, 100:105].tolist()


def test_stream_keys_separate_all_parts() -> None:
    parts = [
        (0, (1, 2), 3),
        (1, (0, 2), 3),
        (0, (1,), 3),
        (0, (1, 2), 4),
        (0, (2, 1), 3),
        (0, (1, 2, 0), 3),
        (-1, (1, 2), 3),
    ]
    assert len({stream_key(*part) for part in parts}) == len(parts)


def test_long_vocabularies_are_drawn_as_defined() -> None:
    """Several blocks, a last one that is not full, impossible tokens at the ends of blocks."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(200, 700, generator=generator)
    logits[:, 250:260] = -INF
    logits[:, 690:] = -INF
    numbers = torch.rand(200, generator=generator, dtype=torch.float64)
    numbers[:2] = torch.tensor([0.0, 1.0 - 2**-53], dtype=torch.float64)
    tokens, logprobs = draw(logits, params(), numbers)
    cumulative = logits.double().softmax(-1).cumsum(-1)
    expected = torch.searchsorted(cumulative, numbers[:, None] * cumulative[:, -1:], right=True).squeeze(-1)
    assert (tokens != expected).sum() <= 1, "but for a number on the border of two tokens"
    assert torch.isfinite(logprobs).all()
    torch.testing.assert_close(logprobs, logits.log_softmax(-1).gather(-1, tokens[:, None])[:, 0])


def test_nucleus_of_a_flat_distribution_needs_more_than_its_head() -> None:
    scores = torch.linspace(0.0, 0.1, 3000)[None]
    kept = torch.isfinite(processed_logits(scores, params(top_p=0.9)))[0]
    probability = scores.softmax(-1)[0]
    assert bool(kept[-1])
    assert float(probability[kept].sum()) == pytest.approx(0.9, abs=1e-3)
