"""The curve on the first page: ``python docs/assets/curve.py RUN rollout/return docs/assets/cartpole.svg``."""

from __future__ import annotations

import sys
from pathlib import Path

from rlinf.base.json_files import read_json_lines
from rlinf.report.card import curve

if __name__ == "__main__":
    run, metric, out = sys.argv[1:]
    lines = read_json_lines(Path(run) / "metrics.jsonl", number="step").rows
    drawn = [(line["step"], line[metric]) for line in lines if metric in line]
    steps, values = (list(column) for column in zip(*drawn, strict=True))
    Path(out).write_text(curve(steps, values, metric), encoding="utf-8")
