"""`rlinf check --machines`: which machine holds which worker, before there is a cluster."""

from __future__ import annotations

from rlinf.cluster import PlacementError
from rlinf.cluster.imitated_machines import Machines, described, divided, placed
from rlinf.commands.finding import Caveat
from rlinf.config import Config
from rlinf.train.assemble.setup import ResolvedRun


def show_placement(config: Config, text: str) -> bool:
    """Print the machines with their workers; return whether the run does not fit on them.

    ``text``: `MACHINESxGPUS`, with `xCORES` if it is not 12 for each GPU.

    :raises UserError: the machines are written otherwise, or Ray could not imitate them.
    """
    machines = Machines.parse(text)
    if config.cluster.backend == "local":
        message = "cluster.backend: local has no workers on machines; --machines is for cluster.backend: ray"
        print(Caveat(True, message, subject="cluster.backend"))
        return True
    groups = ResolvedRun.of(config, gpus=machines.gpus > 0).groups
    print(f"\nPlacement on {machines}, imitated by Ray", flush=True)
    try:
        seats = placed(groups, machines)
    except PlacementError as error:
        print(Caveat(True, str(error), subject="placement"))
        return True
    print("\n".join(f"  {line}" for line in described(seats, machines)))
    for key, size in _of_one_machine(config).items():
        for block in divided(seats["learner"], size):
            message = f"{key} {size}: learner ranks {block[0]}-{block[-1]} lie on several machines, and tell each other"
            print(Caveat(False, f"{message} their activations in every layer over the network", subject="placement"))
    return False


def _of_one_machine(config: Config) -> dict[str, int]:
    """Return the parallel dimensions whose ranks exchange data in every layer, with their sizes."""
    layout = config.learner.megatron
    if config.learner.backend != "megatron" or layout.tensor_parallel == 1:
        return {}
    return {"learner.megatron.tensor_parallel": layout.tensor_parallel}
