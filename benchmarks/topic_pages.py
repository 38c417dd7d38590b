"""Generate docs/benchmarks/ from ``benchmarks/results/*.json``: python benchmarks/topic_pages.py writes the pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from records import ROOT, Figure, Record, load_all

from rlinf.report.card import curves

FOLDER = ROOT / "docs" / "benchmarks"
_GENERATED = "<!-- Generated from benchmarks/results/*.json by `make docs`. -->\n"
TOPICS: Mapping[str, tuple[str, str]] = {
    "text": (
        "Text: answer quality",
        "Accuracy of language models before and after training, on tasks that are never trained on.",
    ),
    "agents": ("Agents", "Multi-turn environments, tool calls, the agents' endpoint and the sandbox."),
    "simulators": (
        "Simulators and robots",
        "Returns and success rates of policies in simulators, and of vision-language-action policies.",
    ),
    "throughput": ("Throughput", "Tokens, steps and calls per CPU-second of single parts."),
    "scaling": (
        "Scaling and fault tolerance",
        "Driver overhead, weight transfer, staleness, parity of learners, and runs whose workers are killed.",
    ),
    "peers": (
        "Against other libraries",
        "The same task, model and settings in rlinf and in another library, on the same machine.",
    ),
}
_HEAD = """
# Benchmarks

How fast is rlinf, and how good are the policies that it trains? Each row names a record with its command, commit, date
and machine. Most figures come from two-core virtual machines that other work shared: compare ratios and CPU-seconds
rather than seconds. No GPU was available; there is no figure of one yet.

"""
_TAIL = """
Rows without a peer show what a recipe of `config/` reaches. Brackets hold the interval that was recorded with the
figure; its kind is given on the page of the topic. An older figure without a recorded interval has none.

## Topics

{topics}

## Measure again

`make benchmarks` runs the short benchmarks within 20 minutes and prints which figures moved beyond noise: those whose
new interval does not overlap the committed one. `python benchmarks/NAME.py --write` replaces one committed record, and
`make docs` renews these pages. Long benchmarks take hours; their docstrings describe how to start them.

Earlier figures: `git log -- benchmarks/RESULTS.md`.
"""


@dataclass(frozen=True)
class Row:
    """A row of the summary: our figure, and a peer's or the one before training."""

    question: str
    record: str
    ours: tuple[str, str]
    """Case and metric."""
    against: tuple[str, str] | None = None
    called: str = ""
    """What the second figure is of."""
    ratio: bool = False
    """Show ours divided by theirs."""


SUMMARY = (
    Row(
        "Whole GRPO step, responses of varying length: tokens per CPU-second",
        "grpo_vs_trl",
        ("variable, rlinf, `hf`", "tokens per CPU-second (median, min to max)"),
        ("variable, TRL `GRPOTrainer`, float32", "tokens per CPU-second (median, min to max)"),
        "TRL 1.16",
        True,
    ),
    Row(
        "The same with SmolLM2-135M in bfloat16",
        "grpo_vs_trl_pretrained",
        ("7 to 96 tokens", "rlinf, tokens per CPU-second"),
        ("7 to 96 tokens", "TRL, tokens per CPU-second"),
        "TRL 1.16",
        True,
    ),
    Row(
        "GRPO with SmolLM2-135M in float32 until 90% of word problems are right: CPU-seconds, lower is better",
        "time_to_accuracy",
        ("rlinf, `hf`, float32", "CPU-seconds"),
        ("TRL `GRPOTrainer`, float32", "CPU-seconds"),
        "TRL 1.16",
        True,
    ),
    Row(
        "Sampling, 30M parameters, varying length: tokens per CPU-second",
        "generation",
        ("30m, ragged, rlinf `hf`", "tokens per CPU-second"),
        ("30m, ragged, transformers `generate`", "tokens per CPU-second"),
        "transformers `generate`",
        True,
    ),
    Row(
        "PPO on CartPole to a training return of 475: CPU-seconds, lower is better",
        "sim_vs_sb3",
        ("CartPole PPO", "rlinf, CPU-seconds"),
        ("CartPole PPO", "SB3, CPU-seconds"),
        "Stable-Baselines3 2.9",
        True,
    ),
    Row(
        "PPO on HalfCheetah, a million steps: CPU-seconds, lower is better",
        "sim_vs_sb3",
        ("HalfCheetah PPO, a million steps", "rlinf, CPU-seconds"),
        ("HalfCheetah PPO, a million steps", "SB3, CPU-seconds"),
        "Stable-Baselines3 2.9, RL Zoo settings",
        True,
    ),
    Row(
        "SAC step with equal networks: CPU-milliseconds, lower is better",
        "sim_vs_sb3",
        ("SAC on Pendulum, a step, load 10 to 20", "rlinf, ms"),
        ("SAC on Pendulum, a step, load 10 to 20", "SB3, ms"),
        "Stable-Baselines3 2.9",
        True,
    ),
    Row(
        "TD3 on Pendulum, 8,000 steps: return",
        "off_policy_vs_sb3",
        ("`pendulum_td3`, Pendulum-v1, 8,000 steps", "rlinf, return"),
        ("`pendulum_td3`, Pendulum-v1, 8,000 steps", "peer, return"),
        "Stable-Baselines3 2.9",
    ),
    Row(
        "Grading 2,016 generated answers: share right",
        "grading",
        ("generated, rlinf", "right"),
        ("generated, math-verify", "right"),
        "math-verify 0.9",
    ),
    Row(
        "Accuracy of one policy on 200 sums, measured by both",
        "lm_eval",
        ("`rlinf eval`", "accuracy"),
        ("lm-eval, `exact_match` of `#### (-?[0-9]+)`", "accuracy"),
        "lm-eval",
    ),
    Row(
        "Quickstart: held-out accuracy after 40 steps of GRPO",
        "quickstart",
        ("seed 0, `hf`", "after"),
        ("seed 0, `hf`", "before"),
        "before GRPO",
    ),
    Row(
        "SmolLM2-135M on word problems: accuracy after 24 steps of GRPO alone",
        "smollm2",
        ("seed 0", "after 24 steps"),
        ("seed 0", "before"),
        "before training",
    ),
    Row(
        "Tool-using agent on SmolLM2: reward after 10 steps",
        "smollm2_tools",
        ("10 iterations", "mean reward"),
        ("0 iterations", "mean reward"),
        "before RL",
    ),
    Row(
        "LIBERO from pixels and instructions, seed 1 (three of four seeds improve): success within 140 steps",
        "libero_object",
        ("seed 1, 140 steps", "after GRPO"),
        ("seed 1, 140 steps", "after imitation"),
        "after imitation",
    ),
    Row(
        "Asynchronous training (staleness 2): samples per second",
        "staleness",
        ("long tail, first complete, keep_cache", "staleness 2, samples per second"),
        ("long tail, first complete, keep_cache", "staleness 0, samples per second"),
        "synchronous",
        True,
    ),
    Row(
        "Fault tolerance: actors killed in two hours, deaths without a restart of the run",
        "soak",
        ("two hours", "deaths that did not end the run"),
        ("two hours", "actors killed"),
        "all kills",
    ),
)


def pages() -> Mapping[str, str]:
    """Return every page by its file name."""
    records = load_all()
    unknown = [name for name, record in records.items() if record.topic not in TOPICS]
    if unknown:
        raise ValueError(f"records with an unknown topic: {unknown}; topics are {sorted(TOPICS)}")
    found = {"index.md": summary_page(records)}
    for slug, (title, intro) in TOPICS.items():
        sections = [section(name, record) for name, record in records.items() if record.topic == slug]
        found[f"{slug}.md"] = f"{_GENERATED}\n# {title}\n\n{intro}\n\n" + "\n".join(sections)
    return found


def summary_page(records: Mapping[str, Record]) -> str:
    """Return the summary: a row a question, with the topic that has its record."""
    lines = ["| question | rlinf | compared with | ratio | details |", "|---|---|---|---|---|"]
    for row in SUMMARY:
        record = records[row.record]
        ours = record.figure(*row.ours)
        theirs = record.figure(*row.against) if row.against else None
        other = f"{row.called}: {cell(theirs)}" if theirs else ""
        ratio = f"{ours.value / theirs.value:.2f}" if row.ratio and theirs and ours.value and theirs.value else ""
        link = f"[{record.date}]({record.topic}.md#{anchor(record.title)})"
        lines.append(f"| {row.question} | {cell(ours)} | {other} | {ratio} | {link} |")
    topics = "\n".join(f"- [{title}]({slug}.md): {intro}" for slug, (title, intro) in TOPICS.items())
    return _GENERATED + _HEAD + "\n".join(lines) + "\n" + _TAIL.format(topics=topics)


def pictures() -> Mapping[str, str]:
    """Return the picture of every record that has curves, by its file name."""
    drawn = {name: record.curves for name, record in load_all().items()}
    return {f"{name}.svg": curves(one.groups, one.label, one.across) for name, one in drawn.items() if one}


def section(name: str, record: Record) -> str:
    """Return a record as a section: how, picture and table, what follows, and where the figures come from."""
    picture = f"![{record.curves.label} over {record.curves.across}]({name}.svg)" if record.curves else ""
    parts = [f"## {record.title}", record.note, picture, table(record), record.reading, source(record)]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(record: Record) -> str:
    """Return the figures as a table: a row a case, a column a metric."""
    metrics = list(dict.fromkeys(figure.metric for figure in record.figures))
    cases = list(dict.fromkeys(figure.case for figure in record.figures))
    lines = [f"| case | {' | '.join(metrics)} |", "|---" * (len(metrics) + 1) + "|"]
    cells = {(figure.case, figure.metric): cell(figure) for figure in record.figures}
    lines += [f"| {case} | {' | '.join(cells.get((case, metric), '') for metric in metrics)} |" for case in cases]
    return "\n".join(lines)


def cell(figure: Figure) -> str:
    """Return value, unit, interval and remark; a change in bold if its interval excludes 0.

    >>> cell(Figure("a", "b", 0.5, interval=(0.4, 0.6)))
    '0.5 [0.4, 0.6]'
    >>> [cell(Figure("a", "b", 0.5, interval=(low, 0.6), change=True)) for low in (0.4, -0.1)]
    ['**0.5** [0.4, 0.6]', '0.5 [-0.1, 0.6]']
    """
    parts = [] if figure.value is None else [_text(figure.value) + (f" {figure.unit}" if figure.unit else "")]
    if figure.change and figure.interval and not figure.interval[0] <= 0 <= figure.interval[1]:
        parts = [f"**{part}**" for part in parts]
    parts += [f"[{', '.join(map(_text, figure.interval))}]"] if figure.interval else []
    parts += [figure.remark] if figure.remark else []
    return " ".join(parts)


def _text(number: float) -> str:
    return f"{number:,}"


def source(record: Record) -> str:
    """Return command, date, commit, machine, n, seeds and kind of intervals in one line."""
    counts = sorted({figure.n for figure in record.figures if figure.n is not None})
    seeds = sorted({seed for figure in record.figures for seed in figure.seeds or ()})
    facts = [record.date, f"commit {record.commit}", record.machine]
    facts += [f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"] if counts else []
    facts += [f"seeds {', '.join(map(str, seeds))}"] if seeds else []
    facts += [f"intervals: {record.intervals}"] if record.intervals else ["no intervals recorded"]
    return f"`{record.command}`: {'; '.join(facts)}."


def anchor(title: str) -> str:
    """Return the anchor that MkDocs gives a heading.

    >>> anchor("A GRPO step, against TRL")
    'a-grpo-step-against-trl'
    """
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return "-".join(kept.split())


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in {**pages(), **pictures()}.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
