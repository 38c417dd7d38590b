"""Which of its kernels vLLM multiplies with on a CPU."""

from __future__ import annotations


def use_onednn_products() -> None:
    """Before an engine loads its model: oneDNN for all weights, also those under 1 MiB.

    vLLM's other kernel, which it prefers for those, takes twice as long for a step of 64 rows on one thread (269 and
    126 microseconds for the 576 x 576 weights of SmolLM2's attention), and is no faster with 16 rows or with 256.
    """
    from vllm.model_executor.layers import utils

    utils._CPU_SGL_GEMM_MAX_WEIGHT_BYTES = 0
