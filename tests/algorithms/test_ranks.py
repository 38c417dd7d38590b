"""Two gloo ranks, which share groups and hold different numbers of rows, get the numbers of one."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from rlinf.algorithms import compute_advantages, process_rewards
from rlinf.algorithms.advantages.registry import ADVANTAGES
from rlinf.algorithms.aggregation import LossCounts
from rlinf.algorithms.filters import difficulty_mask, dynamic_sampling, filter_rewards
from rlinf.algorithms.metrics import finalise_metrics, reduce_metrics
from rlinf.algorithms.objective import Objective
from rlinf.algorithms.prepare import AlgorithmState, prepare_batch
from rlinf.algorithms.running import RewardState
from rlinf.algorithms.statistics import ONE_RANK, Ranks, TorchRanks
from rlinf.types import Batch
from tests.algorithms.batches import COV, loss_columns, rollout

CUTS = (2, 0)
"""Where the rows are cut in two: in the middle of groups, and so that one rank has nothing."""
DOMAINS = ["math", "code", "math", "code", "code", "math"]


def everything(rows: slice, ranks: Ranks) -> dict[str, torch.Tensor]:
    """Per-row results of every function that takes ranks, for some rows of the same batch."""
    columns = {name: column[rows] for name, column in rollout(11).items()}
    found, metrics = prepared(columns, ranks)
    found |= estimates(columns, ranks) | outcomes(columns, DOMAINS[rows], ranks)
    metrics |= losses({name: column[rows] for name, column in loss_columns(12).items()}, ranks)
    numbers = torch.tensor([metrics[key] for key in sorted(metrics)], dtype=torch.float64)
    return {**found, "metrics": numbers.expand(len(columns["mask"]), -1)}


def estimates(columns, ranks):
    options = {"normalize_advantages": True, "keep_zero_groups": True, "whiten_rewards": True, "kl_coef": 0.1}
    found = {name: compute_advantages(name, **columns, ranks=ranks, **options) for name in ADVANTAGES}
    return {name: torch.cat(estimate, dim=1) for name, estimate in found.items()}


def outcomes(columns, domains, ranks):
    rewards, ids = columns["rewards"], columns["group_ids"]
    found = {
        "dynamic": dynamic_sampling(rewards, ids, ranks=ranks),
        "difficulty": difficulty_mask(rewards, ids, ranks=ranks),
        "bounds": filter_rewards(rewards, ids, rewards_lower_bound=0.5, ranks=ranks),
    }
    for norm in ("group", "batch", "running", {"math": "batch", "code": {"mean": "running"}}):
        options = {"reward_norm": norm, "singleton_group": "zero", "domains": domains}
        found[f"norm {norm}"] = process_rewards(rewards, group_ids=ids, ranks=ranks, state=RewardState(), **options)
    return found


def losses(columns, ranks):
    metrics = {}
    for name in ("actor", *COV):
        objective = Objective(name, **COV.get(name, {}))
        chosen = {key: columns[key] for key in ("old_logprobs", "advantages", "mask")}
        weights = objective.weights(columns["mask"], counts=LossCounts.of(columns["mask"]).over(ranks))
        output = objective(**columns, weights=weights, selected=objective.select(**chosen, ranks=ranks))
        whole = finalise_metrics(reduce_metrics([output.metrics], ranks=ranks))
        metrics |= {f"{name} {key}": value for key, value in whole.items()}
    return metrics


def prepared(columns, ranks):
    mask = columns["mask"]
    options = {"adv_type": "grpo", "reward_norm": "running"}
    options |= {"add_token_level_kl": True, "kl_coef": 0.2, "kl_controller": "adaptive", "target_kl": 0.1}
    state = AlgorithmState.of(options)
    batch = Batch(
        inputs={},
        actions=mask.long(),
        mask=mask,
        policy_version=mask.int(),
        **{name: columns[name] for name in ("rewards", "group_ids", "logprobs", "ref_logprobs")},
    )
    batch, metrics = prepare_batch(batch, options, state, ranks=ranks)
    return {"prepared": batch.advantages}, {**metrics, "kl_coef after": state.kl.kl_coef}


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    parts = [everything((slice(0, cut), slice(cut, 6))[rank], TorchRanks()) for cut in CUTS]
    torch.save(parts, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def test_two_ranks_equal_one(tmp_path):
    mp.spawn(worker, args=(str(tmp_path),), nprocs=2)
    parts = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    alone = everything(slice(0, 6), ONE_RANK)
    for cut, *halves in zip(CUTS, *parts, strict=True):
        for name, expected in alone.items():
            together = torch.cat([half[name] for half in halves])
            torch.testing.assert_close(
                together, expected, msg=lambda text, said=f"{name}, cut at {cut}": f"{said}: {text}"
            )
