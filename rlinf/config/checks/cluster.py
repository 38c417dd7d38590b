"""Checks that a single process does not need a cluster, and that a cluster's keys are read."""

from __future__ import annotations

from rlinf.base.machine import installed_version
from rlinf.config.context import Context
from rlinf.config.defaults import value_of
from rlinf.config.derived import is_text, learns_on_gpus, shares_gpus

_TRANSFERRING = "0.32."
"""Releases of vLLM whose weight transfer `rlinf/samplers/vllm_transfer.py` uses."""
_OF_CLUSTERS = ("address", "placement", "gpus_per_learner", "gpus_per_sampler", "gpus_per_node", "cpus_per_worker")


def check_cluster(context: Context) -> None:
    """``local`` is one process with one learner."""
    cluster, ranks = context.config.cluster, context.config.learner.num_workers
    context.run(_check_offload)
    context.run(_check_engines)
    context.run(_check_transfer)
    if (cluster.address or "").startswith("ray://"):
        message = f"cluster.address: {cluster.address} is Ray Client, which can't stream responses from workers."
        fix = "Start the run on a machine of the cluster with cluster.address: auto, or `ray job submit` it."
        context.error("cluster.address", message, fix)
    if cluster.backend != "local":
        context.run(_check_whole_gpus)
        return
    if ranks > 1:
        message = f"learner.num_workers {ranks}: cluster.backend: local runs one learner."
        context.error("learner.num_workers", message, "Use cluster.backend: ray, or one rank.")
    why, fix = "is not read by cluster.backend: local.", "Use cluster.backend: ray, or take it out."
    for name in _OF_CLUSTERS:
        context.unread(f"cluster.{name}", why, fix)
    context.unread("rollout.weight_transport", why, fix)


def _check_whole_gpus(context: Context) -> None:
    """Check that no worker has a GPU and a part of another one, which a cluster cannot give."""
    for key in ("cluster.gpus_per_learner", "cluster.gpus_per_sampler", "reward_model.gpus"):
        gpus = value_of(context.config, key)
        if isinstance(gpus, float) and gpus > 1 and not gpus.is_integer():
            message = f"{key} {gpus:g}: more than one GPU must be a whole number."
            context.error(key, message, f"Use {int(gpus)} or {int(gpus) + 1}.")


def _check_engines(context: Context) -> None:
    """Check that a tensor-parallel sampler has its GPUs on one machine; colocated ones share those of learner ranks."""
    config = context.config
    cluster, rollout, ranks = config.cluster, config.rollout, config.learner.num_workers
    wide, key = rollout.vllm.tensor_parallel_size, "rollout.vllm.tensor_parallel_size"
    if not is_text(config) or rollout.sampler not in ("vllm", "auto") or wide == 1 or not learns_on_gpus(config):
        return
    if wide > cluster.gpus_per_node:
        message = f"{key} {wide} is more than the {cluster.gpus_per_node} GPUs of a machine (cluster.gpus_per_node)."
        fix = f"Use at most {cluster.gpus_per_node}, and more samplers."
        context.error(key, message, fix)
    elif cluster.gpus_per_sampler is not None and cluster.gpus_per_sampler != wide:
        message = f"cluster.gpus_per_sampler {cluster.gpus_per_sampler:g} is not {key} {wide}."
        context.error("cluster.gpus_per_sampler", message, "Set it to null.")
    elif shares_gpus(config) and rollout.num_samplers * wide > ranks:
        message = f"{rollout.num_samplers} samplers of {wide} GPUs need {rollout.num_samplers * wide}, and they share"
        message += f" those of {ranks} learner ranks."
        fit = ranks // wide
        fix = "Set cluster.placement: separate" + (f", or rollout.num_samplers: {fit}." if fit else ".")
        context.error("rollout.num_samplers", message, fix)


def _check_transfer(context: Context) -> None:
    """Check that vLLM's own weight transfer can be used: a known vLLM, and GPUs that its engines can be reached on."""
    config, key = context.config, "rollout.weight_transport"
    if config.rollout.weight_transport != "vllm":
        return
    why = ""
    if not is_text(config) or config.rollout.sampler != "vllm":
        why = "fills samplers of vLLM: set rollout.sampler: vllm"
    elif not learns_on_gpus(config):
        why = "moves weights between GPUs, and the learner computes on the CPU"
    elif shares_gpus(config) and config.learner.num_workers > 1:
        # CUDA IPC: an engine reads memory of the rank on its own GPU, and ranks hold parts of the weights.
        why = "reaches samplers on the GPUs of several learner ranks only if each holds all weights: "
        why += "set cluster.placement: separate"
    elif config.learner.backend == "megatron":
        why = "has one sender, and ranks of learner.backend: megatron give a part of the weights each"
    elif (version := installed_version("vllm")) is not None and not version.startswith(_TRANSFERRING):
        why = f"is known of vLLM {_TRANSFERRING}x, whose interface changes between releases, and {version} is installed"
    if why:
        context.error(key, f"{key}: vllm {why}.", f"Set {key}: auto.")


def _check_offload(context: Context) -> None:
    """Report offload keys that nothing reads: samplers have their own device, or run while the learner trains."""
    ahead = context.config.rollout.staleness
    if not shares_gpus(context.config):
        why = "is not read with cluster.placement: separate."
    elif ahead > 0:
        why = f"is not read with rollout.staleness: {ahead}, where learner and samplers work at the same time."
    else:
        return
    for name in ("optimizer", "weights"):
        context.unread(f"learner.offload.{name}", why, "Take it out.")
