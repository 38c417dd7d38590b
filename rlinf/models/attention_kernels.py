"""Which of PyTorch's attention kernels a GPU takes."""

from __future__ import annotations

import torch


def use_kernels_of_any_length() -> None:
    """Keep this process from cuDNN's attention, which PyTorch prefers on Hopper GPUs.

    cuDNN makes a plan for each new shape, and decoding has a new length at each token: half a billion weights took
    92 ms a token on an H200 (`docs/gpu.md`). FlashAttention and the memory-efficient kernel take any shape at once,
    and vLLM chooses alike. Nothing changes on a CPU.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
