"""What one GPU proves in nine minutes: `make gpu`, or

    python benchmarks/gpu.py [--part NAME ...] [--again] [--rehearse] [--out build/gpu] [--write]

Each part is a process of its own that has two minutes, and its result is written at once: the same command goes on with
the parts that have none at this commit. `results.json` has the figures, `index.md` lists what holds. Without a GPU, or
without a package that a part needs, the part is skipped, and the page states what it would have proved. ``--rehearse``
runs the same commands on the CPU at a small size, which proves that they run and nothing about a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from records import ROOT, Figure, add_output, commit, save

PART_S, ALL_S = 120, 540
"""Seconds of a part, and of all."""
_RLINF = (sys.executable, "-m", "rlinf.cli")
_QUIET = ("logging.progress=none", "logging.tensorboard=false", "checkpoint.every=0", "checkpoint.export=false")
_SHORT = ("sft.steps=40", "run.max_steps=3", "evaluation.size=64", "rollout.batch_size=8", "algorithm.group_size=8")


class Disproved(Exception):
    """A figure is not within its bound."""


@dataclass(frozen=True)
class Machine:
    """Where a part runs."""

    folder: Path
    card: bool
    """False: it is rehearsed on the CPU."""

    def train(self, name: str, *overrides: str, file: str = "math/quickstart", card: bool | None = None) -> Run:
        """Run `rlinf train`; ``card`` False hides the GPU from it."""
        visible = self.card if card is None else card and self.card
        environment = dict(os.environ) if visible else {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        folder = self.folder / name
        words = [word for word in overrides if word.startswith("--")]
        keys = [word for word in overrides if not word.startswith("--")]
        if not self.card:
            keys.append("cluster.backend=local")
        command = [
            *_RLINF,
            "train",
            file,
            *_QUIET,
            f"run.dir={folder}",
            *keys,
            *[w for o in words for w in o.split("=")],
        ]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(
                f"rlinf train {name} ended with {done.returncode}: {(done.stderr or done.stdout)[-1500:]}"
            )
        return Run.read(folder)

    def train_together(self, runs: Mapping[str, Sequence[str]]) -> dict[str, Run]:
        """Run several at the same time, name -> overrides: starting takes most of their time."""
        with ThreadPoolExecutor(len(runs)) as pool:
            begun = {name: pool.submit(self.train, name, *keys) for name, keys in runs.items()}
            return {name: one.result() for name, one in begun.items()}


@dataclass(frozen=True)
class Run:
    """What a training left behind."""

    folder: Path
    lines: list[dict[str, float]]
    digest: str

    @classmethod
    def read(cls, folder: Path) -> Run:
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        summary = json.loads((folder / "summary.json").read_text())
        return cls(folder, [line for line in lines if line["step"] >= 0], summary["params_sha256"])

    def mean(self, metric: str, *, first: int = 1) -> float:
        """Average a metric over the steps from ``first`` on that have it."""
        found = [line[metric] for line in self.lines if line["step"] >= first and metric in line]
        if not found:
            raise Disproved(f"{metric} was never logged")
        return sum(found) / len(found)


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def require(holds: bool, words: str) -> None:
    """Raise :class:`Disproved` with ``words`` unless ``holds``."""
    if not holds:
        raise Disproved(words)


def device(machine: Machine) -> dict[str, float]:
    import torch

    kind = "cuda" if machine.card else "cpu"
    size = 8192 if machine.card else 512
    random = torch.Generator().manual_seed(0)
    left, right = (torch.randn(512, 512, generator=random) for _ in range(2))
    wanted = left.double() @ right.double()
    found = (left.to(kind) @ right.to(kind)).cpu().double()
    float32 = float((found - wanted).abs().max() / wanted.abs().max())
    require(float32 < 1e-4, f"float32 products differ from those of the CPU by {float32:.2g} (TF32 is on?)")
    big = torch.randn(size, size, device=kind, dtype=torch.bfloat16)
    for _ in range(3):
        big @ big
    _synchronise(kind)
    began = time.perf_counter()
    for _ in range(5):
        big @ big
    _synchronise(kind)
    figures = {"float32_error": float32, "bfloat16_tflops": 5 * 2 * size**3 / (time.perf_counter() - began) / 1e12}
    if machine.card:
        figures["memory_gb"] = torch.cuda.get_device_properties(0).total_memory / 1e9
    return figures


def _synchronise(kind: str) -> None:
    import torch

    if kind == "cuda":
        torch.cuda.synchronize()


def quickstart(machine: Machine) -> dict[str, float]:
    run = machine.train("quickstart", *_SHORT, "learner.compare_float32_every=1", "policy.dtype=bfloat16")
    gap = run.mean("train/sampler_logprob_gap")
    require(gap < 0.02, f"sampler and learner differ by {gap:.3g} nats")
    compared = {name for line in run.lines for name in line if "float32" in name}
    figures = {name.partition("/")[2]: run.mean(name) for name in sorted(compared)}
    return {
        **figures,
        "gap_nats": gap,
        "tokens_per_s": run.mean("speed/tokens_per_s", first=2),
        "step_s": run.mean("time/step_s", first=2),
    }


def parity(machine: Machine) -> dict[str, float]:
    exact = ("policy.dtype=float32", "cluster.backend=local")
    known = machine.train("known", *_SHORT, *exact, "run.max_steps=2", "--save-batches=2", card=False)
    figures = {}
    backends = [name for name in ("torch", "fsdp", "megatron") if name != "megatron" or _installed(name)]
    keys = (*_SHORT, *exact, "run.max_steps=2", f"--from-batches={known.folder / 'batches'}")
    runs = machine.train_together({name: (*keys, f"learner.backend={name}") for name in backends})
    for backend, run in runs.items():
        first = [next(line["train/loss"] for line in one.lines if line["step"] == 1) for one in (known, run)]
        figures[f"{backend}_loss_difference"] = abs(first[0] - first[1])
        require(figures[f"{backend}_loss_difference"] < 1e-4, f"{backend}: first loss {first[1]} instead of {first[0]}")
    return figures


def repeatable(machine: Machine) -> dict[str, float]:
    """Count how often an operation gives other bits than the first time: an explanation of `same_bits`."""
    import torch

    kind, size = ("cuda", 4096) if machine.card else ("cpu", 64)
    random = torch.Generator().manual_seed(0)
    table = torch.randn(512, 64, generator=random).to(kind)
    index = torch.randint(0, 512, (size,), generator=random).to(kind)
    rows = torch.randn(size, 64, generator=random).to(kind)
    heads = torch.randn(1, 4, size // 8, 64, generator=random).to(kind)

    def gradient(of: Callable[[torch.Tensor], torch.Tensor], at: torch.Tensor) -> torch.Tensor:
        leaf = at.clone().requires_grad_()
        result = of(leaf)
        result.backward(torch.linspace(0, 1, result.numel(), device=kind).view_as(result).to(result.dtype))
        assert leaf.grad is not None
        return leaf.grad

    def attention(states: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(states, states, states, is_causal=True)

    operations: dict[str, Callable[[], torch.Tensor]] = {
        "product": lambda: rows.T @ rows,
        "product_16_bits": lambda: rows.bfloat16().T @ rows.bfloat16(),
        "cumulative_sum": lambda: rows.flatten().cumsum(0),
        "add_by_index": lambda: torch.zeros_like(table).index_add_(0, index, rows),
        "embedding_gradient": lambda: gradient(lambda at: torch.nn.functional.embedding(index, at), table),
        "select_gradient": lambda: gradient(lambda at: at.index_select(0, index), table),
        "attention_gradient": lambda: gradient(attention, heads),
        "attention_gradient_16_bits": lambda: gradient(attention, heads.bfloat16()),
    }
    return {
        f"{name}_differs": float(sum(not torch.equal(first, operation()) for _ in range(20)))
        for name, operation in operations.items()
        for first in [operation()]
    }


def same_bits(machine: Machine) -> dict[str, float]:
    keys = (*_SHORT, "run.max_steps=4")
    begun = {"whole": keys, "again": keys, "cut": (*keys, "run.max_steps=2", "checkpoint.every=2")}
    runs = machine.train_together(begun)
    whole, again = runs["whole"], runs["again"]
    require(whole.digest == again.digest, f"two equal runs differ {first_difference(whole, again)}")
    cut = machine.train("cut", *keys, "checkpoint.every=2")
    require(whole.digest == cut.digest, f"a resumed run differs from a whole one {first_difference(whole, cut)}")
    return {"steps": 4.0}


def first_difference(one: Run, other: Run) -> str:
    """Name the first step at which two runs logged other values, and these metrics."""
    for left, right in zip(one.lines, other.lines, strict=False):
        changed = [
            name
            for name, value in left.items()
            if not name.startswith(("time/", "speed/", "memory/")) and right.get(name) != value
        ]
        if changed:
            return f"from step {left['step']:.0f} on: {', '.join(changed[:8])}"
    return "in their weights alone"


def offload(machine: Machine) -> dict[str, float]:
    moved = {"learner.offload={optimizer: true, weights: true}"}
    runs = machine.train_together({"stay": _SHORT, "away": (*_SHORT, *moved)})
    stay, away = runs["stay"], runs["away"]
    bytes_moved = max(line.get("weights/offload_bytes", 0.0) for line in away.lines)
    require(not machine.card or bytes_moved > 0, "nothing was moved")
    difference = first_difference(stay, away)
    require(stay.digest == away.digest, f"weights that were moved to the host and back learn otherwise {difference}")
    return {"offload_mb": bytes_moved / 1e6}


def engine(machine: Machine) -> dict[str, float]:
    run = machine.train(
        "vllm", *_SHORT, "rollout.sampler=vllm", "rollout.sleep=always" if machine.card else "rollout.sleep=auto"
    )
    gap = run.mean("train/sampler_logprob_gap")
    require(gap < 0.02, f"vLLM and the learner differ by {gap:.3g} nats")
    return {
        "gap_nats": gap,
        "tokens_per_s": run.mean("speed/tokens_per_s", first=2),
        "weights_s": run.mean("time/weights_s", first=2),
    }


def experts(machine: Machine) -> dict[str, float]:
    moe = {
        **{"model_type": "qwen3_moe", "hidden_size": 128, "intermediate_size": 256, "moe_intermediate_size": 64},
        **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32},
        **{"num_experts": 16, "num_experts_per_tok": 4, "tie_word_embeddings": True},
    }
    sampler = "vllm" if machine.card else "hf"
    keys = (f"policy.architecture={json.dumps(moe)}", f"rollout.sampler={sampler}")
    # Both engines share the GPU.
    keys = (*keys, "rollout.vllm.gpu_memory_utilization=0.3")
    runs = machine.train_together(
        {
            "without": (*_SHORT, *keys, "rollout.sleep=auto"),
            "replayed": (*_SHORT, *keys, "rollout.router_replay=true"),
        }
    )
    without, replayed = (runs[name].mean("train/sampler_logprob_gap") for name in ("without", "replayed"))
    require(replayed <= without, f"the gap is {replayed:.3g} with replayed experts and {without:.3g} without")
    return {"gap_without": without, "gap_with": replayed}


def half_billion(machine: Machine) -> dict[str, float]:
    large = {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14}
    shape = (
        large
        if machine.card
        else {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    )
    model = {"model_type": "qwen2", **shape, "num_key_value_heads": 2, "tie_word_embeddings": True}
    tokens = 512 if machine.card else 16
    keys = (
        *(f"policy.architecture={json.dumps(model)}", "policy.tokenizer.vocab_size=2000", "sft.steps=0"),
        *(f"rollout.max_new_tokens={tokens}", "rollout.batch_size=16", "algorithm.group_size=8", "run.max_steps=3"),
        *("evaluation.size=0", "rollout.sampler=hf", "algorithm.entropy_bonus=0.001"),
    )
    with PeakMemory() as used:
        run = machine.train("half_billion", *keys)
    figures = {
        "tokens_per_s": run.mean("speed/tokens_per_s", first=2),
        "update_s": run.mean("time/update_s", first=2),
        "used_gb": used.most / 1e9,
    }
    if machine.card:
        figures["planned_gb"] = planned_bytes(keys) / 1e9
        distance = figures["used_gb"] - figures["planned_gb"]
        require(abs(distance) < max(4.0, 0.35 * figures["used_gb"]), f"{figures['used_gb']:.1f} GB are used in all")
    return figures


def planned_bytes(overrides: Sequence[str]) -> float:
    """Return the memory of the learner's rank and the sampler's weights, as `rlinf check` plans them."""
    from rlinf.config import load
    from rlinf.models.architecture_numbers import decoder_shape
    from rlinf.planning.memory import estimate

    config = load(ROOT / "config" / "math" / "quickstart.yaml", list(overrides))
    decoder = decoder_shape(config.policy)
    assert decoder is not None
    memory = estimate(config, decoder, 1)
    return float(memory.peak + memory.sampler)


class PeakMemory:
    """The most memory of the first GPU that is in use while the block runs, by `nvidia-smi`."""

    def __init__(self) -> None:
        self.most = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
        while not self._over.wait(0.2):
            try:
                output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout
            except (OSError, subprocess.SubprocessError):
                return
            self.most = max(self.most, float(output.split()[0]) * 2**20)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def simulator(machine: Machine) -> dict[str, float]:
    keys = ("run.max_steps=3", "evaluation.size=4")
    here = machine.train("cpu", *keys, file="sim/cartpole_ppo", card=False)
    there = machine.train("card", *keys, file="sim/cartpole_ppo")
    losses = [next(line["train/loss"] for line in one.lines if line["step"] == 1) for one in (here, there)]
    difference = abs(losses[0] - losses[1])
    require(difference < 1e-3, f"first loss {losses[1]} instead of {losses[0]}")
    return {"loss_difference": difference, "steps_per_s": there.mean("speed/steps_per_s", first=2)}


def batch_simulator(machine: Machine) -> dict[str, float]:
    run = machine.train("brax", "run.max_steps=3", "evaluation.size=8", file="sim/brax_inverted_pendulum_ppo")
    return {"steps_per_s": run.mean("speed/steps_per_s", first=2)}


@dataclass(frozen=True)
class Part:
    """A part of the proof."""

    prove: Callable[[Machine], dict[str, float]]
    proves: str
    """A sentence of what holds if it passes."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """Package -> how to install it."""
    needs_in_rehearsal: bool = True
    """Whether the rehearsal needs the packages too."""


_VLLM = {"vllm": 'pip install "oneloop-rl[vllm]"'}
PARTS: Mapping[str, Part] = {
    "device": Part(device, "products on the GPU equal the CPU's in float32, and run in bfloat16"),
    "quickstart": Part(
        quickstart, "the quickstart trains in bfloat16 on the GPU; sampler and learner agree within 0.02 nats"
    ),
    "parity": Part(parity, "torch, fsdp and megatron at one rank have the CPU's first loss within 1e-4 in float32"),
    "repeatable": Part(repeatable, "operations whose figure is 0 gave the same bits 20 times"),
    "same_bits": Part(same_bits, "a run that is cut and resumed on the GPU ends with the bits of one that was not"),
    "offload": Part(offload, "optimiser and weights that wait in host memory change no bit"),
    "engine": Part(engine, "vLLM samples on the GPU, sleeps, wakes, takes weights in-place and agrees", _VLLM),
    "experts": Part(
        experts,
        "vLLM returns the experts of its tokens, and replaying them narrows the gap",
        _VLLM,
        needs_in_rehearsal=False,  # the sampler `hf` takes vLLM's part
    ),
    "half_billion": Part(
        half_billion, "GRPO on a random Qwen2 of half a billion weights fits the plan of `rlinf check`"
    ),
    "simulator": Part(simulator, "PPO on the GPU has the CPU's first loss within 1e-3"),
    "batch_simulator": Part(
        batch_simulator,
        "a simulator of thousands of states steps on the GPU",
        {"brax": 'pip install "oneloop-rl[brax]"'},
    ),
}


@dataclass(frozen=True)
class Result:
    """What became of a part."""

    status: str
    """passed, failed, skipped, or rehearsed."""
    proves: str
    seconds: float = 0.0
    why: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    commit: str = ""


def run_part(name: str, *, card: bool, limit_s: float) -> Result:
    """Run a part in a process of its own, which is ended with all that it started when its time is over."""
    part, began = PARTS[name], time.monotonic()
    result = Result("passed" if card else "rehearsed", part.proves, commit=commit())
    command = [sys.executable, __file__, "--child", name, *([] if card else ["--rehearse"])]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return replace(result, status="failed", why=f"not over after {limit_s:.0f} s", seconds=limit_s)
    seconds = round(time.monotonic() - began, 1)
    if process.returncode:
        lines = errors.strip().splitlines() or ["no message"]
        return replace(result, status="failed", why="\n".join(lines[-12:]), seconds=seconds)
    return replace(result, figures=json.loads(output.splitlines()[-1]), seconds=seconds)


def missing(part: Part, *, card: bool, rehearse: bool) -> str:
    """Explain why a part cannot run here; empty if it can."""
    if not (card or rehearse):
        return "this machine has no GPU that torch can use"
    absent = [f"{package} ({fix})" for package, fix in part.needs.items() if not _installed(package)]
    return f"not installed: {', '.join(absent)}" if absent and (card or part.needs_in_rehearsal) else ""


def page(results: Mapping[str, Result], name: str) -> str:
    """Write what holds, what does not, and what was not shown, in Markdown."""
    lines = ["# What one GPU proves", "", f"{name}. {sum(one.status == 'passed' for one in results.values())} of "]
    lines[-1] += f"{len(PARTS)} parts passed."
    heads = {
        "failed": "Does not hold",
        "passed": "Holds",
        "rehearsed": "Runs on the CPU, which proves nothing about a GPU",
        "skipped": "Not shown",
    }
    for status, head in heads.items():
        found = {part: one for part, one in results.items() if one.status == status}
        if found:
            lines += ["", f"## {head}", ""]
        for part, one in found.items():
            verb = "would have proved that " if status in ("skipped", "rehearsed") else ""
            seconds = f" ({one.seconds:.0f} s)" if one.seconds else ""
            lines.append(f"- **{part}**{seconds}: {verb}{one.proves}.")
            if one.why:
                lines.append(f"    - {one.why.splitlines()[-1]}")
            if one.figures:
                lines.append("    - " + ", ".join(f"{key} {value:.4g}" for key, value in one.figures.items()))
    return "\n".join(lines) + "\n"


def card_name() -> str | None:
    """Name the first GPU; None without one."""
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=list(PARTS), help="only these; may be repeated")
    parser.add_argument("--again", action="store_true", help="run parts that have a result too")
    parser.add_argument("--rehearse", action="store_true", help="run the commands on the CPU, at a small size")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--child", choices=list(PARTS), help=argparse.SUPPRESS)
    add_output(parser, "gpu")
    options = parser.parse_args()
    if options.child:
        with tempfile.TemporaryDirectory() as temporary:
            machine = Machine(Path(temporary), card=not options.rehearse)
            print(json.dumps(PARTS[options.child].prove(machine)))
        return 0
    results = collect(options)
    failed = [name for name, one in results.items() if one.status == "failed"]
    if options.write:
        figures = [
            Figure(name, key, value, n=1)
            for name, one in results.items()
            if one.status == "passed"
            for key, value in one.figures.items()
        ]
        save(options.write, figures, intervals="one measurement")
    return 1 if failed else 0


def collect(options: argparse.Namespace) -> dict[str, Result]:
    """Run the parts that have no result yet, and write results and page after each."""
    name, began = card_name(), time.monotonic()
    file = options.out / "results.json"
    known: dict[str, Any] = json.loads(file.read_text())["parts"] if file.exists() else {}
    results = {part: Result(**one) for part, one in known.items() if part in PARTS}
    options.out.mkdir(parents=True, exist_ok=True)
    card = name is not None and not options.rehearse
    for part in options.part or PARTS:
        before = results.get(part)
        done = before is not None and before.status in (("passed",) if card else ("passed", "rehearsed"))
        if done and before is not None and before.commit == commit() and not options.again:
            print(f"{part}: {before.status} before", flush=True)
            continue
        left = ALL_S - (time.monotonic() - began)
        why = missing(PARTS[part], card=card, rehearse=options.rehearse)
        if not why and left < 20 and card:
            why = "the nine minutes are over: the same command goes on with it"
        if why:
            results[part] = Result("skipped", PARTS[part].proves, why=why, commit=commit())
        else:
            limit = min(PART_S, left) if card else 5 * PART_S
            results[part] = run_part(part, card=card, limit_s=limit)
        one = results[part]
        verb = "would have proved that " if one.status == "skipped" else ""
        print(
            f"{part}: {one.status} ({one.seconds:.0f} s) {verb}{one.proves}{f': {one.why}' if one.why else ''}",
            flush=True,
        )
        saved = {"card": name, "commit": commit(), "parts": {key: asdict(value) for key, value in results.items()}}
        file.write_text(json.dumps(saved, indent=1))
        (options.out / "index.md").write_text(page(results, name or "No GPU"))
    print(f"{options.out / 'index.md'}: {len(results)} parts")
    return results


if __name__ == "__main__":
    sys.exit(main())
