"""The clock of a rehearsal: seconds of a step and memory of a size that was never run, from a few small ones.

A step's CPU-seconds are modelled as sums of counted work with one price each: kernels that are started, numbers that
are multiplied, activated or copied, weights that are stepped. The prices come from a calibration, short runs
of the same file at small sizes, by least squares of relative errors with prices of at least zero. It is for
language models in one process on a CPU, with the sampler `hf` and the learner `torch`; one thread's CPU-seconds are its
seconds on a machine without other work.

    R  rows of a step        L  tokens of a response        P  tokens of a prompt        W  parameters of a token's path
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlinf.base.errors import UserError
from rlinf.base.json_files import read_json_lines
from rlinf.config import Config
from rlinf.config.derived import rows_per_iteration
from rlinf.config.record import written
from rlinf.models.architecture_numbers import decoder_shape
from rlinf.planning.memory import estimate

PHASES: Mapping[str, tuple[str, ...]] = {
    "generation": ("time/generation_s",),
    "learner": ("time/prepare_s", "time/update_s", "time/weights_s"),
    "the rest": (),
}
"""Phase -> metrics that it is the sum of; the rest is what a step has besides."""
_STEPS, _TIMEOUT_S = 3, 900
_RUN = (
    "import sys, time; time.perf_counter = time.process_time; import rlinf.cli; sys.exit(rlinf.cli.main(sys.argv[1:]))"
)
"""The command in a process whose clock counts its CPU-seconds."""

SIZES: tuple[Mapping[str, int], ...] = (
    {"hidden": 64, "layers": 2, "prompts": 4, "tokens": 16, "epochs": 1},
    {"hidden": 128, "layers": 4, "prompts": 4, "tokens": 32, "epochs": 2},
    {"hidden": 256, "layers": 2, "prompts": 8, "tokens": 24, "epochs": 1},
    {"hidden": 64, "layers": 6, "prompts": 16, "tokens": 48, "epochs": 1},
    {"hidden": 320, "layers": 4, "prompts": 4, "tokens": 16, "epochs": 2},
    {"hidden": 128, "layers": 1, "prompts": 24, "tokens": 8, "epochs": 3},
    {"hidden": 192, "layers": 3, "prompts": 32, "tokens": 16, "epochs": 1},
    {"hidden": 256, "layers": 6, "prompts": 12, "tokens": 32, "epochs": 1},
)
"""Of a calibration: width and depth of the model, prompts of a step, tokens of a response, passes over a batch."""


@dataclass(frozen=True)
class RunCost:
    """Times and memory of a short run."""

    seconds: Mapping[str, float]
    """CPU-seconds of a step, by phase."""
    memory_bytes: int
    """The most resident memory of its process."""
    prompt_tokens: float
    response_tokens: float

    @property
    def step_s(self) -> float:
        """CPU-seconds of a step."""
        return sum(self.seconds.values())


def sized(config: Config, size: Mapping[str, int]) -> list[str]:
    """Return the overrides that give ``config`` a ``size`` (see :data:`SIZES`)."""
    heads = max(2, size["hidden"] // 32)
    shape = {
        **dict(config.policy.architecture),
        **{"hidden_size": size["hidden"], "intermediate_size": 4 * size["hidden"], "num_hidden_layers": size["layers"]},
        **{"num_attention_heads": heads, "num_key_value_heads": heads},
    }
    return [
        f"policy.architecture={json.dumps(shape)}",
        f"rollout.batch_size={size['prompts']}",
        f"rollout.max_new_tokens={size['tokens']}",
        f"algorithm.update_epochs={size['epochs']}",
    ]


def measure(config: Config, overrides: Sequence[str]) -> RunCost:
    """Run a few steps of ``config`` with ``overrides``, without warm start and evaluation, in a process of its own.

    :raises UserError: the run failed; the message has its last lines.
    """
    with tempfile.TemporaryDirectory(prefix="rlinf_clock_") as folder:
        file = Path(folder) / "run.yaml"
        file.write_text(json.dumps(written(config), default=str))
        keys = [
            *(f"run.dir={folder}/run", "run.resume=auto", f"run.max_steps={_STEPS}", "sft.steps=0"),
            *("cluster.backend=local", "cluster.threads_per_worker=1", "evaluation.size=0", "checkpoint.every=0"),
            *("checkpoint.export=false", "checkpoint.best_metric=null", "evaluation.every=0", "logging.progress=none"),
            *("logging.tensorboard=false", "logging.samples_every=0", "algorithm.strict=false"),
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (Path(folder) / "log.txt").open("w+") as log:
            command = [sys.executable, "-c", _RUN, "train", str(file), *keys, *overrides]
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                log.seek(0)
                raise UserError(f"a run of the calibration failed:\n{log.read()[-1500:]}")
        lines = list(read_json_lines(Path(folder) / "run" / "metrics.jsonl", number="step").rows)
    steps = [line for line in lines if "time/step_s" in line][1:]
    result = {phase: _mean(steps, names) for phase, names in PHASES.items()}
    result["the rest"] = max(0.0, _mean(steps, ("time/step_s",)) - result["generation"] - result["learner"])
    tokens = _mean(steps, ("rollout/response_length",))
    return RunCost(result, usage.ru_maxrss * 1024, _mean(steps, ("rollout/prompt_length",)), tokens)


def _mean(lines: Sequence[Mapping[str, float]], names: Sequence[str]) -> float:
    return sum(line.get(name, 0.0) for line in lines for name in names) / max(1, len(lines))


def work(config: Config, *, prompt_tokens: float, response_tokens: float) -> dict[str, list[float]]:
    """Count the work of a step by phase, in units whose prices a calibration finds.

    ``prompt_tokens`` and ``response_tokens`` are means of a row.

    :raises UserError: the architecture's parameters can't be counted.
    """
    decoder = decoder_shape(config.policy)
    if decoder is None:
        raise UserError("the architecture is not known here, so its work can't be counted")
    rows, epochs = rows_per_iteration(config), config.algorithm.update_epochs
    batches = -(-rows // config.rollout.generation_batch_size)
    steps, path = batches * response_tokens, decoder.active_parameters
    prompts = config.rollout.batch_size * prompt_tokens
    tokens = rows * response_tokens + prompts
    # One pass to score a batch; forward and backward passes of each epoch cost three.
    passes = 1 + 3 * epochs
    attended = decoder.layers * rows * response_tokens * (prompt_tokens + response_tokens / 2) * decoder.hidden
    # Norms, activations and copies: their numbers grow with the width, those of products with its square.
    elements = float(decoder.layers * decoder.hidden)
    pieces = max(1.0, tokens / config.learner.micro_batch_tokens)
    updates = epochs * config.algorithm.num_minibatches
    return {
        "generation": [
            steps,
            steps * decoder.layers,
            (rows * response_tokens + prompts) * path + 2 * attended,
            rows * response_tokens * elements,
        ],
        "learner": [
            passes * pieces * decoder.layers + 1.0,
            passes * (tokens * path + 2 * attended),
            float(updates * decoder.parameters),
            passes * tokens,
            passes * tokens * elements,
        ],
        "the rest": [1.0, float(rows)],
    }


@dataclass(frozen=True)
class StepPrices:
    """Prices of a file's work on this machine."""

    prices: Mapping[str, Sequence[float]]
    memory: Sequence[float]
    """Bytes of a process without a model, and bytes for each planned one."""
    prompt_tokens: float
    response_share: float
    """Tokens of a response, of those that are allowed."""

    @classmethod
    def calibrated(cls, config: Config) -> StepPrices:
        """Measure short runs of ``config`` at :data:`SIZES`: about ten CPU-seconds each."""
        from rlinf.config import load_mapping

        resized = [load_mapping(written(config), overrides=sized(config, size)) for size in SIZES]
        result = [measure(config, sized(config, size)) for size in SIZES]
        return cls.fitted(resized, result)

    @classmethod
    def fitted(cls, configs: Sequence[Config], result: Sequence[RunCost]) -> StepPrices:
        """Fit the prices to what runs of ``configs`` took."""
        counted = [
            work(one, prompt_tokens=run.prompt_tokens, response_tokens=run.response_tokens)
            for one, run in zip(configs, result, strict=True)
        ]
        prices = {
            phase: nonnegative([one[phase] for one in counted], [run.seconds[phase] for run in result])
            for phase in PHASES
        }
        planned = [[1.0, planned_bytes(one)] for one in configs]
        memory = nonnegative(planned, [run.memory_bytes for run in result])
        shares = [run.response_tokens / one.rollout.max_new_tokens for one, run in zip(configs, result, strict=True)]
        prompts = sum(run.prompt_tokens for run in result) / len(result)
        return cls(prices, memory, prompts, sum(shares) / len(shares))

    def predict(self, config: Config) -> RunCost:
        """Predict CPU-seconds of a step by phase, and the most memory, of a run of ``config`` in one process."""
        response = self.response_share * config.rollout.max_new_tokens
        counted = work(config, prompt_tokens=self.prompt_tokens, response_tokens=response)
        seconds = {
            phase: sum(price * amount for price, amount in zip(prices, counted[phase], strict=True))
            for phase, prices in self.prices.items()
        }
        memory = self.memory[0] + self.memory[1] * planned_bytes(config)
        return RunCost(seconds, int(memory), self.prompt_tokens, response)


def planned_bytes(config: Config) -> float:
    """Return the bytes of learner and sampler in one process, as `rlinf check` plans them."""
    decoder = decoder_shape(config.policy)
    if decoder is None:
        raise UserError("the architecture is not known here, so its memory can't be planned")
    memory = estimate(config, decoder, 0)
    return float(memory.peak + memory.sampler)


def nonnegative(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Return prices [n] >= 0 with the least squares of relative errors of ``rows`` [m, n] against ``values`` [m] > 0.

    >>> [round(price, 6) for price in nonnegative([[1.0, 1.0], [1.0, 2.0], [1.0, 4.0]], [5.0, 8.0, 14.0])]
    [2.0, 3.0]
    >>> nonnegative([[1.0, 1.0], [1.0, 2.0]], [2.0, 1.0])[1]
    0.0
    """
    measured = np.maximum(np.asarray(values, dtype=np.float64), 1e-9)
    relative = np.asarray(rows, dtype=np.float64) / measured[:, None]
    scale = np.maximum(np.abs(relative).max(axis=0), 1e-300)
    kept = list(range(relative.shape[1]))
    while kept:
        result = np.linalg.lstsq(relative[:, kept] / scale[kept], np.ones(len(measured)), rcond=None)[0]
        if (result >= 0).all():
            break
        kept.pop(int(result.argmin()))
    prices = [0.0] * relative.shape[1]
    for place, column in enumerate(kept):
        prices[column] = float(result[place] / scale[column])
    return prices
