"""Linear layers for decoding in 16 bits on a CPU: few rows against a weight that is large.

oneDNN multiplies ``W x^T`` without laying the weight out again, as it does for every call of ``x W^T``: up to twice as
fast at 8 to 64 rows, with no copy of the weights that a weight update would have to renew.
"""

from __future__ import annotations

import types

from torch import Tensor, nn
from torch.nn.functional import linear

_MOST_ROWS = 128
"""With more rows, as in a prefill, the products themselves cost the most and the usual order is as fast."""


def _weight_first(self: nn.Linear, inputs: Tensor) -> Tensor:
    """:meth:`torch.nn.Linear.forward` with the product taken the other way round."""
    rows = inputs.numel() // inputs.shape[-1]
    if rows > _MOST_ROWS or rows == 0:
        return linear(inputs, self.weight, self.bias)
    product = (self.weight @ inputs.reshape(rows, -1).t()).t().contiguous()
    if self.bias is not None:
        product = product + self.bias
    return product.reshape(*inputs.shape[:-1], self.out_features)


def use_weight_first_products(model: nn.Module) -> None:
    """Lets the linear layers of a 16-bit model on a CPU decode faster; of any other model nothing changes."""
    for module in model.modules():
        if type(module) is nn.Linear and module.weight.device.type == "cpu" and module.weight.itemsize == 2:
            module.forward = types.MethodType(_weight_first, module)  # type: ignore[method-assign]
