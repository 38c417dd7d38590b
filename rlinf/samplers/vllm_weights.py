"""The part of the weight update that runs inside vLLM's worker (named by ``worker_extension_cls``)."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from rlinf.models.distribution import without
from rlinf.models.weight_digest import DigestRequest, TensorDigest
from rlinf.samplers.memory_files import from_shared_memory
from rlinf.samplers.server_digests import encoded_digests
from rlinf.samplers.vllm_digests import read_digests

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class WeightReceiver:
    """Methods that vLLM adds to its worker class; ``self`` is the worker."""

    device: torch.device
    model_runner: Any
    reload_weights: Callable[..., None]
    _encoded_weights: list[tuple[str, Tensor]] | None = None
    _all_logits: Callable[..., Tensor | None] | None = None

    def compute_for_cpu(self) -> None:
        """Draws tokens, normalises and gates in ways that are faster on a CPU."""
        from rlinf.samplers.vllm_drawing import draw_by_inversion
        from rlinf.samplers.vllm_products import use_native_kernels

        draw_by_inversion(self.model_runner.sampler)
        use_native_kernels(self.model_runner.get_model())

    def exclude(self, ids: Sequence[int]) -> None:
        """Take tokens out of the distribution, instead of those of an earlier call."""
        model = self.model_runner.get_model()
        compute = self._all_logits = self._all_logits or model.compute_logits

        def compute_logits(*inputs: Any) -> Tensor | None:
            logits = compute(*inputs)
            return None if logits is None else without(logits, ids)

        model.compute_logits = compute_logits

    def receive_weights(self, named: Sequence[tuple[str, Tensor]]) -> None:
        """Load all weights (Hugging Face names) in-place; sharding and fusing are vLLM's own loaders'."""
        self.reload_weights(weights_iterator=iter(named))
        if self.device.type == "cpu":
            # Packs the weights of an output head that is tied to the embedding again. On a CPU vLLM multiplies
            # with packed copies of the weights. Reloading renews them, except that of a tied head: its weight
            # is the embedding's, which is not a linear layer, so the copy would silently stay as it was.
            model = self.model_runner.get_model()
            for module in model.modules():
                weight = getattr(module, "weight", None)
                if (
                    hasattr(module, "cpu_linear")
                    and isinstance(weight, Tensor)
                    and weight.numel()
                    and not weight.is_meta
                ):
                    cast(Any, module).quant_method.process_weights_after_loading(module)

    def receive_shared_weights(self, path: str) -> None:
        """Receive the same from shared memory, for workers that are processes of their own."""
        self.receive_weights(from_shared_memory(path))

    def held_digests(self, requests: Mapping[str, DigestRequest]) -> dict[str, TensorDigest | None]:
        """Read back the requested weights (``requests``, Hugging Face names) from the layers that compute with them."""
        return read_digests(self.model_runner.get_model(), requests)

    def held_encoded(self, encoded: str) -> dict[str, Any]:
        """Return the same as JSON for :func:`rlinf.samplers.server_digests.held`: remote calls carry text."""
        requests = {
            name: DigestRequest(salt, False, tuple(shape)) for name, (salt, shape) in json.loads(encoded).items()
        }
        return encoded_digests(self.held_digests(requests))

    def receive_encoded(self, text: str) -> None:
        """Keep some weights (base64 of the safetensors format) until :meth:`finish_encoded`."""
        from safetensors.torch import load

        self._encoded_weights = [*(self._encoded_weights or ()), *load(base64.b64decode(text)).items()]

    def finish_encoded(self) -> None:
        """Load the weights that :meth:`receive_encoded` kept."""
        named, self._encoded_weights = self._encoded_weights or [], None
        self.receive_weights(named)
