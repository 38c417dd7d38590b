"""Random batches that the tests share, and ways to spoil them that must not matter."""

from __future__ import annotations

import torch

from rlinf.data.columns import RewardDetails, kinds_of

PER_TERM = tuple(name for name, kind in kinds_of(RewardDetails).items() if kind.axes == "BK")
"""The columns [B, K]."""


def rollout(seed, rows=6, positions=5):
    """Columns of a random batch: gaps in the mask, uneven groups of two or more, empty rows."""
    g = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, positions, generator=g) > 0.3
    flags = torch.rand(2, rows, positions, generator=g) > 0.8
    steps = torch.randn(rows, positions, generator=g)
    terms = torch.rand(2, rows, 3, generator=torch.Generator().manual_seed(seed + 1))
    return {
        "rewards": torch.randint(0, 3, (rows,), generator=g).float(),
        "mask": mask,
        "group_ids": torch.tensor([4, 7, 4, 7, 7, 4])[torch.randperm(rows, generator=g)],
        "values": torch.randn(rows, positions, generator=g),
        "bootstrap_values": torch.randn(rows, positions, generator=g),
        "terminated": flags[0],
        "truncated": flags[1],
        "step_rewards": torch.where(torch.rand(rows, positions, generator=g) > 0.5, steps, torch.nan),
        "logprobs": -torch.rand(rows, positions, generator=g),
        "ref_logprobs": -torch.rand(rows, positions, generator=g),
        "anchor_ids": torch.randint(-1, 2, (rows, positions), generator=g),
        "greedy_rewards": torch.rand(rows, generator=g),
        "teacher_logprobs": -torch.rand(rows, positions, generator=g),
        "reward_terms": torch.where(terms[0] > 0.2, terms[0], torch.nan),
        "reward_weights": terms[1],
    }


def padded(columns, before, after):
    """The same columns with positions of rubbish under a false mask on both sides."""
    rubbish = {torch.bool: True, torch.int64: 1, torch.float32: float("nan")}
    result = {}
    for name, column in columns.items():
        if column.ndim == 1 or name in PER_TERM:
            result[name] = column
            continue
        fill = False if name == "mask" else rubbish[column.dtype]
        sides = [column.new_full((column.shape[0], width), fill) for width in (before, after)]
        result[name] = torch.cat([sides[0], column, sides[1]], dim=1)
    return result


def spoiled(columns, value):
    """The same columns with rubbish under every false mask."""
    mask = columns["mask"]
    result = dict(columns)
    for name, column in columns.items():
        if column.ndim == 2 and name not in ("mask", *PER_TERM):
            if column.dtype == torch.bool:
                rubbish = ~column
            else:
                rubbish = column + 1 if column.dtype == torch.int64 else torch.full_like(column, value)
            result[name] = torch.where(mask, column, rubbish)
    return result


def loss_columns(seed, rows=6, positions=5):
    """Columns of a random minibatch for every loss."""
    g = torch.Generator().manual_seed(seed)
    names = ["old_logprobs", "advantages", "values", "old_values", "returns"]
    names += ["ref_logprobs", "entropy", "rollout_logprobs"]
    columns = {name: torch.randn(rows, positions, generator=g) for name in names}
    columns["mask"] = torch.rand(rows, positions, generator=g) > 0.3
    columns["logprobs"] = columns["old_logprobs"] + 0.3 * torch.randn(rows, positions, generator=g)
    return columns


COV = {"clip_cov": {"cov_ratio": 0.3, "cov_lower_bound": 0.1}, "kl_cov": {"cov_ratio": 0.3}}
"""Options under which the covariance losses pick some positions of so small a batch."""
