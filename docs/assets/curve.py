"""The curve on the first page: ``python docs/assets/curve.py RUN rollout/return docs/assets/cartpole.svg``."""

from __future__ import annotations

import sys
from pathlib import Path

from rlinf.json_files import read_json_lines

WIDTH, HEIGHT, LEFT, BOTTOM = 640, 320, 56, 40


def svg(steps: list[float], values: list[float], label: str) -> str:
    """A polyline over the training iterations, with two axes and the largest value."""
    top, span = max(values) or 1.0, max(steps)
    wide, high = WIDTH - LEFT - 16, HEIGHT - BOTTOM - 24
    points = [
        (LEFT + wide * step / span, 24 + high * (1 - value / top)) for step, value in zip(steps, values, strict=True)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    texts = [(LEFT - 8, 30, "end", f"{top:.0f}"), (LEFT - 8, 24 + high, "end", "0")]
    texts += [(WIDTH - 16, HEIGHT - 14, "end", f"training iteration {span:.0f}"), (LEFT, 16, "start", label)]
    written = "".join(f'<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>' for x, y, anchor, text in texts)
    style = 'font-family="sans-serif" font-size="14"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {style}>'
        f'<g stroke="#888"><path d="M{LEFT} 24V{24 + high}H{WIDTH - 16}" fill="none"/></g>'
        f'<polyline points="{line}" fill="none" stroke="#3f51b5" stroke-width="2.5"/>{written}</svg>\n'
    )


if __name__ == "__main__":
    run, metric, out = sys.argv[1:]
    lines = read_json_lines(Path(run) / "metrics.jsonl", number="step").rows
    drawn = [(line["step"], line[metric]) for line in lines if metric in line]
    steps, values = (list(column) for column in zip(*drawn, strict=True))
    Path(out).write_text(svg(steps, values, metric), encoding="utf-8")
