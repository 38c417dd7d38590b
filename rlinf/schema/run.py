"""`run`: what this run is called, where it lives, and how long it lasts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlinf.schema.key import SIMULATOR, TEXT, key

Words = Literal["other_goal", "blank"]
Pictures = Literal["blank", "swapped"]
Questions = Literal["blank", "swapped"]


@dataclass(frozen=True)
class RunConfig:
    name: str = key("run", example="gsm8k")
    """Shown in the progress display and in reports; it can be the name of a folder."""
    dir: str = key("runs/{name}", example="runs/{name}_{seed:02d}")
    """The run directory; `{name}` and `{seed}` are filled in (`{seed:02d}` pads it), and no other placeholders exist.
    The same directory resumes what is there."""
    seed: int = 0
    """The one seed; every random stream is derived from it by component, step and sample."""
    max_steps: int = key(100, at_least=0, for_runs={"supervised training on sft.data without an environment": 0})
    """Training iterations (one rollout and its updates each); 0 leaves it at the warm start, as `rlinf sft` does."""
    resume: Literal["auto", "never", "must"] = "auto"
    """`auto` continues what is in the directory, `never` demands an empty one, `must` demands a checkpoint."""
    init_from: str | None = key(None, example="runs/gsm8k@200")
    """Another run directory, `RUN` or `RUN@STEP`, whose weights this run begins with, under settings of its own.

    Carried over: the policy with its running statistics, and the tokenizer. New: step count, schedule, random streams,
    states of environments. The network must be the same. Once this run
    has begun, the other directory is no longer needed."""
    init_optimizer: bool = False
    """With `init_from`: carry the optimiser's state over as well, with the learning rate of this configuration."""


@dataclass(frozen=True)
class CheckpointConfig:
    """When the run is saved, and which of the saves stay."""

    every: int = key(20, at_least=0)
    """Save every N iterations and at the end; 0 saves at the end only."""
    keep: int = key(2, at_least=1)
    """How many of the newest checkpoints stay."""
    best_metric: str | None = key(None, example="eval/accuracy")
    """An evaluation metric (`eval/accuracy`); the checkpoint where it was highest is kept too."""
    export: bool = True
    """Write the final policy as a folder that its own library loads (Hugging Face for text)."""


@dataclass(frozen=True)
class LoggingConfig:
    """Where metrics and samples go, and what the terminal shows."""

    progress: Literal["auto", "live", "plain", "none"] = "auto"
    """`live` draws a display that updates, `plain` prints a line a step, `auto` is `live` on a terminal."""
    tensorboard: bool | None = key(None, example=True)
    """Write TensorBoard events next to `metrics.jsonl`; null: if the package is installed (extra: tensorboard)."""
    wandb_project: str | None = key(None, example="my-project")
    """Send metrics to this Weights & Biases project (extra: wandb); null: `WANDB_PROJECT`; "": none."""
    mlflow_experiment: str | None = key(None, example="my-experiment")
    """Send metrics to this MLflow experiment (extra: mlflow); null: `MLFLOW_EXPERIMENT_NAME`; "": none."""
    trackio_project: str | None = key(None, example="my-project")
    """Send metrics to this Trackio project (extra: trackio)."""
    sinks: dict[str, object] = key({}, example={"my_trackers:Lines": {"path": "lines.txt"}})
    """Trackers of your own, `module:name` each with its keyword arguments: `{"my_trackers:Lines": {path: out.txt}}`."""
    samples_every: int = key(10, at_least=0)
    """Write graded samples of whole groups every N iterations; 0 writes none."""
    sample_groups: int = key(2, at_least=1)
    """Groups that are written each time."""
    plain_every: int = key(1, at_least=1)
    """With `plain` progress: print a line every N iterations."""
    trace_every: int = key(0, at_least=0, example=10)
    """Write the timeline of an iteration every N iterations, the first one too, as a trace for Perfetto; 0 writes none.

    `timeline/step_000010.json` has what ran when: conversations and their turns, tools, rewards, calls of each worker,
    passes of the learner, weight updates. The report shows the newest ones."""
    otlp_endpoint: str | None = key(None, example="http://localhost:4318/v1/traces")
    """Send these timelines to an OpenTelemetry collector too, by OTLP over HTTP (extra: otel): a trace an iteration."""


@dataclass(frozen=True)
class EvaluationConfig:
    """How often, on how much held-out data, and how the policy is measured."""

    every: int = key(0, at_least=0)
    """Evaluate every N iterations; after the last step it always happens, before the first by `at_start`."""
    at_start: bool = True
    """Evaluate before the first iteration too; trials of a sweep that begin with one policy need that once."""
    background: bool = False
    """With `rollout.staleness`: evaluate while the learner trains on the next batch, before samplers collect further
    ones. The numbers are the same; the line of a step in `metrics.jsonl` is written one step later. Evaluations before
    the first and after the last step are waited for."""
    size: int = key(256, at_least=0)
    """Tasks (text) or episodes (simulators) of the held-out set; 0 evaluates never."""
    samples: int = key(1, at_least=1, read_by=TEXT)
    """Responses per task; above 1 they are sampled at `temperature` and pass@k is reported for k up to this."""
    temperature: float = key(0.0, at_least=0, example=0.6)
    """Sampling temperature of evaluations; 0 is greedy (simulators: the most likely action)."""
    env_kwargs: dict[str, object] | None = key(None, example={"path": "test.jsonl"})
    """Environment kwargs that differ from `env.kwargs` (for example a held-out `split`)."""
    words: list[Words] = key([], example=["other_goal", "blank"], read_by=SIMULATOR)
    """Simulators: play the same episodes again with other words. `other_goal` names another goal that the same start
    has and measures success at that (`eval/follows`; the environment must support `reset(options={other_goal: true})`).
    `blank` leaves the words out (`eval/blank_words`): a policy that follows words must then do worse."""
    pictures: list[Pictures] = key([], example=["blank", "swapped"], read_by=TEXT)
    """Text: answer the same tasks again with other pictures in their first prompts. `blank` shows one colour
    (`eval/blank_pictures`), `swapped` those of another task (`eval/swapped_pictures`): a policy that uses pictures
    must then do worse."""
    questions: list[Questions] = key([], example=["blank", "swapped"], read_by=TEXT)
    """Text: grade the same tasks again with other questions in their first prompts. `blank` leaves the words out
    (`eval/blank_questions`), `swapped` shows those of another task (`eval/swapped_questions`): what is still right was
    not answered, but guessed or learned by heart."""
    wrong_tools: bool = key(False, read_by=TEXT)
    """Conversations: answer the same tasks again while each digit in an answer of the environment is one higher
    (`eval/wrong_tools`): a policy that reads its tools must then do worse."""
    reset_state_ids: list[int] = key([], example=[100, 101], read_by=SIMULATOR)
    """Simulators: evaluation episodes start from these numbered states, as `env.reset_state_ids`, from each once before
    any comes again; empty: by seed."""
    seed: int = 1_000_000
    """Start states of evaluation episodes; never depends on the number of envs."""
    num_envs: int = key(16, at_least=1, read_by=SIMULATOR)
    """Simulators: how many evaluation episodes run side by side (no influence on the result)."""
    video_every: int = key(0, at_least=0, read_by=SIMULATOR)
    """Simulators: film an evaluation every N iterations, the first and the last one too (extra: video); 0: none."""
    video_episodes: int = key(4, at_least=1, read_by=SIMULATOR)
    """Simulators: how many episodes of an evaluation are kept for people: side by side in its video, and as traces."""
