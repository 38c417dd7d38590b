"""Steps of LIBERO per CPU-second, by what is drawn: `make venvs/libero`, then

    python benchmarks/libero_steps.py [--steps 24] [--python PYTHON] [--write]

Random actions in task 0 of libero_object with its own meshes and scenes. CPU time is that of both processes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from isolation import cpu_seconds
from records import add_output, figures_of_table, save

from rlinf.config.extras import OWN_ENVIRONMENT
from rlinf.rollouts.vec_env.vectorize import make_vec_env
from rlinf.schema import EnvConfig

CHUNKS = (1, 4, 8)
"""Actions a decision: pictures are drawn once in each N steps."""
PICTURES: Sequence[tuple[str, dict[str, object]]] = (
    ("both cameras, 128 px, with shadows as LIBERO's own", {"image_size": 128, "shadows": True}),
    ("both cameras, 128 px", {"image_size": 128}),
    ("both cameras, 64 px", {"image_size": 64}),
    ("one camera, 128 px", {"image_size": 128, "wrist": False}),
    ("one camera, 64 px", {"image_size": 64, "wrist": False}),
)


def steps_per_cpu_second(kwargs: dict[str, object], python: str, steps: int) -> list[float]:
    """For each of :data:`CHUNKS`, on the same environment."""
    options = EnvConfig(
        "rlinf_envs:rlinf/Libero-v0",
        {"suite": "libero_object", "task": 0, **kwargs},
        isolation="process",
        python=python,
        step_timeout_s=600.0,
    )
    vec_env = make_vec_env(options, 1)
    actions = np.random.default_rng(0).uniform(-0.3, 0.3, (steps, 1, 7))
    rates = []
    try:
        for chunk in CHUNKS:
            vec_env.reset([0], [0])
            before = cpu_seconds()
            for number, action in enumerate(actions):
                vec_env.step([0], action, observe=number % chunk == chunk - 1)
            rates.append(steps / (cpu_seconds() - before))
    finally:
        vec_env.close()
    return rates


def table(python: str, steps: int) -> str:
    lines = [
        f"| pictures | {' | '.join(f'every {chunk} steps' if chunk > 1 else 'every step' for chunk in CHUNKS)} |",
        f"|---|{'---|' * len(CHUNKS)}",
    ]
    for name, kwargs in PICTURES:
        rates = steps_per_cpu_second(kwargs, python, steps)
        lines.append(f"| {name} | {' | '.join(f'{rate:.1f}' for rate in rates)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--python", default=OWN_ENVIRONMENT["libero"].python)
    add_output(parser, "libero_steps")
    options = parser.parse_args(arguments)
    text = table(options.python, options.steps)
    print(text)
    if options.write:
        save(options.write, figures_of_table(text), intervals="")


if __name__ == "__main__":
    main()
