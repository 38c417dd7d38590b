"""Tokens per CPU-second of the whole GRPO step: rlinf against TRL's GRPOTrainer.

    python benchmarks/grpo_vs_trl.py [--repeats 5] [--steps 8] [--cases fixed,variable] [--engines rlinf,trl]
        [--write FILE]
    python benchmarks/grpo_vs_trl.py --model models/smollm2 --engines rlinf,rlinf_float32,trl,trl_bfloat16,trl_autocast

A step is everything between two optimiser steps: generation, reward, advantages, loss, backward pass, optimiser and,
for rlinf, sending the weights to the sampler and writing the step's metrics. Both libraries load the same weights (a
Qwen2 of 0.9M parameters), the same tokenizer and the same arithmetic prompts, and call the same reward function; 8
prompts x 8 responses a step, float32, one thread, AdamW with the gradient clipped at 1, token-mean loss, no KL term.
The learning rate is so small that response lengths stay what they were at the start.

``fixed``: the model can't end a response, so each has 32 tokens. ``variable``: it ends one with a chance of about 3%
after every token, so lengths are geometric with a mean of about a third of the cap of 96. ``_long``: the same with
prompts of about 64 tokens instead of about 10. Completion tokens are counted alike, the end token included.

With ``--model FOLDER`` a pretrained chat model (SmolLM2-135M-Instruct) replaces the tiny one, and both
libraries apply its chat template. ``fixed`` then means that no token it would draw ends a response, ``variable`` that
it ends its answers as it was taught to, after 7 to 96 tokens (the cap), 43 in the mean. rlinf computes in bfloat16
then, where the CPU has instructions for it. TRL is offered in float32, with its ``bf16`` option (float32 weights,
autocast), and with a model that was loaded in bfloat16, weights and optimiser included, which loses small updates.

Every figure comes from a process of its own; the libraries take turns. CPU time is that of the process and its
children; the first steps of a process are not counted.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from records import figures_of_table, save

ROOT = Path(__file__).resolve().parent.parent
NEVER_DRAWN = "<jupyter_script>"
"""A token of SmolLM2's vocabulary that no answer has: where it ends a response, none ends."""
PROMPTS, GROUP = 8, 8
TASKS = 512
VOCABULARY = 512
LEARNING_RATE = 1e-6
CONSTANT_CHANNEL = 1.0
ARCHITECTURE = {
    "hidden_size": 128,
    "intermediate_size": 416,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
}
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'envs'}",
}
LABELS = {
    "rlinf": "rlinf, `hf`",
    "rlinf_float32": "rlinf, `hf`, float32",
    "rlinf_vllm": "rlinf, `vllm`",
    "trl": "TRL `GRPOTrainer`, float32",
    "trl_autocast": "TRL, `bf16=True`",
    "trl_bfloat16": "TRL, all in bfloat16",
}
TRL_SETTINGS = {
    "per_device_train_batch_size": PROMPTS * GROUP,
    "num_generations": GROUP,
    "num_iterations": 1,
    "beta": 0.0,
    "loss_type": "dapo",
    "temperature": 1.0,
    "top_k": 0,
    "max_grad_norm": 1.0,
    "optim": "adamw_torch_fused",
    "lr_scheduler_type": "constant",
    "gradient_checkpointing": False,
    "bf16": False,
    "use_cpu": True,
    "dataloader_num_workers": 0,
    "dataloader_pin_memory": False,
    "logging_strategy": "no",
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
}

TRL_PRETRAINED_SETTINGS = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 4}
"""Generation is of all responses at once, as before: 64 in one backward pass took TRL 15 GB with SmolLM2."""


@dataclass(frozen=True)
class Case:
    """How long responses and prompts are."""

    cap: int
    """Most tokens of a response."""
    end_probability: float
    """Of the end token, after every token of the untrained model."""
    terms: int
    """Numbers to add in each prompt; each is two tokens."""
    pretrained: str | None = None
    """Folder of a chat model instead of the tiny one."""
    warm_up: int = 2
    """Steps that are not counted."""


CASES = {
    "fixed": Case(cap=32, end_probability=0.0, terms=3),
    "variable": Case(cap=96, end_probability=0.029, terms=3),
    "fixed_long": Case(cap=32, end_probability=0.0, terms=30),
    "variable_long": Case(cap=96, end_probability=0.029, terms=30),
}
PRETRAINED_CASES = {
    "fixed": Case(cap=32, end_probability=0.0, terms=2, warm_up=1),
    "variable": Case(cap=96, end_probability=1.0, terms=2, warm_up=1),
}


@dataclass(frozen=True)
class Figures:
    """What one process measured."""

    tokens: int
    cpu_s: float
    mean_length: float
    mean_reward: float

    @property
    def speed(self) -> float:
        return self.tokens / self.cpu_s


Results = dict[str, dict[str, list[Figures]]]
"""Case -> library -> repeats."""


def cpu_seconds() -> float:
    """Of this process and its children so far."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


class StepClock:
    """Tokens and CPU time of every finished step."""

    def __init__(self, warm_up: int) -> None:
        """``warm_up``: steps that are not counted."""
        self._warm_up = warm_up
        self.cpu: list[float] = []
        self.tokens: list[int] = []
        self.rewards: list[float] = []

    def tick(self, tokens: int, reward: float) -> None:
        self.cpu.append(cpu_seconds())
        self.tokens.append(tokens)
        self.rewards.append(reward)

    def figures(self) -> Figures:
        """From the end of the last warm-up step to the end of the last step."""
        tokens = self.tokens[self._warm_up :]
        return Figures(
            tokens=sum(tokens),
            cpu_s=self.cpu[-1] - self.cpu[self._warm_up - 1],
            mean_length=sum(tokens) / (len(tokens) * PROMPTS * GROUP),
            mean_reward=statistics.mean(self.rewards[self._warm_up :]),
        )


def letters(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
    """The reward on both sides: the share of letters and digits. An untrained model earns some of it in every group,
    so no group is without a gradient."""
    return sum(map(str.isalnum, response)) / max(1, len(response))


# -- the same start for both ------------------------------------------------------------------------------------------


def env_options(case: Case) -> dict[str, Any]:
    """Of the environment that the prompts come from."""
    return {
        "task": "chain_sum",
        "size": TASKS,
        "params": {"min_terms": case.terms, "max_terms": case.terms, "min_digits": 1, "max_digits": 1},
        "answer_format": "plain",
        "reward": {"custom": {"grpo_vs_trl:letters": 1.0}},
    }


def make_env(case: Case) -> Any:
    import gymnasium

    return gymnasium.make_vec("rlinf_envs:rlinf/ReasoningGym-v0", num_envs=1, **env_options(case)).unwrapped


def save_policy(case: Case, folder: Path) -> None:
    """Weights and tokenizer, as a folder that both libraries load."""
    if case.pretrained is not None:
        copy_pretrained(case, folder)
        return
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from rlinf.models.tokenizer import train_tokenizer

    env = make_env(case)
    texts = (text for pair in env.demonstrations(range(TASKS)) for text in pair)
    tokenizer = train_tokenizer(texts, vocab_size=VOCABULARY)
    tokenizer.padding_side = "left"
    special = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(tokenizer), **special, **ARCHITECTURE))
    set_end_probability(model, tokenizer.eos_token_id, case.end_probability)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def copy_pretrained(case: Case, folder: Path) -> None:
    """The chat model, with another end of responses where they are to be of one length."""
    from transformers import AutoTokenizer

    assert case.pretrained is not None
    shutil.copytree(case.pretrained, folder)
    if case.end_probability > 0:
        return
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.eos_token = NEVER_DRAWN
    tokenizer.save_pretrained(folder)
    for name in ("config.json", "generation_config.json"):
        content = json.loads((folder / name).read_text()) | {"eos_token_id": tokenizer.eos_token_id}
        (folder / name).write_text(json.dumps(content))


def set_end_probability(model: Any, end: int, probability: float) -> None:
    """Makes the end token (nearly) equally likely after every context.

    The output layer has no bias, so one channel of the residual stream is made constant: every embedding has the same
    value there, and no layer writes to it. After the last norm it is worth ``scale``; what the end token's (tied)
    embedding has in that channel beyond the others' is then its bias. Other tokens' logits are small and alike.
    """
    import torch

    embeddings = model.get_input_embeddings().weight
    with torch.no_grad():
        embeddings[:, 0] = CONSTANT_CHANNEL
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[0] = 0.0
            layer.mlp.down_proj.weight[0] = 0.0
        tokens = torch.arange(len(embeddings))[None]
        scale = model.model(input_ids=tokens).last_hidden_state[0, :, 0].mean()
        odds = probability / (1.0 - probability) * (len(embeddings) - 1)
        bias = math.log(odds) if probability > 0 else -30.0
        embeddings[end, 0] += bias / float(scale)


# -- the two libraries -------------------------------------------------------------------------------------------------


def run_rlinf(
    case: Case, policy: Path, scratch: Path, steps: int, *, sampler: str = "hf", dtype: str = "auto"
) -> Figures:
    """The training loop of ``rlinf train`` in one process; the progress display is what tells when a step ends."""
    from rlinf.cluster import connect
    from rlinf.config import load_mapping
    from rlinf.train.assemble.setup import ResolvedRun
    from rlinf.train.loop import Trainer
    from rlinf.train.run import build_graph
    from rlinf.train.run_dir import RunDirectory
    from rlinf.train.tracking.progress import ProgressDisplay

    clock = StepClock(case.warm_up)

    class Display(ProgressDisplay):
        def step(self, step: int, metrics: Mapping[str, float]) -> None:
            clock.tick(int(metrics["rollout/tokens"]), metrics["reward/mean"])

    config = load_mapping(rlinf_config(case, policy, scratch, steps, sampler, dtype), source="benchmark")
    display = Display(name="benchmark", mode="none", total=steps, done=0)
    setup = ResolvedRun.of(config)
    with connect(setup.cluster) as cluster:
        folder = RunDirectory.open(config)
        Trainer(config, build_graph(setup, cluster, folder.path), folder, display).train()
    return clock.figures()


def rlinf_config(case: Case, policy: Path, scratch: Path, steps: int, sampler: str, dtype: str) -> dict[str, Any]:
    """What a user would write in YAML."""
    return {
        "run": {"name": "benchmark", "dir": str(scratch / "run"), "max_steps": steps},
        "env": {"id": "rlinf_envs:rlinf/ReasoningGym-v0", "kwargs": env_options(case)},
        "data": {"max_prompt_length": 128},
        "policy": {"path": str(policy), "dtype": dtype},
        "rollout": {"sampler": sampler, "batch_size": PROMPTS, "max_new_tokens": case.cap},
        "algorithm": {"adv_type": "grpo", "group_size": GROUP},
        "learner": {"optimizer": {"lr": LEARNING_RATE}},
        "cluster": {"backend": "local", "threads_per_worker": 1},
        "evaluation": {"size": 0},
        "checkpoint": {"every": 0, "export": False},
        "logging": {"progress": "none", "tensorboard": False, "samples_every": 0},
    }


def run_trl(
    case: Case, policy: Path, scratch: Path, steps: int, *, dtype: str = "float32", autocast: bool = False
) -> Figures:
    """GRPOTrainer with what costs least of its settings on a CPU."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    clock = StepClock(case.warm_up)
    tokens, earned = [0], [0.0]

    def reward(prompts: list[Any], completions: list[Any], completion_ids: list[list[int]], **_: Any) -> list[float]:
        texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
        scores = [letters(prompt="", response=text, answer="", row={}) for text in texts]
        tokens[0], earned[0] = sum(map(len, completion_ids)), statistics.mean(scores)
        return scores

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.tick(tokens[0], earned[0])

    env = make_env(case)
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(policy, dtype=dtype, attn_implementation="sdpa"),
        processing_class=AutoTokenizer.from_pretrained(policy),
        reward_funcs=reward,
        args=GRPOConfig(
            output_dir=str(scratch / "trl"),
            max_steps=steps,
            max_completion_length=case.cap,
            learning_rate=LEARNING_RATE,
            **(trl_settings(case.pretrained) | {"bf16": autocast}),
        ),
        train_dataset=Dataset.from_list([{"prompt": trl_prompt(case, env.prompt(i))} for i in range(TASKS)]),
        callbacks=[Clock()],
    )
    trainer.train()
    return clock.figures()


def trl_settings(pretrained: str | None) -> dict[str, Any]:
    """What costs TRL least on a CPU and fits into memory."""
    return TRL_SETTINGS | (TRL_PRETRAINED_SETTINGS if pretrained is not None else {})


def trl_prompt(case: Case, text: str) -> Any:
    """A message where the model has a chat template, which TRL then applies; otherwise the text."""
    return [{"role": "user", "content": text}] if case.pretrained is not None else text


ENGINES: dict[str, Callable[[Case, Path, Path, int], Figures]] = {
    "rlinf": run_rlinf,
    "rlinf_float32": functools.partial(run_rlinf, dtype="float32"),
    "rlinf_vllm": functools.partial(run_rlinf, sampler="vllm"),
    "trl": run_trl,
    "trl_autocast": functools.partial(run_trl, autocast=True),
    "trl_bfloat16": functools.partial(run_trl, dtype="bfloat16"),
}


# -- repeats and the report --------------------------------------------------------------------------------------------


def measure(engine: str, case: Case, policy: Path, steps: int) -> Figures:
    """One engine on one case, in this process."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        return ENGINES[engine](case, policy, Path(scratch), steps + case.warm_up)


def measure_separately(engine: str, name: str, policy: Path, steps: int, model: str | None) -> Figures:
    """The same in a fresh process.

    Raises RuntimeError with the end of its error output where it fails."""
    from rlinf.samplers import environment

    done = subprocess.run(
        [sys.executable, __file__, "--one", engine, name, str(policy), "--steps", str(steps)]
        + (["--model", model] if model else []),
        env=os.environ | ENVIRONMENT | (environment("vllm", device="cpu") if engine == "rlinf_vllm" else {}),
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{engine} on {name} failed:\n{done.stderr[-3000:]}")
    return Figures(**json.loads(done.stdout.strip().splitlines()[-1]))


def table(results: Results) -> str:
    """A Markdown table; the ratio is that of the medians."""
    lines = [
        "| case | library | tokens per CPU-second (median, min to max) | mean length | mean reward "
        "| times the fastest TRL |",
        "|---|---|---|---|---|---|",
    ]
    for name, engines in results.items():
        if not all(engines.values()):
            continue
        peer = max(statistics.median(run.speed for run in engines[name]) for name in engines if name.startswith("trl"))
        for engine, runs in engines.items():
            speeds = [run.speed for run in runs]
            middle = statistics.median(speeds)
            length = statistics.mean(run.mean_length for run in runs)
            reward = statistics.mean(run.mean_reward for run in runs)
            lines.append(
                f"| {name} | {LABELS[engine]} | {middle:,.0f} ({min(speeds):,.0f} to {max(speeds):,.0f}) "
                f"| {length:.1f} | {reward:.3f} | {middle / peer:.2f} |"
            )
    return "\n".join(lines)


def cases_of(model: str | None) -> Mapping[str, Case]:
    """By name: of the tiny model, or of the pretrained one."""
    if model is None:
        return CASES
    return {name: replace(case, pretrained=model) for name, case in PRETRAINED_CASES.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--cases", help="default: all")
    parser.add_argument("--engines", default="rlinf,trl", help=f"some of {', '.join(ENGINES)}; one of TRL's among them")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--model", help="folder of a pretrained chat model instead of the tiny one: models/smollm2")
    parser.add_argument("--one", nargs=3, metavar=("ENGINE", "CASE", "POLICY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        engine, name, policy = options.one
        print(json.dumps(asdict(measure(engine, cases_of(options.model)[name], Path(policy), options.steps))))
        return
    os.environ.update(ENVIRONMENT)
    sys.path[:0] = ENVIRONMENT["PYTHONPATH"].split(os.pathsep)
    results: Results = {}
    cases = cases_of(options.model)
    with tempfile.TemporaryDirectory() as scratch:
        for repeat, name in itertools.product(range(options.repeats), (options.cases or ",".join(cases)).split(",")):
            policy = Path(scratch) / name
            if repeat == 0:
                save_policy(cases[name], policy)
                results[name] = {engine: [] for engine in options.engines.split(",")}
            for engine, runs in results[name].items():
                runs.append(measure_separately(engine, name, policy, options.steps, options.model))
                print(f"{name} {engine}: {runs[-1].speed:,.0f} tokens per CPU-second", flush=True)
            if options.write:
                found = figures_of_table(table(results), labels=2)
                save(options.write, found, intervals="smallest to largest of the processes")
    print(table(results))


if __name__ == "__main__":
    main()
