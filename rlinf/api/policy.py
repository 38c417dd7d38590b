"""A trained policy outside of training: actions for observations, responses to prompts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from rlinf.base.errors import UserError
from rlinf.base.user_code import kind_of

_ACTOR_CRITIC, _VLA = "policy.json", "vla.json"


class Policy:
    """An exported policy: :meth:`act` in simulators, :meth:`generate` for language models. Made by :meth:`load`."""

    def __init__(self, folder: Path, model: Any, tokenizer: Any = None) -> None:
        self.folder, self.model, self.tokenizer = folder, model, tokenizer
        self._state: Any = None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load the policy of a run directory, or of an exported folder; for language models any Hugging Face folder.

        A policy of a class of your own is read by the ``from_pretrained`` of that class, whose module is imported.

        Raises UserError if there is none.
        """
        folder = Path(path)
        if (folder / "config.yaml").exists():
            folder = folder / "policy"
        from rlinf.models.own import has_own_class, load_own

        if not folder.is_dir():
            raise UserError(f"{folder} is no folder of a policy: a run writes one when it ends (rlinf export before)")
        if (folder / _ACTOR_CRITIC).exists():
            return cls(folder, _actor_critic(folder))
        if (folder / _VLA).exists():
            from rlinf.models.vla.build import load_vla

            return cls(folder, load_vla(str(folder)).eval())
        if has_own_class(folder):
            return cls(folder, load_own(folder).eval())
        from rlinf.models.loading import load_causal_lm, load_tokenizer

        if not (folder / "config.json").exists():
            raise UserError(f"{folder} holds no policy: neither config.json, {_ACTOR_CRITIC} nor {_VLA} is there")
        return cls(folder, load_causal_lm(str(folder)).eval(), load_tokenizer(str(folder)))

    @property
    def is_language_model(self) -> bool:
        return self.tokenizer is not None

    @functools.cached_property
    def spaces(self) -> tuple[Any, Any]:
        """Observation and action space that a policy of simulators was made for."""
        from rlinf.models.actor_critic.export import load_spaces

        return load_spaces(self.folder)

    def act(self, observation: Any, *, deterministic: bool = True, rng: np.random.Generator | None = None) -> Any:
        """Return the action for one observation of its training environment (wrappers and frame stacks included).

        ``deterministic`` takes the likeliest action, otherwise one is drawn with ``rng``. A recurrent policy
        remembers the observations since :meth:`reset`. With action chunks the result is [K, ...].
        """
        import torch

        from rlinf.data.spaces import empty_leaves, write_observation

        if self.is_language_model:
            raise UserError(f"{self.folder} is a language model: use generate")
        leaves = empty_leaves(self.spaces[0], (1,))
        write_observation(leaves, 0, observation)
        if self._state is None:
            self._state = torch.zeros(1, self.model.state_size)
        with torch.no_grad():
            tensors = {name: torch.from_numpy(leaf) for name, leaf in leaves.items()}
            noise = None if deterministic else self._noise(rng or np.random.default_rng())
            actions, self._state = self.model.step(tensors, self._state, noise)
        return self.model.env_actions(actions.cpu().numpy())[0]

    def continue_chunk(self, observation: Any, rest: np.ndarray, *, delay: int) -> Any:
        """Return the chunk [K, ...] that goes on where ``rest`` [L, ...], what is left of the one before, ends.

        ``delay``: how many actions of ``rest`` are carried out before this call is done. Flow policies alone
        (real-time chunking); raises UserError for others.
        """
        import torch

        from rlinf.data.spaces import empty_leaves, write_observation
        from rlinf.models.vla.continuing import continue_chunk

        leaves = empty_leaves(self.spaces[0], (1,))
        write_observation(leaves, 0, observation)
        tensors = {name: torch.from_numpy(leaf) for name, leaf in leaves.items()}
        try:
            return continue_chunk(self.model, tensors, np.asarray(rest), delay)
        except ValueError as error:
            raise UserError(str(error)) from error

    def reset(self) -> None:
        """Forgets what a recurrent policy remembers: call it when an episode begins."""
        self._state = None

    def generate(
        self,
        prompts: str | Sequence[str],
        *,
        max_new_tokens: int = 256,
        temperature: float = 0.0,
        system_prompt: str | None = None,
        seed: int = 0,
    ) -> list[str]:
        """Generate one response to each prompt; a temperature of 0 takes the likeliest token each time.

        Prompts get the tokenizer's chat template if it has one, as in training (``data.chat_template: auto``).
        """
        import torch

        from rlinf.models.response_ends import listed
        from rlinf.rollouts.text.tokens.prompts import PromptRenderer

        if not self.is_language_model:
            raise UserError(f"{self.folder} acts in simulators: use act")
        listed_prompts = [prompts] if isinstance(prompts, str) else list(prompts)
        wrong = next((prompt for prompt in listed_prompts if not isinstance(prompt, str)), None)
        if wrong is not None:
            raise UserError(f"generate: a prompt is text, not {kind_of(wrong)}; system_prompt is an argument")
        if max_new_tokens < 1 or not temperature >= 0:
            raise UserError(
                f"generate: max_new_tokens {max_new_tokens} must be at least 1, temperature {temperature} at least 0"
            )
        renderer = PromptRenderer(self.tokenizer, system_prompt=system_prompt)
        ends = renderer.turn_ends | listed([self.model.generation_config.eos_token_id])
        drawn = {"do_sample": True, "temperature": temperature} if temperature > 0 else {"do_sample": False}
        responses = []
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for prompt in listed_prompts:
                ids = torch.tensor([renderer.prompt(prompt)])
                made = self.model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=max_new_tokens,
                    eos_token_id=sorted(ends),
                    pad_token_id=self.tokenizer.pad_token_id or self.tokenizer.eos_token_id,
                    **drawn,
                )
                responses.append(self.tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True))
        return responses

    def _noise(self, rng: np.random.Generator) -> Any:
        import torch

        shape = (1, self.model.noise_size)
        drawn = rng.random(shape) if self.model.noise_kind == "uniform" else rng.standard_normal(shape)
        return torch.from_numpy(drawn.astype(np.float32))


def _actor_critic(folder: Path) -> Any:
    from rlinf.learners.off_policy.kinds import load_networks
    from rlinf.models.actor_critic import ActorCritic
    from rlinf.models.actor_critic.export import off_policy_loss

    loss_type = off_policy_loss(str(folder))
    if loss_type is None:
        return ActorCritic.from_pretrained(str(folder)).eval()
    return load_networks(str(folder), loss_type).eval()
