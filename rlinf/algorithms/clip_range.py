"""The clip range of a ratio, for losses and for reports: no torch here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Clip:
    """The range ``[1 - low, 1 + high]`` of the ratio that is rewarded; ``dual`` c bounds the loss by c |A| where A <
    0 (Ye et al., arXiv:1912.09729), None not at all."""

    low: float
    high: float
    dual: float | None = None

    @classmethod
    def of(
        cls,
        ratio_clip_eps: float = 0.2,
        clip_ratio_low: float | None = None,
        clip_ratio_high: float | None = None,
        clip_ratio_c: float | None = None,
    ) -> Clip:
        """From the options of the configuration: each bound falls back to ``ratio_clip_eps``.

        >>> Clip.of(clip_ratio_high=0.28)
        Clip(low=0.2, high=0.28, dual=None)
        """
        low = ratio_clip_eps if clip_ratio_low is None else clip_ratio_low
        high = ratio_clip_eps if clip_ratio_high is None else clip_ratio_high
        return cls(low, high, clip_ratio_c)


PPO_CLIP = Clip.of()
"""The range of the paper: 0.2 on either side."""
