"""What the processes of a gang have loaded from their beginning; none of it starts a thread."""

import importlib.util

import learner_jobs
from transformers.models.llama import modeling_llama
from transformers.models.qwen2 import modeling_qwen2
from transformers.models.qwen3 import modeling_qwen3
from transformers.models.qwen3_moe import modeling_qwen3_moe

import rlinf.learners.fsdp
import rlinf.learners.torch

if importlib.util.find_spec("megatron"):
    import rlinf.learners.megatron.learner

LOADED = (
    learner_jobs,
    modeling_llama,
    modeling_qwen2,
    modeling_qwen3,
    modeling_qwen3_moe,
    rlinf.learners.fsdp,
    rlinf.learners.torch,
)
