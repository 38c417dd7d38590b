"""What images of a rollout cost on their way to the learner: python benchmarks/images.py [--ranks 1 2 4] [--pixels 224]

Env workers and ranks are Ray actors of this machine; environments and policy are left out, the way is the code of a
training iteration. "Through the driver" is the way without a row plan: every image comes to the driver with its batch,
and goes to every rank. "Apart" is the way of a run: images stay with the env workers, which cut them up for the ranks.
Seconds of the driver are CPU-seconds of its process, Ray's threads in it included.
"""

from __future__ import annotations

import argparse
import functools
import resource
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from rlinf.algorithms.objective import Objective
from rlinf.cluster import Cluster, RankInfo, connect
from rlinf.data.batch import Batch, concatenate
from rlinf.data.inputs import ObservationInputs
from rlinf.data.messages import Metrics
from rlinf.data.shards import DataParallelRank
from rlinf.learners.minibatch import learned_rows
from rlinf.learners.stage import Stage
from rlinf.models.decision_rule import DecisionRule
from rlinf.rollouts.simulator.local_images import Leaves, keep_images_local
from rlinf.rollouts.simulator.records import RolloutPart
from rlinf.schema import OptimizerConfig
from rlinf.schema.cluster import ClusterConfig
from rlinf.train.workers.env_pool import EnvPool
from rlinf.train.workers.learner_pool import LearnerPool
from rlinf.train.workers.learner_worker import LearnerWorker
from rlinf.train.workers.row_plan import DecisionPlan


class Pictures:
    """An env worker whose rollouts are made up: ``rows`` sub-environments by ``decisions``, of one camera."""

    def __init__(self, rows: int, decisions: int, pixels: int, info: RankInfo) -> None:
        shape = (rows, decisions, pixels, pixels, 3)
        self.image = torch.randint(0, 256, shape, dtype=torch.uint8)
        self.state = torch.randn(rows, decisions, 8)
        self.first = rows * info.rank

    def collect(self, step: int) -> RolloutPart:
        mask = torch.ones(self.state.shape[:2], dtype=torch.bool)
        zeros = torch.zeros(mask.shape)
        batch = Batch(
            inputs=ObservationInputs({"observation.image": self.image, "observation.state": self.state}),
            actions=torch.zeros(*mask.shape, 7),
            mask=mask,
            rollout_logprobs=zeros,
            rewards=zeros,
            group_ids=torch.arange(self.first, self.first + len(mask)),
            policy_version=zeros.int(),
            advantages=zeros + 1,
        )
        return RolloutPart(batch, [], Counter(), 0)

    def collect_remote(self, step: int) -> tuple[RolloutPart, Leaves]:
        return keep_images_local(self.collect(step))


class Reads:
    """A rank's learner that makes rows of decisions of what it was given, and counts the images."""

    def __init__(self, info: RankInfo) -> None:
        self.data_place = DataParallelRank(info.rank, info.size, micro_batch_tokens=64)

    def update(self, batch: Any, *, step: int) -> Metrics:
        whole = isinstance(batch, Batch)
        held = learned_rows(batch, plan().stage("train"), independent=True) if whole else batch.held
        return {"bytes": float(held.inputs.observations["observation.image"].nbytes)}


def rank(info: RankInfo) -> LearnerWorker:
    return LearnerWorker(Reads(info), rank=info.rank)  # type: ignore[arg-type]


def plan() -> DecisionPlan:
    """One epoch in four minibatches."""
    stage = Stage("train", Objective.of("actor"), OptimizerConfig(), epochs=1, minibatches=4)
    return DecisionPlan([stage], seed=0, rule=DecisionRule())


def measured(cluster: Cluster, envs: EnvPool, ranks: int, *, apart: bool, repeats: int) -> tuple[float, float, float]:
    """Medians of an iteration: (CPU-seconds of the driver, seconds), and the bytes of images that a rank is given."""
    spent: list[tuple[float, float]] = []
    with cluster.spawn("learner", rank, n=ranks) as group:
        pool = LearnerPool(group, cluster, plan=plan() if apart else None)
        for step in range(repeats + 1):
            cpu, began = cpu_s(), time.perf_counter()
            parts: Sequence[RolloutPart] = (envs if apart else envs.group).call("collect", step)
            batch = concatenate([part.batch for part in parts if part.batch is not None])
            given = pool.update(batch, step=step)["bytes"]
            spent.append((cpu_s() - cpu, time.perf_counter() - began))
            del parts, batch
    half = (repeats + 1) // 2
    return sorted(one[0] for one in spent[1:])[half - 1], sorted(one[1] for one in spent[1:])[half - 1], given


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--decisions", type=int, default=8)
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = options.envs // options.workers
    with connect(ClusterConfig(start_timeout_s=300.0, cpus_per_worker=0.1)) as cluster:
        make = functools.partial(Pictures, rows, options.decisions, options.pixels)
        envs = EnvPool(cluster.spawn("env", make, n=options.workers))
        total = options.envs * options.decisions * options.pixels**2 * 3
        print(f"{total / 1e6:.0f} MB of images from {options.workers} env workers", flush=True)
        for ranks in options.ranks:
            for apart in (False, True):
                cpu, seconds, given = measured(cluster, envs, ranks, apart=apart, repeats=options.repeats)
                way = "apart" if apart else "through the driver"
                print(
                    f"{ranks} ranks, {way}: driver {cpu:.3f} CPU-s, {seconds:.2f} s, {given / 1e6:.1f} MB a rank",
                    flush=True,
                )


if __name__ == "__main__":
    main()
