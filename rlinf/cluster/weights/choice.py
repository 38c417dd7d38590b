"""Which transport a run takes, by its configuration and by where its workers are."""

from __future__ import annotations

from typing import Literal

from rlinf.base.errors import UserError
from rlinf.cluster.api import WorkerGroup
from rlinf.cluster.weights.engine import EngineTransfer
from rlinf.cluster.weights.segment import available
from rlinf.cluster.weights.transport import Collective, ObjectStore, SharedMemory, WeightTransport
from rlinf.schema.rollout import TransferBackend, WeightTransportName


def choose(
    wanted: WeightTransportName | Literal["object_store"],
    learner: WorkerGroup,
    receivers: WorkerGroup,
    *,
    cuda: bool,
    keep: bool,
    workers: int = 1,
    transfer: TransferBackend | None = None,
) -> WeightTransport:
    """Choose the transport of `rollout.weight_transport`; ``auto``: shared memory on one node, else a broadcast.

    ``object_store`` is for groups within one process.

    ``cuda``: both groups compute on GPUs. ``keep``: the weights are read while the learner changes them.
    ``workers``: processes of a receiver's engine, and ``transfer``: the way of its tensors, both for ``vllm``.

    :raises UserError: shared memory is requested, but sources and receivers are on several nodes or it is absent. Or
        ``vllm`` is, and the learner's weights come from several ranks.
    """
    if wanted == "object_store":
        return ObjectStore(learner, receivers)
    device = "cuda" if cuda else "cpu"
    sources = set(learner.call_one(0, "weight_sources"))
    if transfer is not None:
        if sources != {0}:
            why = f"it has one sender, and {len(sources)} ranks of the learner give weights"
            raise UserError(f"rollout.weight_transport: vllm is not possible: {why}. Take auto.")
        return EngineTransfer(learner, receivers, backend=transfer, device=device, keep=keep, workers=workers)
    of_learner = learner.nodes()
    nodes = {of_learner[source] for source in sources} | {*receivers.nodes()}
    together = len(nodes) == 1 and available()
    if wanted == "shared_memory" and not together:
        why = (
            f"the learner and the {receivers.name} group are on {len(nodes)} nodes"
            if len(nodes) > 1
            else "only Linux has it"
        )
        raise UserError(f"rollout.weight_transport: shared_memory is not possible: {why}. Take auto.")
    if wanted != "collective" and together:
        return SharedMemory(learner, receivers)
    return Collective(learner, receivers, device=device, fall_back=wanted == "auto", keep=keep)
