"""`rlinf check --rehearse`: the learner of a run at full size on a machine that could not hold it."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import replace

from rlinf.commands.finding import Caveat
from rlinf.config import Config
from rlinf.config.derived import is_text
from rlinf.models.architecture_numbers import decoder_shape, read_architecture


def rehearse(config: Config) -> bool:
    """Print what a rank of the learner would hold, send and do wrong; return whether it would do something wrong."""
    refusal = _refusal(config)
    if refusal is not None:
        print(Caveat(True, refusal, subject="rehearsal"))
        return True
    from rlinf.models.loading import make_tokenizer
    from rlinf.planning.memory import estimate
    from rlinf.train.rehearsal.rank import rehearse_rank
    from rlinf.train.rehearsal.report import rehearsal_text

    decoder = decoder_shape(config.policy)
    assert decoder is not None
    shaped = replace(
        config, policy=replace(config.policy, path=None, architecture=dict(read_architecture(config.policy)))
    )
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, about a GPU that is not there
        # Shapes need a vocabulary's size, which the architecture has, and no words.
        make_tokenizer(None, vocab_size=300, split_digits=True, texts=lambda: ["1 + 1 = 2"]).save_pretrained(folder)
        report = rehearse_rank(shaped, folder, rank=0)
    on_gpu = report.device.type != "cpu"
    print(f"\n{rehearsal_text(report, estimate(config, decoder, int(on_gpu)), config.learner.num_workers)}")
    return bool(report.observed.mistakes)


def _refusal(config: Config) -> str | None:
    """Why this configuration can't be rehearsed."""
    if not is_text(config):
        return "only language models are rehearsed; a simulator's policy is small enough to be trained here"
    if decoder_shape(config.policy) is None:
        return "the architecture is not known here: write the contents of its config.json into policy.architecture"
    if config.learner.backend == "megatron" and config.learner.megatron.pipeline_parallel > 1:
        return (
            "the stages of learner.megatron.pipeline_parallel exchange their shapes, which one process alone "
            "can't answer: rehearse the same file with learner.megatron.pipeline_parallel=1"
        )
    return None
