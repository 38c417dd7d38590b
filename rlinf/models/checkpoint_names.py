"""A model's tensors under the names of checkpoint files.

transformers keeps the experts of a mixture-of-experts layer in two stacked parameters. Checkpoint files,
other engines and the weight updates between learner and samplers name each expert's matrices separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import Tensor

_GATE_UP = ".experts.gate_up_proj"
_DOWN = ".experts.down_proj"


def by_expert(named: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Yield the same tensors, stacked experts one by one: views, so that what is copied into them reaches the model.

    ``gate_up_proj`` is [experts, 2 x width, hidden], gate above up; ``down_proj`` [experts, hidden, width].
    """
    for name, tensor in named:
        if name.endswith(_GATE_UP):
            stem = name.removesuffix("gate_up_proj")
            for number, expert in enumerate(tensor.detach()):
                gate, up = expert.chunk(2)
                yield f"{stem}{number}.gate_proj.weight", gate
                yield f"{stem}{number}.up_proj.weight", up
        elif name.endswith(_DOWN):
            stem = name.removesuffix("down_proj")
            for number, expert in enumerate(tensor.detach()):
                yield f"{stem}{number}.down_proj.weight", expert
        else:
            yield name, tensor
