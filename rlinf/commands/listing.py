"""`rlinf list`: recipes, algorithms, environments, metrics and more, one line each."""

from __future__ import annotations

import importlib
import itertools
import re
from collections.abc import Iterable, Mapping

from rlinf.algorithms.catalog import TABLES, Entry
from rlinf.algorithms.catalog_corrections import CORRECTIONS, Correction
from rlinf.config.plugins import GROUPS, plugins
from rlinf.config.recipes import recipes, sweep_recipes

POLICIES: Mapping[str, str] = {
    "causal_lm": "any Hugging Face causal language model, by folder, name, or architecture",
    "actor_critic": "actor and critic for simulators: MLP or CNN, discrete or continuous actions",
    "module:Class": "a policy of your own for simulators (docs/simulators.md, examples/own_policy)",
    "vla": "vision, language, action: images, state and instruction in, chunks of discretised actions out",
    "flow": "the same with chunks of continuous actions, by flow matching and Flow-SDE",
}
SAMPLERS: Mapping[str, str] = {
    "auto": "the fastest that is installed and fits",
    "hf": "transformers: runs everywhere, exact log-probabilities",
    "vllm": "vLLM engines (extra: vllm)",
    "server": "an OpenAI-compatible server that is running (rollout.server.base_url)",
}
LEARNERS: Mapping[str, str] = {
    "torch": "one process, or data parallel over learner.num_workers ranks",
    "fsdp": "weights, gradients and optimiser state split over the ranks",
    "megatron": "tensor, pipeline, context and expert parallel (extra: megatron)",
}
SINKS: Mapping[str, str] = {
    "tensorboard": "events next to metrics.jsonl (logging.tensorboard)",
    "wandb": "Weights & Biases (logging.wandb_project, extra: wandb)",
    "mlflow": "MLflow (logging.mlflow_experiment, extra: mlflow)",
    "trackio": "Trackio (logging.trackio_project, extra: trackio)",
    "otel": "OpenTelemetry traces (logging.otlp_endpoint, extra: otel)",
    "module:name": "a tracker of your own (logging.sinks)",
}
REWARDS: Mapping[str, str] = {
    "correctness": "the verdict of the task",
    "format": "responses that match a pattern",
    "length": "responses near a length",
    "language": "responses in a language",
    "module:name": "a function of your own (env.kwargs.reward.custom)",
}
_SENTENCE_END = re.compile(r"(?<=[a-z0-9)]{2})[.;]\s|[:?]? rlinf (?:train|sweep|sft) ")
CHOSEN_BY = {
    "advantages": "advantage estimators: algorithm.adv_type",
    "losses": "losses of policies: algorithm.loss_type",
    "off_policy": "algorithms with a replay buffer: algorithm.loss_type",
    "aggregations": "means over tokens and rows: algorithm.loss_agg_func",
    "kl": "KL estimates: algorithm.kl_penalty_type",
    "corrections": "presets for samplers that differ from the learner: algorithm.rollout_correction.preset",
    "rewards": "terms of a text reward: env.kwargs.reward",
    "envs": "environments: env.id",
    "policies": "policies: policy.name",
    "samplers": "engines that generate responses: rollout.sampler",
    "sinks": "trackers: logging",
    "learners": "learners: learner.backend",
    "metrics": "every metric, with its formula and where it is healthy",
    "recipes": "files that come with rlinf: rlinf train NAME",
    "plugins": "additions of installed packages",
}
"""The tables: what each lists, and the key that chooses from it."""
CHOICES = tuple(CHOSEN_BY)


def tables() -> str:
    """Return the output of a plain `rlinf list`: each table with what it lists."""
    width = max(map(len, CHOSEN_BY))
    return "\n".join(f"rlinf list {name:<{width}}  {line}" for name, line in CHOSEN_BY.items())


def listing(what: str) -> str:
    """Build the table of one of :data:`CHOICES`, with what installed packages add to it and where that comes from."""
    if what == "plugins":
        return _plugins(GROUPS) or "no installed package adds to rlinf (docs/plugins.md shows how one does)"
    added = _plugins([f"rlinf.{what}"])
    return f"{_own(what)}\n{added}" if added else _own(what)


def _plugins(groups: Iterable[str]) -> str:
    return "\n".join(
        f"{plugin.name}  [{group}: {plugin.target}, from {plugin.origin}]"
        for group in groups
        for plugin in plugins(group).values()
    )


def _own(what: str) -> str:
    if what in TABLES:
        return "\n".join(_entry(name, entry) for name, entry in TABLES[what].items())
    if what == "corrections":
        return "\n".join(_correction(name, correction) for name, correction in CORRECTIONS.items())
    if what == "recipes":
        return _recipes()
    if what == "metrics":
        return _metrics()
    named = {"policies": POLICIES, "samplers": SAMPLERS, "learners": LEARNERS, "sinks": SINKS, "rewards": REWARDS}
    lines = named.get(what)
    lines = _environments() if lines is None else lines
    width = max(len(name) for name in lines)
    return "\n".join(f"{name:<{width}}  {line}" for name, line in lines.items())


def _entry(name: str, entry: Entry) -> str:
    lines = [name, f"    {entry.line}", f"    {entry.formula}", f"    {entry.source}"]
    if entry.reads:
        lines.append(f"    options: {', '.join(entry.reads)}")
    return "\n".join(lines)


def _correction(name: str, correction: Correction) -> str:
    values = ", ".join(f"{key}: {value}" for key, value in correction.values.items())
    return "\n".join([name, f"    {correction.line}", f"    {values}", f"    {correction.source}"])


def _metrics() -> str:
    """Every metric in words; docs/metrics.md is the same as a page."""
    from rlinf.metrics.table import METRICS

    lines = []
    for name, metric in METRICS.items():
        lines += [name, f"    {metric.meaning}: {metric.formula} [{metric.unit or 'no unit'}]"]
        lines.append(f"    healthy: {metric.healthy}; if not: {metric.remedy}")
    return "\n".join(lines)


def _recipes() -> str:
    """Every packaged recipe with the first sentence of its file."""
    packaged = {**recipes(), **sweep_recipes()}
    width = max((len(name) for name in packaged), default=0)
    heads = {name: _first_sentence(path.read_text(encoding="utf-8")) for name, path in packaged.items()}
    return "\n".join(f"{name:<{width}}  {head}" for name, head in heads.items())


def _first_sentence(text: str) -> str:
    """Return the first sentence of the comment that a file begins with, without the command behind its last colon.

    >>> _first_sentence("# Dr. GRPO: no division by the\\n# deviation: rlinf train dr_grpo. More.\\nrun: {name: a}")
    'Dr. GRPO: no division by the deviation'
    """
    lines = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    comment = " ".join(line.removeprefix("#").strip() for line in lines)
    sentence = _SENTENCE_END.split(comment)[0].rstrip(".")
    return f"{sentence})" if sentence.count("(") > sentence.count(")") else sentence


def _environments() -> dict[str, str]:
    """Our environments by id; the registry of gymnasium has them once their package is imported."""
    registry = importlib.import_module("gymnasium.envs.registration").registry
    before = set(registry)
    package = importlib.import_module("rlinf_envs")
    ours = {f"{package.__name__}:{name}": _first_line(registry[name]) for name in sorted(set(registry) - before)}
    return {
        **ours,
        "module:Class": "a gymnasium.Env whose spaces are Text, which nothing registers",
        "any gymnasium id": "CartPole-v1, module:Id, ...: env.id is handed to gymnasium as it is",
    }


def _first_line(spec: object) -> str:
    entry = getattr(spec, "vector_entry_point", None) or getattr(spec, "entry_point", None)
    return f"({entry})" if isinstance(entry, str) else ""
