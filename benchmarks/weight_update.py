"""Seconds and bytes of a weight update through Ray, by transport: learner and sampler are two processes of one node.

    python benchmarks/weight_update.py [--repeats 7] [--sizes 30m,smollm2,300m] [--samplers hf,vllm] [--write]
    python benchmarks/weight_update.py --sizes smollm2 --samplers hf --stages 2 [--bucket-mb 64]

An update is everything between the learner's weights and a sampler whose next token follows them. The model is a random
Qwen2 in float32. The first two updates of a process are not counted: they allocate what the others reuse. ``arriving``
is the part before the sampler has the tensors in hand, the rest is its own copy into its weights. With ``--stages`` the
learner is megatron's, its layers over as many processes, and all weights go through the first of them (one source), or
each sends its own; otherwise it is one process that holds the weights. ``CPU`` is the processor time of an update in
each process of the learner and in the sampler, which shows more than seconds where cores are shared.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlinf.data.messages import WeightForm

from records import add_output, figures_of_table, save

from rlinf.config import Config

ROOT = Path(__file__).resolve().parent.parent
WAYS = ("shared_memory", "collective", "object_store")
ARCHITECTURES = {
    "30m": {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 10, "num_attention_heads": 8},
    # The shape of SmolLM2-135M, whose vocabulary is a fifth of it.
    "smollm2": {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49_152,
    },
    "300m": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 19, "num_attention_heads": 8},
}
VOCABULARY = 512
UNCOUNTED = 2


def build_model(size: str) -> Any:
    """A random Qwen2 of about this many parameters."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    shape = {"vocab_size": VOCABULARY, "num_key_value_heads": 4, **ARCHITECTURES[size]}
    return Qwen2ForCausalLM(Qwen2Config(max_position_embeddings=512, tie_word_embeddings=True, **shape))


class Timed:
    """A worker that reports the processor time of its process so far."""

    def cpu_s(self) -> float:
        return time.process_time()


class ModelHolder:
    """As much of a learner as an update takes."""

    def __init__(self, size: str) -> None:
        self.named = {name: parameter.detach() for name, parameter in build_model(size).named_parameters()}

    def has_adapters(self) -> bool:
        return False

    def weight_sources(self, bucket_bytes: int | None, *, form: WeightForm = "merged") -> list[int]:
        return [0]

    def weights(
        self, *, version: int, part: int = 0, bucket_bytes: int | None = None, form: WeightForm = "merged"
    ) -> Any:
        from rlinf.data.messages import WeightUpdate

        return WeightUpdate(version, self.named)


def build_learner(size: str, _info: Any) -> Any:
    from rlinf.train.workers.learner_worker import LearnerWorker

    class Holder(Timed, LearnerWorker): ...

    return Holder(ModelHolder(size), rank=0)


def build_stage(folder: Path, bucket_mb: int, info: Any) -> Any:
    """One of the pipeline stages of a megatron learner with the weights in ``folder``."""
    import torch
    from transformers import AutoConfig

    from rlinf.algorithms.objective import Objective
    from rlinf.data import weight_sources
    from rlinf.data.messages import SamplingParams
    from rlinf.learners.megatron.learner import MegatronLearner
    from rlinf.learners.process_group import join
    from rlinf.learners.shards import SafetensorsFolder
    from rlinf.learners.stage import Stage
    from rlinf.schema import OptimizerConfig
    from rlinf.schema.learner import MegatronConfig
    from rlinf.train.workers.learner_worker import LearnerWorker

    rendezvous = {"rank": info.rank, "size": info.size, "address": info.master_address, "port": info.master_port}
    join(**rendezvous, device=torch.device("cpu"), timeout_s=600.0)
    learner = MegatronLearner(
        AutoConfig.from_pretrained(folder),
        SafetensorsFolder(folder),
        layout=MegatronConfig(pipeline_parallel=info.size),
        stages=(Stage(name="train", objective=Objective.of("reinforce"), optimizer=OptimizerConfig()),),
        sampling=SamplingParams(max_new_tokens=8),
        seed=0,
        micro_batch_tokens=512,
    )

    class Rank(Timed, LearnerWorker):
        def limit_sources(self, most: int) -> None:
            weight_sources.MOST = most
            learner.gatherer._parts.clear()

    return Rank(learner, rank=info.rank, bucket_bytes=bucket_mb << 20)


def build_sampler(sampler: str, folder: Path, _info: Any) -> Any:
    from rlinf.samplers import SamplerSpec
    from rlinf.samplers.build import build_sampler as build
    from rlinf.schema.rollout import RolloutConfig, VllmConfig
    from rlinf.train.workers.sampler_worker import SamplerWorker

    class Measured(Timed, SamplerWorker): ...

    config = RolloutConfig(sampler=sampler, vllm=VllmConfig(dtype="float32"))  # type: ignore[arg-type]
    spec = SamplerSpec(str(folder), (1,), 0, seed=0, max_model_len=256, dtype="float32", random_weights=True)
    return Measured(build(config, spec))


def measure(
    sampler: str, size: str, repeats: int, folder: Path, *, stages: int | None, bucket_mb: int
) -> list[dict[str, Any]]:
    """Every transport with one learner, in ``stages`` processes, and one sampler."""
    from rlinf.cluster import connect
    from rlinf.cluster.weights.choice import choose
    from rlinf.samplers import environment
    from rlinf.schema.cluster import ClusterConfig
    from rlinf.train.workers.sampler_pool import SamplerPool

    rows = []
    with connect(ClusterConfig(start_timeout_s=600.0, env=environment(sampler, device="cpu"))) as cluster:
        if stages is None:
            learner = cluster.spawn("learner", functools.partial(build_learner, size))
        else:
            build = functools.partial(build_stage, folder, bucket_mb)
            learner = cluster.spawn("learner", build, n=stages, rendezvous=True)
        group = cluster.spawn("sampler", functools.partial(build_sampler, sampler, folder))
        version = 0
        for way, sources in itertools.product(WAYS, [1] if stages is None else [1, stages]):
            if stages is not None:
                learner.call("limit_sources", sources)
            config = Config()
            config = replace(config, rollout=replace(config.rollout, weight_transport=way))
            pool = SamplerPool(group, cluster)
            pool.connect(choose(config.facts.weight_transport, learner, group, cuda=False, keep=config.facts.overlaps))
            whole, inside = [], []
            for number in range(UNCOUNTED + repeats):
                version += 1
                if number == UNCOUNTED:
                    before = [*learner.call("cpu_s"), *group.call("cpu_s")]
                began = time.perf_counter()
                numbers = pool.send_weights(version)
                whole.append(time.perf_counter() - began)
                inside.append(numbers["weight_update_s"])
            after = [*learner.call("cpu_s"), *group.call("cpu_s")]
            del whole[:UNCOUNTED], inside[:UNCOUNTED]
            rows.append(
                {
                    "sampler": sampler,
                    "size": size,
                    "way": way,
                    "sources": sources,
                    "cpu": [(end - start) / repeats for start, end in zip(before, after, strict=True)],
                    "bytes": numbers["weight_update_bytes"],
                    "whole": whole,
                    "arriving": [w - i for w, i in zip(whole, inside, strict=True)],
                }
            )
            print(sampler, size, way, sources, f"{statistics.median(whole):.3f} s", flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown, medians with the range of the whole."""
    head = "| parameters | sampler | transport | sources | MB | seconds (min to max) | arriving | CPU |"
    lines = [head, "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        whole = row["whole"]
        lines.append(
            f"| {row['size']} | {row['sampler']} | {row['way']} | {row['sources']} | {row['bytes'] / 1e6:.0f} "
            f"| {statistics.median(whole):.3f} ({min(whole):.3f} to {max(whole):.3f}) "
            f"| {statistics.median(row['arriving']):.3f} | {' + '.join(f'{each:.2f}' for each in row['cpu'])} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--sizes", default=",".join(ARCHITECTURES))
    parser.add_argument("--samplers", default="hf,vllm")
    parser.add_argument("--stages", type=int, help="pipeline stages of a megatron learner")
    parser.add_argument("--bucket-mb", type=int, default=2048, help="learner.weight_bucket_mb of that learner")
    add_output(parser, "weight_update")
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "envs")]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        for size in options.sizes.split(","):
            folder = Path(scratch) / size
            model = build_model(size)
            (model.config if options.stages is None else model).save_pretrained(folder)
            del model
            for sampler in options.samplers.split(","):
                rows += measure(
                    sampler, size, options.repeats, folder, stages=options.stages, bucket_mb=options.bucket_mb
                )
    print(table(rows))
    if options.write:
        found = figures_of_table(table(rows), labels=4)
        save(options.write, found, intervals="smallest to largest of the repeats")


if __name__ == "__main__":
    main()
