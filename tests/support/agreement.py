"""Whether ``rlinf check`` and the first step of ``rlinf train`` end alike, for recipes with drawn edits.

Every command runs in a forked child, so that edits leave nothing behind and a run that goes on too long can be ended.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import string
import subprocess
import sys
import tempfile
import time
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf.algorithms.catalog import TABLES
from rlinf.config import Config, ConfigErrors, load
from rlinf.config.defaults import schema_default, value_of
from rlinf.config.names import facts_of, leaves, type_of

CPU_S, DEADLINE_S = 240, 280.0
"""Limits of one command: on its own time, and on that of a machine that does other things too."""
_TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
_ROOT = Path(__file__).parents[2]
_MODELS = ("models/smollm2", "models/gemma3", "runs/distillation_teacher/policy", "runs/smollm2_word_problems/policy")
"""Models that recipes name; a tiny one stands there."""
_TASKS = (("build/word_pairs", "--pairs", "40"), ("build/mixed_problems", "--operations", "add", "subtract"))
"""Task files that recipes name, and the options of the script that writes them."""
_RAW = "Traceback (most recent call last)"
_FIXED = (
    "run.dir",
    "run.name",
    "cluster",
    "logging",
    "run.max_steps",
    "env.isolation",
    "env.python",
    "env.step_timeout_s",
    "rollout.server",
    "rollout.vllm",
    "teacher.base_url",
    "evaluation.video_every",
)
"""Sections and keys that are not edited: other processes, services, and where a run is written."""
_SIZES = (0, -1, 1, 2, 3, 7)
_OF_TYPE: Mapping[object, tuple[object, ...]] = {
    bool: (True, False, None, "maybe"),
    int: (*_SIZES, 2.5, "many", None),
    float: (0, -1, 0.5, 1.5, 1e-4, "much", None),
    str: ("", "nonsense", "no_such_module:name", 5, None, True),
}
_TABLES: Mapping[str, Sequence[str]] = {
    "algorithm.adv_type": sorted(TABLES["advantages"]),
    "algorithm.loss_type": sorted([*TABLES["losses"], *TABLES["off_policy"]]),
    "algorithm.loss_agg_func": sorted(TABLES["aggregations"]),
    "algorithm.kl_penalty_type": sorted(TABLES["kl"]),
}
_MODEL_TYPES = ("llama", "gpt2", "qwen3", "mistral", "gemma", "bert", "t5", "mamba", "qwen2_vl", "smolvlm", "nonsense")
_WIDTHS = (0, 1, 3, 48, "wide", None)
_OTHER = ([], ["a"], {"a": 1}, 10, -3, 0, 0.5, "nonsense", None, True)


@dataclass(frozen=True)
class Verdict:
    """The end of one command: ``code`` None where it was still going on at the deadline."""

    code: int | None
    output: str

    @property
    def goes(self) -> bool:
        return self.code in (0, None)

    @property
    def raw(self) -> bool:
        """Whether a traceback was printed."""
        return _RAW in self.output

    @property
    def tail(self) -> str:
        return " | ".join(line for line in self.output.strip().splitlines()[-3:])[-600:]


@dataclass(frozen=True)
class Case:
    """One recipe with overrides, and how both commands ended."""

    recipe: str
    edits: tuple[str, ...]
    check: Verdict
    train: Verdict

    @property
    def agrees(self) -> bool:
        return self.check.goes == self.train.goes and not self.train.raw and not self.check.raw


def smallest(recipe: str) -> list[str]:
    """Overrides that make the first step of a recipe cheap and change nothing about its kind."""
    config = load(recipe)
    small = ["run.max_steps=1", "cluster.backend=local", "logging.progress=none", "logging.tensorboard=false"]
    small += ["evaluation.every=0", "checkpoint.every=0", "evaluation.video_every=0", "checkpoint.export=false"]
    small += ["env.num_workers=1", "rollout.num_samplers=1", "run.init_from=null"]
    if config.learner.backend == "torch":
        small += ["learner.num_workers=1"]
    if config.learner.optimizer.warmup_steps:
        small += ["learner.optimizer.warmup_steps=0"]
    if config.sft.warmup_steps:
        small += ["sft.warmup_steps=0"]
    cuts = config.algorithm.num_minibatches
    if config.facts.run_kind != "simulator":
        group = min(2, config.algorithm.group_size)
        batch = max(2, -(-cuts // group))
        small += [f"algorithm.group_size={group}", f"rollout.batch_size={batch}", "evaluation.size=2"]
        small += ["rollout.max_new_tokens=8"]
        if config.algorithm.overlong_penalty.max_length:
            small += ["algorithm.overlong_penalty.safe_length=4", "algorithm.overlong_penalty.max_length=8"]
        if config.sft.steps:
            small += ["sft.steps=1", "sft.batch_size=2"]
        if config.policy.path is None:
            widths = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
            widths["num_key_value_heads"] = 2
            small += [f"policy.architecture.{name}={value}" for name, value in widths.items()]
        if config.policy.path or config.policy.tokenizer.path:
            # The small model instead of this one has a token for each character.
            small += [f"data.max_prompt_length={8 * config.data.max_prompt_length}"]
        return small
    small += ["env.num_envs=2", "evaluation.size=1", "evaluation.num_envs=1"]
    if config.sft.steps:
        small += ["sft.steps=1", "sft.batch_size=2"]
    if config.facts.off_policy:
        small += ["algorithm.replay_start=8", "algorithm.replay_batch_size=4", "rollout.num_steps=8"]
        if config.policy.recurrent != "none":
            small += ["algorithm.replay_batch_size=16", "rollout.num_steps=32", "algorithm.replay_start=64"]
        return small
    if config.facts.collects_episodes:
        return [*small, "algorithm.group_size=2", f"rollout.batch_size={max(1, -(-cuts // 2))}"]
    return [*small, f"rollout.num_steps={8 * cuts}"]


def draw_edits(recipe: str, number: int, seed: int) -> list[tuple[str, ...]]:
    """``number`` edits of a recipe, each one or two overrides; the same for the same seed."""
    config = load(recipe)
    stream = random.Random(f"{recipe} {seed}")
    keys = [key for key in leaves() if not any(key == name or key.startswith(f"{name}.") for name in _FIXED)]
    edits: list[tuple[str, ...]] = []
    while len(edits) < number:
        count = 1 if stream.random() < 0.8 else 2
        edits.append(tuple(_edit(config, keys, stream) for _ in range(count)))
    return edits


def _edit(config: Config, keys: Sequence[str], stream: random.Random) -> str:
    kind = stream.random()
    if kind < 0.3 and config.env.kwargs:
        return _inner(config, "env.kwargs", stream)
    if kind < 0.4 and config.policy.architecture:
        return _of_architecture(config, stream)
    key = stream.choice(keys)
    if kind < 0.65:
        # Keys of the sections that a recipe writes are read more often than the others.
        written = [key for key in keys if value_of(config, key) != schema_default(key)]
        key = stream.choice(written)
    return f"{key}={_text(_value(key, stream))}"


def _of_architecture(config: Config, stream: random.Random) -> str:
    name = stream.choice([*config.policy.architecture, "model_type", "vocab_size", "num_layers_typo"])
    value = stream.choice(_MODEL_TYPES if name == "model_type" else _WIDTHS)
    return f"policy.architecture.{name}={_text(value)}"


def _inner(config: Config, section: str, stream: random.Random) -> str:
    """One entry of ``env.kwargs``, or of a mapping inside of it, changed."""
    found: Any = config.env.kwargs
    names: list[str] = []
    while isinstance(found, Mapping) and found:
        if names and stream.random() < 0.5:
            break
        name = stream.choice([*map(str, found), *(["unknown_setting"] if stream.random() < 0.1 else [])])
        names.append(name)
        found = found.get(name)
    return f"{section}.{'.'.join(names)}={_text(stream.choice(_OTHER))}"


def _value(key: str, stream: random.Random) -> object:
    if key in _TABLES and stream.random() < 0.8:
        return stream.choice(_TABLES[key])
    hint = type_of(key)
    members = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    if members:
        return stream.choice([*members, "nonsense", None])
    written = facts_of(key).example
    if written is not None and stream.random() < 0.4:
        return written
    scalars = [one for one in (hint, *typing.get_args(hint)) if one in _OF_TYPE]
    if scalars:
        chosen: object = stream.choice(_OF_TYPE[scalars[0]])
        return chosen
    literals = [typing.get_args(one) for one in typing.get_args(hint) if typing.get_origin(one) is typing.Literal]
    return stream.choice([*_OTHER, *(literals[0] if literals else ()), {}])


def _text(value: object) -> str:
    return json.dumps(value)


def command(words: Sequence[str], folder: Path, deadline_s: float = DEADLINE_S) -> Verdict:
    """One command of ``rlinf`` in a forked child that works in ``folder``."""
    log = folder / f"{words[0]}.log"
    child = os.fork()
    if child == 0:
        os.environ["HF_HUB_OFFLINE"] = "1"  # no command waits for models of the hub
        _run(words, folder, log)
    began = time.monotonic()
    while time.monotonic() - began < deadline_s:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return Verdict(None if code == -signal.SIGXCPU else code, log.read_text(encoding="utf-8", errors="replace"))
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return Verdict(None, log.read_text(encoding="utf-8", errors="replace"))


def _run(words: Sequence[str], folder: Path, log: Path) -> typing.NoReturn:
    """The child's part: its own process group, its output in ``log``, never back into the test."""
    code = 70
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 5))
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        # pytest may have replaced both.
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        os.chdir(folder)
        from rlinf.cli import main

        code = main(list(words))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def is_read(recipe: str, edits: Sequence[str]) -> bool:
    """Whether the file with these edits is taken: what is left for the two commands to find."""
    try:
        load(recipe, [*smallest(recipe), *edits])
    except ConfigErrors:
        return False
    return True


def furnish(folder: Path) -> Path:
    """Give ``folder`` what recipes name: examples, simulators' virtual environments, small models, task files."""
    for name in ("examples", "config", "venvs"):
        if (_ROOT / name).exists():
            (folder / name).symlink_to(_ROOT / name)
    for name in _MODELS:
        _save_small_model(folder / name)
    for name, *options in _TASKS:
        script = str(_ROOT / "examples/word_problems/make_tasks.py")
        subprocess.run([sys.executable, script, *options, "--out", str(folder / name)], check=True, capture_output=True)
    return folder


def _save_small_model(folder: Path) -> None:
    """A chat model with random weights instead of one that a recipe names."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from rlinf.models.tokenizer import train_tokenizer

    tokenizer = train_tokenizer([string.printable], vocab_size=400, split_digits=True)
    tokenizer.chat_template = _TEMPLATE
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=2, **shape, **ends)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def compare(recipe: str, edits: Sequence[str], folder: Path, deadline_s: float = DEADLINE_S) -> Case | None:
    """Both commands with the same overrides; None where the file itself is refused, which both commands read alike."""
    if not is_read(recipe, edits):
        return None
    with tempfile.TemporaryDirectory(dir=folder) as run:
        words = [recipe, *smallest(recipe), *edits, f"run.dir={run}/run"]
        check = command(["check", *words], folder, deadline_s)
        train = command(["train", *words], folder, deadline_s)
    return Case(recipe, tuple(edits), check, train)
