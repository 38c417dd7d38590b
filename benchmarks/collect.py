"""Puts the sections of `benchmarks/results/` together: python benchmarks/collect.py writes `benchmarks/RESULTS.md`."""

from __future__ import annotations

from pathlib import Path

ORDER = (
    "quickstart",
    "smollm2",
    *(
        f"smollm2_{name}"
        for name in (
            "arithmetic",
            "sft_then_grpo",
            "lora",
            "process",
            "distillation",
            "dpo",
            "gsm_symbolic",
            "tools",
            "functions",
        )
    ),
    "grpo_vs_trl",
    "grpo_vs_trl_pretrained",
    "precision",
    "recipes",
    "recipes_whole",
    "reward_model",
    "distillation",
    "lm_eval",
    "grading",
    "generation",
    "agents",
    "agents_exactness",
    "conversations",
    "endpoint",
    "sandbox",
    "weight_update",
    "driver",
    "images",
    "soak",
    "staleness",
    "learner_parity",
    "robots",
    "tabletop_words",
    "tabletop_flow",
    "libero_steps",
    "libero_object",
    "isolation",
    "robot_data",
    "sim_recipes",
    "sim_vs_sb3",
    "off_policy_vs_sb3",
    "sweeps",
)
HEAD = """# What was measured

Every section names its command. Sections are written by their benchmarks into `benchmarks/results/` and put together by
`python benchmarks/collect.py`. Most of it was measured on a virtual machine with two cores that other work shared: read
ratios and CPU-seconds rather than seconds.
"""


def main() -> None:
    folder = Path(__file__).parent
    names = [name for name in ORDER if (folder / "results" / f"{name}.md").exists()]
    sections = [(folder / "results" / f"{name}.md").read_text().strip() for name in names]
    (folder / "RESULTS.md").write_text("\n\n".join([HEAD.strip(), *sections]) + "\n")
    print(f"{folder / 'RESULTS.md'}: {', '.join(names)}")


if __name__ == "__main__":
    main()
