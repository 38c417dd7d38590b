"""The model card of a run: what was trained, how, on what, and how well, as the Hugging Face Hub reads it."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rlinf.algorithms.catalog import OFF_POLICY
from rlinf.base.json_files import read_json_file
from rlinf.base.packages import DISTRIBUTION
from rlinf.metrics.table import METRICS
from rlinf.report.configuration import config_rows
from rlinf.report.evaluations import evaluation_rows
from rlinf.report.payload import headlines
from rlinf.report.runs import RunRecord

# A curve as a picture that needs no script: for model cards and the first page of the documentation.
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 640, 320, 64, 28, 40


COLOURS = ("#3f51b5", "#e65100", "#2e7d32", "#8e24aa")
Line = Sequence[tuple[float, float]]


def curve(steps: Sequence[float], values: Sequence[float], label: str) -> str:
    """Draw a polyline over the training iterations, with two axes and the range of the values. At least one point."""
    return curves({"": [list(zip(steps, values, strict=True))]}, label, "training iteration")


def curves(groups: Mapping[str, Sequence[Line]], label: str, across: str) -> str:
    """Draw the polylines of each group in a colour, with two axes, their ranges and the groups' names.

    ``label`` and ``across`` name the two axes. At least one point.
    """
    points = [point for lines in groups.values() for line in lines for point in line]
    low, high = min(0.0, *(y for _, y in points)), max(0.0, *(y for _, y in points))
    high = high if high > low else low + 1.0
    first = min(x for x, _ in points)
    last = max(*(x for x, _ in points), first + 1)
    wide, tall = WIDTH - LEFT - 16, HEIGHT - BOTTOM - TOP
    drawn, names = "", ""
    for number, (name, lines) in enumerate(groups.items()):
        colour = COLOURS[number % len(COLOURS)]
        for line in lines:
            ends = " ".join(
                f"{LEFT + wide * (x - first) / (last - first):.1f},{TOP + tall * (high - y) / (high - low):.1f}"
                for x, y in line
            )
            drawn += f'<polyline points="{ends}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
        if name:
            height = TOP + tall - 12 - 20 * (len(groups) - 1 - number)
            names += f'<text x="{WIDTH - 24}" y="{height}" text-anchor="end" fill="{colour}">{html.escape(name)}</text>'
    texts = [(LEFT - 8, TOP + 6, "end", f"{high:.4g}"), (LEFT - 8, TOP + tall, "end", f"{low:.4g}")]
    texts += [(WIDTH - 16, HEIGHT - 14, "end", f"{across} {last:.0f}"), (LEFT, 16, "start", label)]
    written = "".join(
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="#666">{html.escape(text)}</text>'
        for x, y, anchor, text in texts
    )
    style = 'font-family="sans-serif" font-size="14"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" {style}>'
        f'<g stroke="#888"><path d="M{LEFT} {TOP}V{TOP + tall}H{WIDTH - 16}" fill="none"/></g>'
        f"{drawn}{written}{names}</svg>\n"
    )


CURVES = ("eval/accuracy", "eval/success_once", "eval/return", "reward/mean", "rollout/return", "rollout/accuracy")
# Settings that may name files or runs of the machine that trained.
_FILES = (
    "run.init_from",
    "policy.path",
    "policy.tokenizer.path",
    "teacher.path",
    "env.kwargs.path",
    "sft.data",
    "sft.dataset",
    "sft.eval_data",
    "algorithm.prior_data",
)
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
# Settings of where and how long something ran, which do not affect the result.
_HOW_IT_RAN = ("run.dir", "run.name", "run.resume", "logging.", "cluster.", "checkpoint.")


def card(run: RunRecord, *, step: int, license: str | None, curves: Sequence[str]) -> str:
    """Write `README.md` for the policy after ``step``. ``curves``: files in its folder that show the run's course."""
    parts = [
        f"---\n{yaml.safe_dump(_front_matter(run, step, license), sort_keys=False, allow_unicode=True)}---",
        f"# {run.name}",
        _opening(run, step),
        _results(run, step),
        "\n".join(f"![{Path(name).stem.replace('_', ' ')}]({name})" for name in curves),
        f"## Use\n\n```python\n{_usage(run)}\n```",
        _training(run),
        _limits(run, license),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def drawn_curves(run: RunRecord) -> dict[str, str]:
    """File name -> picture, of the metrics that the run is judged by."""
    requested = dict.fromkeys((*headlines(run), *CURVES))
    results = {}
    for name in requested:
        column = run.series.get(name, [])
        points = [(step, value) for step, value in zip(run.steps, column, strict=False) if value is not None]
        if len(points) > 1:
            steps, values = zip(*points, strict=True)
            results[f"curves/{name.replace('/', '_')}.svg"] = curve(steps, values, name)
    return results


def is_text(run: RunRecord) -> bool:
    """Whether the policy is a language model."""
    return (run.setting("policy.name") or "causal_lm") == "causal_lm"


def base_model(run: RunRecord) -> str | None:
    """Return the hub's name of the model that training began with, if it has one."""
    path = run.setting("policy.path")
    return path if isinstance(path, str) and _HUB_NAME.fullmatch(path) and not Path(path).exists() else None


def stated_license(run: RunRecord) -> str | None:
    """Read the licence that the folder of the model that training began with states."""
    path = run.setting("policy.path")
    readme = Path(str(path)) / "README.md"
    if path is None or not readme.is_file():
        return None
    text = readme.read_text(encoding="utf-8", errors="replace")
    match = re.search(r"^license:\s*['\"]?([\w.+-]+)", text.partition("\n---")[0], re.MULTILINE)
    return match[1] if match else None


def _front_matter(run: RunRecord, step: int, license: str | None) -> dict[str, Any]:
    text, base = is_text(run), base_model(run)
    task = "text-generation" if text else "reinforcement-learning"
    algorithm = run.setting(
        "algorithm.loss_type" if run.setting("algorithm.loss_type") in OFF_POLICY else "algorithm.adv_type"
    )
    metrics = [
        {"type": name.removeprefix("eval/"), "name": _meaning(name), "value": round(value, 6)}
        for name, value in _rates(_metrics_at(run, step)).items()
    ]
    environment = _environment(run)
    result = {
        "task": {"type": task},
        "dataset": {"name": environment, "type": str(run.setting("env.id") or "supervised")},
        "metrics": metrics,
    }
    return {
        "library_name": "transformers" if text else DISTRIBUTION,
        **({"license": license} if license else {}),
        **({"base_model": base} if base else {}),
        "pipeline_tag": task,
        "tags": [tag for tag in (DISTRIBUTION, "reinforcement-learning", str(algorithm)) if tag],
        **({"model-index": [{"name": run.name, "results": [result]}]} if metrics else {}),
    }


def _opening(run: RunRecord, step: int) -> str:
    kind = "A causal language model" if is_text(run) else "A policy for a simulator"
    start = run.setting("policy.path")
    began = f", starting from `{start}`" if start else ""
    source = read_json_file(run.path / "init_from.json")
    lineage = f" It continues the run `{Path(source['run']).name}` from step {source['step']}." if source else ""
    algorithm, loss = run.setting("algorithm.adv_type"), run.setting("algorithm.loss_type")
    rule = f"the off-policy loss `{loss}`" if loss in OFF_POLICY else f"`{algorithm}` advantages and the loss `{loss}`"
    return (
        f"{kind}, trained with {DISTRIBUTION} on {_environment(run)}{began}: {step} training "
        f"iterations with {rule}.{lineage}"
    )


def _environment(run: RunRecord) -> str:
    kwargs = run.setting("env.kwargs") or {}
    task = kwargs.get("task") or (Path(str(kwargs["path"])).name if "path" in kwargs else None)
    name = run.setting("env.id") or Path(str(run.setting("sft.data"))).name
    return f"{name} ({task})" if task else str(name)


def _metrics_at(run: RunRecord, step: int) -> dict[str, float]:
    """Return the run's evaluation after ``step``; nothing if it did not evaluate then."""
    index = run.steps.index(step) if step in run.steps else None
    if index is None:
        return {}
    return {name: value for name, column in run.series.items() if (value := column[index]) is not None}


def _rates(metrics: Mapping[str, float]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in metrics.items()
        if name.startswith("eval/") and "/ci_" not in name and not name.endswith("/n")
    }


def _meaning(name: str) -> str:
    return METRICS[name].meaning if name in METRICS else name.removeprefix("eval/").replace("_", " ")


def _results(run: RunRecord, step: int) -> str:
    """List the run's own evaluations before and after, then those of `rlinf eval`."""
    summary = run.summary or {}
    before, after = summary.get("initial_metrics", {}), _metrics_at(run, step)
    rows = [f"| {_meaning(name)} (`{name}`) | {_cell(name, before)} | {_cell(name, after)} |" for name in _rates(after)]
    parts = ["## Results"] if rows or run.evaluations else []
    if rows:
        size = run.setting("evaluation.size")
        head = f"| metric | before training | after step {step} |\n|---|---|---|"
        parts += [f"On {size} held-out tasks; 95% intervals in brackets.", "\n".join([head, *rows])]
    saved = [
        f"| {row['data']} | {row['metric']} | {row['value']:.4g} [{row['low']:.4g}, {row['high']:.4g}] | "
        f"{row['tasks']:.0f} | {row['samples']} at {row['temperature']} | {row['step']} |"
        for row in evaluation_rows(run)
    ]
    if saved:
        head = "| data | metric | value | tasks | samples, temperature | step |\n|---|---|---|---|---|---|"
        parts += ["Evaluations after training:", "\n".join([head, *saved])]
    return "\n\n".join(parts)


def _cell(name: str, metrics: Mapping[str, float]) -> str:
    if name not in metrics:
        return "-"
    low, high = metrics.get(f"{name}/ci_low"), metrics.get(f"{name}/ci_high")
    interval = f" [{low:.4g}, {high:.4g}]" if low is not None and high is not None else ""
    return f"{metrics[name]:.4g}{interval}"


def _usage(run: RunRecord) -> str:
    if is_text(run):
        return (
            "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
            'model, tokenizer = AutoModelForCausalLM.from_pretrained("."), AutoTokenizer.from_pretrained(".")\n'
            f"# A prompt of the training, as the policy read it.\nprompt = {_prompt(run)!r}\n"
            'tokens = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")\n'
            f"output = model.generate(**tokens, max_new_tokens={run.setting('rollout.max_new_tokens') or 64})\n"
            'print(tokenizer.decode(output[0, tokens["input_ids"].shape[1] :]))'
        )
    return (
        "import gymnasium\nimport rlinf\n\n"
        f'policy, env = rlinf.Policy.load("."), gymnasium.make("{run.setting("env.id")}")\n'
        "observation, _ = env.reset()\naction = policy.act(observation)"
    )


def _prompt(run: RunRecord) -> str:
    """Find a prompt of the newest samples as the policy read it; the question alone from files of older versions."""
    for step in sorted(run.samples, reverse=True):
        for row in run.samples[step]:
            if row.get("rendered") or row.get("prompt"):
                return str(row.get("rendered") or row["prompt"])
    return "What is 17 + 28?"


def _again(run: RunRecord) -> str:
    """Write the command that repeats the training, and the files that it needs from elsewhere."""
    needed = [key for key in _FILES if isinstance(value := run.setting(key), str) and not _is_hub_name(key, value)]
    command = "rlinf train training/config.yaml run.dir=runs/again"
    if not needed:
        return f"`{command}`, given in this folder, repeats it."
    listed = "; ".join(f"`{key}` was `{run.setting(key)}`" for key in needed)
    values = " ".join(f"{key}=PATH" for key in needed)
    return f"`{command} {values}`, given in this folder, repeats it with the files of the training: {listed}."


def _is_hub_name(key: str, value: str) -> bool:
    return key != "run.init_from" and bool(_HUB_NAME.fullmatch(value)) and not Path(value).exists()


def _training(run: RunRecord) -> str:
    rows = [
        f"| `{row['key']}` | `{row['value'].replace('|', chr(92) + '|')}` |"
        for row in config_rows(run.config)
        if row["changed"] and not row["key"].startswith(_HOW_IT_RAN)
    ]
    versions = ", ".join(f"{name} {version}" for name, version in (run.machine.get("versions") or {}).items())
    summary = run.summary or {}
    wall = summary.get("wall_s")
    facts = [
        f"- seed {run.setting('run.seed')}" + (f"; {wall:.0f} s of training" if wall else ""),
        f"- {versions}" if versions else "",
        f"- commit {run.machine['commit']}" if run.machine.get("commit") else "",
        f"- weights {summary['params_sha256']} (sha256)" if summary.get("params_sha256") else "",
    ]
    listed = "\n".join(fact for fact in facts if fact)
    settings = "\n".join(["| setting | value |", "|---|---|", *rows])
    return (
        f"## Training\n\n{listed}\n\nSettings that differ from the defaults; all of them are in "
        f"`training/config.yaml`, every step's metrics in `training/metrics.jsonl`. {_again(run)}\n\n{settings}"
    )


def _limits(run: RunRecord, license: str | None) -> str:
    named = f"Licence: {license}." if license else "No licence is stated: contact the author before you use it."
    base = " The licence of the base model applies as well." if run.setting("policy.path") else ""
    return (
        f"## Limits\n\nTrained for the task above and evaluated on it alone: how it does elsewhere, and whether its "
        f"output is safe, was not measured. {named}{base}"
    )
