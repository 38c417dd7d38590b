"""A vLLM engine of a tiny vision-language model against the learner: python picture_engine.py MODEL_TYPE FOLDER."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from vision_models import picture, tiny_vision, tokenizer_of, wide_heads

from rlinf.data.inputs import TextInputs, picture_column
from rlinf.data.messages import Completion, SampleRequest, SamplingParams, WeightUpdate
from rlinf.data.pictures import marked
from rlinf.interfaces import Sampler
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.models.vision.reading import excluded_ids, save_processor
from rlinf.models.weight_digest import SentWeights, differences, digest_requests
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.samplers.sight import Sight
from rlinf.schema.rollout import VllmConfig

WORDS = " Which?"
PARAMS = SamplingParams(max_new_tokens=5, ignore_eos=True)


class Pictured:
    """A model, its tokenizer and reader, and prompts: the same words under two pictures, none, and two pictures."""

    def __init__(self, model_type: str, folder: Path) -> None:
        self.tokenizer = tokenizer_of(model_type)
        with wide_heads():
            self.model, self.reader = tiny_vision(model_type, self.tokenizer)
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        save_processor(self.reader, folder)
        vocabulary = self.tokenizer.get_vocab()
        placeholder = vocabulary[self.reader.family.feature]
        self.sight = Sight(self.reader, excluded_ids(self.model.config, self.tokenizer), placeholder)
        renderer = PromptRenderer(self.tokenizer, reader=self.reader)
        one, other, wide = picture(0), picture(1), picture(2, 28, 56)
        self.shown = [(one,), (other,), (), (wide, one)]
        texts = [marked(one) + WORDS, marked(other) + WORDS, WORDS, "red" + marked(wide) + "blue" + marked(one) + WORDS]
        self.prompts = [renderer.prompt(text) for text in texts]

    def requests(self, params: SamplingParams, n: int = 2) -> list[SampleRequest]:
        """The same stream for the first two: only the pictures differ."""
        return [
            SampleRequest(position, tuple(ids), n, params, (max(position, 1),), pictures=shown)
            for position, (ids, shown) in enumerate(zip(self.prompts, self.shown, strict=True))
        ]

    def weights(self, version: int) -> WeightUpdate:
        return WeightUpdate(version, {name: one.detach().clone() for name, one in self.model.named_parameters()})

    def change(self) -> None:
        """Move every weight, those of the vision tower too."""
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))

    def gap(self, done: list[Completion], params: SamplingParams) -> float:
        """The largest difference between the sampler's and the learner's log-probabilities."""
        actions = torch.tensor([list(one.token_ids) for one in done])
        ids = [torch.tensor(self.prompts[one.request_id]) for one in done]
        inputs = TextInputs(
            torch.nn.utils.rnn.pad_sequence(ids, batch_first=True),
            torch.tensor([len(one) for one in ids]),
            torch.full((len(ids),), actions.shape[1]),
            pictures=picture_column([self.shown[one.request_id] for one in done]),
        )
        policy = CausalLMPolicy(
            self.model, sampling=params, reader=self.reader, excluded=self.sight.excluded, pack_rows=False
        )
        with torch.no_grad():
            found = policy.evaluate(inputs, actions, torch.ones(actions.shape, dtype=torch.bool)).logprobs
        return float((found - torch.tensor([list(one.logprobs) for one in done])).abs().max())

    def compare(self, sampler: Sampler) -> dict[str, Any]:
        """Gaps before and after new weights and with a penalty, what must not be drawn, and what the engine holds."""
        sampler.load(self.weights(0))
        first = sampler.sample(self.requests(PARAMS))
        found: dict[str, Any] = {"gap": self.gap(first, PARAMS)}
        found["pictures_differ"] = first[0].logprobs != first[2].logprobs
        self.change()
        sampler.load(self.weights(1))
        found["gap_of_new_weights"] = self.gap(sampler.sample(self.requests(PARAMS)), PARAMS)
        punished = replace(PARAMS, repetition_penalty=1.3)
        found["gap_with_penalty"] = self.gap(sampler.sample(self.requests(punished)), punished)
        hot = replace(PARAMS, max_new_tokens=60, temperature=2.0)
        drawn = torch.tensor([list(one.token_ids) for one in sampler.sample(self.requests(hot, 8)[:1])])
        found["excluded_drawn"] = int(torch.isin(drawn, torch.tensor(self.sight.excluded)).sum())
        sent = SentWeights()
        sent.add(self.weights(1))
        held: Any = sampler.held_digests(digest_requests(sent.digests()))
        found["unread"] = sorted(name for name, one in held.items() if one is None)
        found["unlike"] = differences(sent.digests(), {name: one for name, one in held.items() if one is not None})
        return found


def main() -> None:
    from rlinf.samplers.vllm import VllmSampler

    pictured = Pictured(sys.argv[1], Path(sys.argv[2]))
    config = VllmConfig(kv_cache_memory_mb=16, dtype="float32", max_num_seqs=16)
    sampler = VllmSampler(
        sys.argv[2], config, eos_token_ids=[1], seed=7, max_model_len=128, load_format="dummy", sight=pictured.sight
    )
    print(json.dumps(pictured.compare(sampler)))


if __name__ == "__main__":
    main()
