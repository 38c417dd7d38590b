"""`rlinf check --machines`: which machine holds which worker, before there is a cluster."""

from __future__ import annotations

from rlinf.cluster import PlacementError
from rlinf.cluster.imitated_machines import Machines, described, divided, placed
from rlinf.commands.finding import Caveat
from rlinf.config import Config
from rlinf.planning.parallel import Split
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
    size = Split.of(config).tensor
    for block in divided(seats["learner"], size):
        message = (
            f"learner.megatron.tensor_parallel {size}: learner ranks {block[0]}-{block[-1]} lie on several machines, "
            "and exchange their activations in every layer over the network"
        )
        print(Caveat(False, message, subject="placement"))
    return False
