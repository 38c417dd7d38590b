"""Two tokenizers that must be one: a teacher speaks of the very tokens that the policy sampled."""

from __future__ import annotations

from typing import Any

from rlinf.models.vocabulary import VocabularyError

PROBE = "Tom's 3 pens cost 12.50 each:\n\n  12.50 * 3 = 37.50. #### 37.5 <answer>$x^2$</answer>"
"""A text that tokenizers of different families split differently."""
_KEY = "teacher.path"


def require_same_tokenizer(own: Any, other: Any, *, name: str) -> None:
    """Raise VocabularyError, with an example, if policy and teacher split text or number tokens differently."""
    mine, theirs = own.get_vocab(), other.get_vocab()
    if mine != theirs:
        changed = [token for token in {**mine, **theirs} if mine.get(token) != theirs.get(token)]
        token = min(changed, key=lambda one: mine.get(one, theirs.get(one, 0)))
        location = f"{token!r} is token {mine.get(token, 'none')} of the policy and {theirs.get(token, 'none')} there"
        raise _differs(_KEY, name, f"{len(changed)} tokens differ: {location}")
    require_same_ids(own, other.encode(PROBE, add_special_tokens=False), key=_KEY, name=name)


def require_same_ids(own: Any, results: list[int], *, key: str, name: str) -> None:
    """Raise VocabularyError if ``results`` are not the ids that the policy's tokenizer gives :data:`PROBE`."""
    if own.encode(PROBE, add_special_tokens=False) != results:
        raise _differs(key, name, f"it splits {PROBE[:30]!r}... otherwise")


def _differs(key: str, name: str, how: str) -> VocabularyError:
    return VocabularyError(
        f"{key}: {name} has another tokenizer than the policy ({how}): its tokens are not those that the policy "
        "samples. Take a teacher with the policy's tokenizer; for a policy from an architecture, set "
        "policy.tokenizer.path to the teacher's."
    )
