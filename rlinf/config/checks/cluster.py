"""What one process can not do, and what only a cluster reads."""

from __future__ import annotations

from rlinf.config.context import Context


def check_cluster(context: Context) -> None:
    """``local`` is one process with one learner."""
    cluster, ranks = context.config.cluster, context.config.learner.num_workers
    _check_offload(context)
    if (cluster.address or "").startswith("ray://"):
        message = f"cluster.address: {cluster.address} is Ray Client, which can't stream responses from workers."
        fix = "Start the run on a machine of the cluster with cluster.address: auto, or `ray job submit` it."
        context.error("cluster.address", message, fix)
    if cluster.backend != "local":
        return
    reads = ("cluster.backend",)
    if ranks > 1:
        message = f"learner.num_workers {ranks}: cluster.backend: local runs one learner."
        context.error("learner.num_workers", message, "Use cluster.backend: ray, or one rank.", reads=reads)
    why, fix = "is not read by cluster.backend: local.", "Use cluster.backend: ray, or take it out."
    for name in ("address", "placement", "gpus_per_learner", "gpus_per_sampler", "cpus_per_worker"):
        context.unread(f"cluster.{name}", why, fix, reads=reads)
    context.unread("rollout.weight_transport", why, fix, reads=reads)


def _check_offload(context: Context) -> None:
    """Nobody wants the learner's device while samplers have their own, or while it trains beside them."""
    reasons = []
    if context.config.cluster.placement == "separate":
        reasons.append(("with cluster.placement: separate", "cluster.placement"))
    if context.config.rollout.ahead > 0:
        reasons.append(("with rollout.ahead: 1, where learner and samplers work at the same time", "rollout.ahead"))
    for why, key in reasons[:1]:
        for name in ("optimizer", "weights"):
            offload = f"learner.offload.{name}"
            context.unread(offload, f"is not read {why}.", "Take it out.", reads=(key,))
