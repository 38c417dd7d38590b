"""A curve as a picture that needs no script: for model cards and the first page of the documentation."""

from __future__ import annotations

import html
from collections.abc import Sequence

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 640, 320, 64, 28, 40


def curve(steps: Sequence[float], values: Sequence[float], label: str) -> str:
    """A polyline over the training iterations, with two axes and the range of the values. At least one point."""
    low, high = min(0.0, *values), max(*values, 0.0)
    high = high if high > low else low + 1.0
    first, last = min(steps), max(max(steps), min(steps) + 1)
    wide, tall = WIDTH - LEFT - 16, HEIGHT - BOTTOM - TOP
    points = [
        (LEFT + wide * (step - first) / (last - first), TOP + tall * (high - value) / (high - low))
        for step, value in zip(steps, values, strict=True)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    texts = [(LEFT - 8, TOP + 6, "end", f"{high:.4g}"), (LEFT - 8, TOP + tall, "end", f"{low:.4g}")]
    texts += [(WIDTH - 16, HEIGHT - 14, "end", f"training iteration {last:.0f}"), (LEFT, 16, "start", label)]
    written = "".join(
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="#666">{html.escape(text)}</text>'
        for x, y, anchor, text in texts
    )
    style = 'font-family="sans-serif" font-size="14"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" {style}>'
        f'<g stroke="#888"><path d="M{LEFT} {TOP}V{TOP + tall}H{WIDTH - 16}" fill="none"/></g>'
        f'<polyline points="{line}" fill="none" stroke="#3f51b5" stroke-width="2.5"/>{written}</svg>\n'
    )
