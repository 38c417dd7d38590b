"""What tests of several ranks have loaded from their beginning; none of it starts a thread."""

import gc
import importlib.util

from transformers.models.llama import modeling_llama
from transformers.models.qwen2 import modeling_qwen2
from transformers.models.qwen3 import modeling_qwen3
from transformers.models.qwen3_moe import modeling_qwen3_moe

import rlinf.learners.fsdp
import rlinf.learners.torch

if importlib.util.find_spec("megatron"):
    import rlinf.learners.megatron.learner

MODELS = (modeling_llama, modeling_qwen2, modeling_qwen3, modeling_qwen3_moe)
LEARNERS = (rlinf.learners.fsdp, rlinf.learners.torch)

# Half a million objects that stay: without this, each collection between two jobs takes a third of a second.
gc.freeze()
