"""The supervised warm start: steps on the environment's own demonstrations before reinforcement learning."""

from __future__ import annotations

import logging
import time

from rlinf.base.signals import defer_signals
from rlinf.data.messages import Metrics
from rlinf.train.run_state import RunState
from rlinf.train.tracking.metric_log import MetricLog
from rlinf.train.warm_start_cache import WarmStartCache

_log = logging.getLogger(__name__)


def warm_start(run: RunState, log: MetricLog) -> None:
    """Make the supervised steps that are left, then begin the stage of reinforcement learning.

    A line of metrics has the step of the weights that its loss was measured with: from ``-sft.steps`` to -1. So
    reinforcement learning begins at 0 with the weights after the last supervised step.
    """
    config, graph, state, display = run.config, run.graph, run.progress, run.display
    make_batch, steps = graph.warm_start_batch, config.sft.steps
    assert make_batch is not None
    metrics: Metrics = {}
    if graph.evaluate is not None and not (config.run.max_steps or state.step):
        # The warm start is all there is to the run; training that follows has its own first evaluation.
        graph.send_weights(run.order)
        metrics = state.untrained = graph.evaluate().metrics
    cache = WarmStartCache(config)
    result = cache.found()
    if result is not None:
        graph.learner.load(result)
        state.step = steps
        display.print_line(f"warm start taken from {result}")
        if metrics:
            log.write(-steps, metrics)
    display.phase("warm start", total=steps, done=state.step)
    run.mark()
    made = make_batch(state.step) if state.step < steps else None
    while made is not None:
        began = time.perf_counter()
        due = state.step and config.sft.evaluate_every and state.step % config.sft.evaluate_every == 0
        if due and graph.evaluate is not None:
            # Of the weights in between; a run that goes on from their checkpoint measures them again.
            graph.send_weights(run.order)
            metrics = graph.evaluate().metrics
            display.evaluated(run.where, metrics)
        batch, prepared = graph.warm_start_preparation(made)
        _log.debug("step %d of the warm start: update", state.step)
        with defer_signals():
            updated = graph.learner.begin_update(batch, step=state.step)
            # A batch is a function of the seed and the step: environments make the next one while the learner computes.
            made = make_batch(state.step + 1) if state.step + 1 < steps else None
            numbers = updated()
            measured = {f"sft/{name}": value for name, value in numbers.items()} | prepared
            log.write(run.order, {**metrics, **measured, "time/sft_step_s": time.perf_counter() - began})
            metrics = {}
            state.step += 1
            display.warm(state.step, numbers)
            run.mark()
            if run.due(config.checkpoint.every, of=max(1, steps)):
                run.save()
    with defer_signals():
        cache.keep(graph.learner.save)
        graph.learner.start("train")
        run.begin_training()
        run.mark()
        run.save()
