"""`policy`: the network that acts, from a folder of weights or from an architecture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlinf.schema.key import ACTOR_CRITIC, FLOW, LANGUAGE, TEXT, VLA, key, section


@dataclass(frozen=True)
class TokenizerConfig:
    path: str | None = key(None, example="Qwen/Qwen2.5-1.5B-Instruct")
    """A tokenizer folder or hub name; null takes the policy's own (`vla`: its language tower's), or trains one."""
    vocab_size: int = key(512, at_least=32)
    """Of a tokenizer trained on `sft.data` or else on the task's text (policies built from an architecture)."""
    split_digits: bool = True
    """Every digit is a token of its own."""


@dataclass(frozen=True)
class LoraConfig:
    rank: int = key(0, at_least=0, example=16)
    """0 trains all weights. Above 0 low-rank adapters are trained; the reference policy has the adapters of the first
    step, or of the last one that `algorithm.ref_update_every` names. vla, flow: on the layers of the towers, whose own
    weights stay; heads, queries and projections are trained as before."""
    alpha: int = key(32, at_least=1)
    """Adapters are scaled by alpha / rank."""
    dropout: float = key(0.0, at_least=0, at_most=0.9, example=0.05)
    """Dropout on the inputs of adapters."""
    target_modules: Literal["all-linear"] | list[str] = key(
        ["q_proj", "k_proj", "v_proj", "o_proj"], example=["q_proj", "v_proj"]
    )
    """Linear layers that get an adapter, by the ends of their names; `all-linear`: all but the output layer."""


@dataclass(frozen=True)
class TowerConfig:
    path: str | None = None
    """A Hugging Face folder or hub name; of a model with several towers the fitting one is taken."""
    architecture: dict[str, object] = key({})
    """Without `path`: a transformers configuration (`model_type`, ...) with random weights; empty takes a small one."""
    freeze: bool = False
    """true: these weights are not trained."""


@dataclass(frozen=True)
class VisionTowerConfig(TowerConfig):
    conditioning: Literal["none", "film"] = "film"
    """`film`: every layer of the tower is scaled and shifted by the words, so that it detects what they name. With
    `none` words and pictures meet in the language tower alone."""
    patch_init: Literal["random", "position_independent"] = "position_independent"
    """Without `path`, how the patch embedding starts: `position_independent` weighs all pixels of a patch alike in one
    half, so that colours can be read wherever a thing lies."""
    stem: Literal["patches", "convolutions"] = "patches"
    """Without `path`: `convolutions` adds 3x3 convolutions to the patch embedding (arXiv:2106.14881), so that shapes
    smaller than a patch are learned once and not for each position within it; the patch size is a power of two."""


@dataclass(frozen=True)
class VisionConfig:
    """How a vision-language model (`qwen2_vl`, `smolvlm`, ...) reads the pictures of its prompts."""

    freeze: bool = False
    """true: the weights that only pictures go through (vision tower and projector) are not trained."""
    max_pixels: int | None = key(None, at_least=1, example=250000)
    """A larger picture is made smaller first: fewer tokens, less detail. null takes the image processor's own limit.
    Of `idefics3` and `smolvlm` it bounds the square that a picture is cut into tiles from; `llava` has one size."""
    min_pixels: int | None = key(None, at_least=1, example=50000)
    """A smaller picture is made larger first (`qwen2_vl`, `qwen2_5_vl`, `qwen3_vl`); null as there."""


@dataclass(frozen=True)
class OpenVlaConfig:
    """An OpenVLA or OpenVLA-OFT checkpoint that acts as its original code does."""

    path: str | None = key(None, example="openvla/openvla-7b")
    """A folder or hub name (`config.json` of `model_type: openvla`, safetensors, `preprocessor_config.json`, tokenizer,
    `dataset_statistics.json`; of OpenVLA-OFT also `action_head--*.pt`, `proprio_projector--*.pt`,
    `noisy_action_projector--*.pt`). Towers, projector, decoder, action head, bins and statistics are the checkpoint's;
    `policy.vla.cameras` (the main one first), `center_crop`, `statistics_key` and `prompt` count."""
    decoding: Literal["auto", "sequential", "parallel", "parallel_causal"] = "auto"
    """`sequential`: one action, a token after the other (OpenVLA). `parallel`: a chunk at once, attention both ways
    (OpenVLA-OFT). `parallel_causal`: the same with attention back alone (its variant trained with flash attention, as
    RLinf's). `auto`: parallel if there is a file of OpenVLA-OFT; checkpoints with tokens have none."""
    horizon: int = key(8, at_least=1, example=25)
    """With parallel decoding: actions of a chunk as trained (LIBERO 8, Aloha 25, Bridge 5), of which the first
    `env.num_action_chunks` are carried out."""
    statistics: Literal["quantiles", "bounds"] = "quantiles"
    """Of actions and states: `quantiles` are those of 1% and 99%, `bounds` the smallest and largest (OFT on Aloha)."""
    pictures: Literal["dataset", "plain"] = "dataset"
    """`dataset`: a picture of another size than 224 x 224 goes through JPEG and a Lanczos filter, as in the data sets
    and the original's evaluations. `plain`: it is resized once, as by the processor alone."""
    gripper: Literal["as_trained", "opens_at_minus_one", "opens_at_one"] = "as_trained"
    """The last number of an action: in the data sets 0 is closed and 1 open. `opens_at_minus_one` (LIBERO) and
    `opens_at_one` make -1 or 1 of it."""
    noise_level: float | None = key(None, above=0, example=0.05)
    """With L1 regression: scale of the Laplace noise around numbers while collecting, in shares of half the range
    (null: 0.05); its log-probability is L1 regression. With a diffusion head: size of the noise of each step, in
    shares of DDPM's (null: 1)."""
    diffusion_steps: int = key(50, at_least=2, example=10)
    """With a diffusion head: steps from noise to actions, each of them a pass of the language model."""
    trained_diffusion_steps: int = key(50, at_least=2)
    """With a diffusion head: steps that it was trained with, of which `diffusion_steps` are taken."""


@dataclass(frozen=True)
class VlaConfig:
    """Images, state and an instruction in, chunks of discretised actions out."""

    language: TowerConfig = section(
        TowerConfig, examples={"path": "Qwen/Qwen2.5-0.5B", "architecture": {"model_type": "qwen2", "hidden_size": 128}}
    )
    """The decoder that decides (`qwen2`, `qwen3`, `llama`, ...)."""
    vision: VisionTowerConfig = section(
        VisionTowerConfig,
        examples={
            "path": "google/siglip-base-patch16-224",
            "architecture": {"model_type": "siglip_vision_model", "image_size": 64},
        },
    )
    """What sees (`siglip_vision_model`, `dinov2`, ...); not made where the environment has no images."""
    action_tokens: Literal["own", "vocabulary"] = "own"
    """`vocabulary`: a number of a continuous action is one of the last 256 ids of the language tower's vocabulary, as
    in OpenVLA and OpenVLA-OFT, and their rows of the tower's output layer are what decides at first. `own`: new
    tokens."""
    action_statistics: str | None = key(None, example="openvla-7b/dataset_statistics.json")
    """With `action_tokens: vocabulary`: a `dataset_statistics.json` of OpenVLA, a LeRobotDataset v3 folder or its
    statistics: actions between the 1% and the 99% quantile are cut into bins. null takes the environment's bounds."""
    statistics_key: str | None = key(None, example="libero_object")
    """The data set in that file, where it has several (OpenVLA's `unnorm_key`)."""
    raw_actions: list[int] = key([], example=[6])
    """Numbers of an action that are in [-1, 1] as they are, such as a gripper's, by index; if the file has a mask,
    that is read instead."""
    cameras: list[str] = key([], example=["agentview", "wrist"])
    """The images of the observation that are read, in the order that the policy was trained with; empty reads all, in
    the order of the environment."""
    center_crop: float = key(1.0, above=0, at_most=1, example=0.9)
    """Share of the area of each picture, in its middle, that the policy sees: 0.9 with OpenVLA. Together with
    `sft.image_shift` it is a random crop in imitation."""
    action_bins: int = key(32, at_least=2)
    """Values that each number of a continuous action can take, evenly from low to high."""
    max_instruction_tokens: int = key(32, at_least=2)
    """A longer instruction is an error; it also bounds the memory that is planned for."""
    order: Literal["words_first", "picture_first"] = "words_first"
    """Of the decoder's sequence. It is causal: with `picture_first` (as in OpenVLA) words attend to the patches, with
    `words_first` patches attend to the words."""
    task: str | None = key(None, example="push the red cube to the goal")
    """The instruction where the environment has no text in its observation."""
    prompt: str | None = key(None, example="In: What action should the robot take to {instruction}?")
    """What the instruction is put into, as a pretrained policy was trained with it:
    `"In: What action should the robot take to {instruction}?"`; null reads the instruction alone."""
    image_mean: list[float] | None = key(None, example=[0.5, 0.5, 0.5])
    """Per channel, of pixels in [0, 1]; null takes the checkpoint's (without one: 0.5)."""
    image_std: list[float] | None = key(None, example=[0.5, 0.5, 0.5])
    """Per channel, divides the pixels after `image_mean` is subtracted; null as there."""
    checkpoint: OpenVlaConfig = section(OpenVlaConfig)
    """A whole OpenVLA or OpenVLA-OFT checkpoint instead of `language` and `vision`."""


@dataclass(frozen=True)
class PublishedConfig:
    """A SmolVLA, pi0, pi0.5 or GR00T N1.7 checkpoint that acts as its original code does."""

    path: str | None = key(None, example="lerobot/smolvla_base")
    """A folder or hub name in LeRobot's layout (`config.json`, `model.safetensors`, `policy_preprocessor.json`, ...),
    or of GR00T also in NVIDIA's (`config.json`, `processor_config.json`, `statistics.json`, ...). Pictures, statistics,
    prompt, horizon and integration steps are the checkpoint's."""
    backbone: str | None = key(None, example="HuggingFaceTB/SmolVLM2-500M-Video-Instruct")
    """SmolVLA, GR00T: folder or hub name of its SmolVLM or Qwen3-VL, of which configuration and tokenizer are read;
    null takes the one that the checkpoint names."""
    embodiment: str | None = key(None, example="libero_sim")
    """GR00T in NVIDIA's layout: the robot, whose statistics and projections are read; null takes LIBERO's, or the only
    one."""
    statistics: str | None = key(None, example="datasets/kitchen")
    """The same: a LeRobotDataset v3 folder of a robot that the checkpoint was not trained with, whose statistics and
    cameras are taken. Its embodiment is `new_embodiment` if none is named."""
    cameras: dict[str, str] = key({}, example={"observation.images.camera1": "agentview"})
    """The checkpoint's pictures and the images of the observation that they are, or `none`. Left out are those whose
    names agree."""
    flip: list[int] = key([], example=[6])
    """Numbers of an action, by index, whose sign is the other one in this environment, such as a gripper's."""
    train: Literal["all", "expert"] = "all"
    """`expert`: only the action expert and its projections are trained, as in SmolVLA's and GR00T's own fine-tuning."""
    steps: int | None = key(None, at_least=2, example=4)
    """Integration steps; null takes the checkpoint's (10 as published, GR00T: 4)."""


@dataclass(frozen=True)
class FlowConfig:
    """Actions that noise flows to along a learned velocity, behind the towers of `policy.vla`."""

    steps: int = key(4, at_least=2)
    """Integration steps from noise to actions; each is one forward pass of the velocity network, not of the towers."""
    noise_level: float = key(0.5, above=0)
    """Of the noise that each step adds while collecting (Flow-SDE): exploration, and the scale of log-probabilities."""
    hidden_size: int = key(256, at_least=1)
    """Width of the velocity network's two hidden layers."""
    draws: int = key(1, at_least=1)
    """Imitation matches the flow of each action at N random points in a step: more cost little compared with the
    towers, and the gradient is less noisy."""
    pi0: TowerConfig = section(
        TowerConfig, examples={"path": "lerobot/pi0_base", "architecture": {"model_type": "pi0", "chunk_size": 10}}
    )
    """PI0 instead of the towers and of that velocity: its `path` (transformers', openpi's or LeRobot's names), or
    an `architecture` (`model_type: pi0`, ...) with random weights. `env.num_action_chunks` of its horizon are carried
    out."""
    checkpoint: PublishedConfig = section(PublishedConfig)
    """A published checkpoint instead of all that."""
    advantage: bool = False
    """Condition the flow on whether a decision was better than expected (RECAP of pi*0.6, arXiv:2511.14759): imitation
    of `sft.dataset` reads the labels of `rlinf label`, a demonstrator's decisions all are, and the policy acts as if
    the answer were yes."""
    advantage_dropout: float = key(0.3, at_least=0, at_most=1, example=0.1)
    """Share of imitated decisions without that indicator."""
    guidance: float = key(1.0, at_least=0, example=2.0)
    """Acting velocity: v(without) + N (v(positive) - v(without)); above 1 it goes further than positive decisions
    (classifier-free guidance), for twice the time. 1 is the positive one alone."""


@dataclass(frozen=True)
class PolicyConfig:
    name: str = key("causal_lm", example="actor_critic")
    """`causal_lm` for text, `actor_critic` for simulators, `vla` (vision, language, action; discretised
    actions) and `flow` (the same with flow matching) likewise, or `module:Class` of your own for simulators."""
    options: dict[str, object] = key({}, example={"std": 0.3})
    """Options of your own policy class: its keyword-only parameters, by name."""
    path: str | None = key(None, example="Qwen/Qwen2.5-1.5B-Instruct")
    """A Hugging Face folder, a hub name or a `.gguf` file (text), or an exported policy (simulators).

    A `.gguf` file is de-quantised on the first use (extra `gguf`) and the result kept in `~/.cache/rlinf/models`."""
    architecture: dict[str, object] = key(
        {}, example={"model_type": "qwen2", "hidden_size": 256, "num_hidden_layers": 4}, read_by=TEXT
    )
    """Text without `path`: a transformers configuration (`model_type: qwen2`, `hidden_size`, ...), random weights.

    Of a vision-language model: `model_type` with `text_config` and `vision_config` (docs/vision.md)."""
    tokenizer: TokenizerConfig = section(TokenizerConfig, read_by=LANGUAGE)
    dtype: Literal["float32", "bfloat16", "auto"] = key("auto", read_by=LANGUAGE)
    """Of activations and of the sampler's weights. The learner's own weights, statistics and optimiser are float32.

    `auto`: bfloat16 on a GPU, and on a CPU with AMX or AVX-512 BF16 for language models of 20 million parameters or
    more (not with megatron); otherwise float32."""
    logits_dtype: Literal["auto", "float32"] = key("auto", read_by=TEXT)
    """Of the product with the output embedding, in learner and sampler: `auto` is `dtype`.

    `float32` with activations in bfloat16 keeps both near each other (arXiv:2506.13585, arXiv:2510.13786)."""
    attention: Literal["sdpa", "eager", "flash_attention_2"] = key("sdpa", read_by=TEXT)
    """How attention is computed: `sdpa` is PyTorch's own, `flash_attention_2` needs its package and a GPU."""
    fused_logprobs: Literal["builtin", "liger"] = key("builtin", read_by=TEXT)
    """What computes log-probabilities without keeping the logits: rlinf itself, or Liger Kernel (extra `liger`, a GPU).

    Where a loss needs entropies, they are computed by rlinf in either case."""
    gradient_checkpointing: bool = key(False, read_by=LANGUAGE)
    """Recompute activations in the backward pass: less memory, about a third more time."""
    value_head: bool = key(False, read_by=LANGUAGE)
    """A critic on the language model's last hidden state (`adv_type: gae`)."""
    vision: VisionConfig = section(VisionConfig, read_by=TEXT)
    vla: VlaConfig = section(VlaConfig, read_by=VLA)
    flow: FlowConfig = section(FlowConfig, read_by=FLOW)
    lora: LoraConfig = section(LoraConfig, read_by=LANGUAGE)
    hidden_sizes: list[int] = key([64, 64], example=[256, 256], read_by=ACTOR_CRITIC)
    """Simulators: hidden layers of the actor (and of the critic)."""
    activation: Literal["tanh", "relu", "silu", "gelu", "elu", "leaky_relu", "selu", "mish"] = key(
        "tanh", read_by=ACTOR_CRITIC
    )
    """Simulators: the activation function between hidden layers."""
    encoder: str = key("auto", example="cnn", read_by=ACTOR_CRITIC)
    """Simulators: `auto` takes a CNN for image observations; `mlp`, `cnn`, or `module:Class` of your own."""
    encoder_options: dict[str, object] = key({}, example={"features": 64}, read_by=ACTOR_CRITIC)
    """Options of your own encoder class: its keyword-only parameters, by name."""
    distribution: str = key("auto", example="squashed_gaussian", read_by=ACTOR_CRITIC)
    """Simulators: `auto` is categorical for discrete and gaussian for continuous actions; `categorical`, `gaussian`,
    `squashed_gaussian`, `beta`, or `module:Class` of your own."""
    distribution_options: dict[str, object] = key({}, example={"scale": 0.5}, read_by=ACTOR_CRITIC)
    """Options of your own distribution class: its keyword-only parameters, by name."""
    init_log_std: float = key(
        0.0, example=-0.5, for_runs={"off-policy loss_type with policy.use_sde: true": -3.0}, read_by=ACTOR_CRITIC
    )
    """Logarithm of the initial standard deviation of the gaussian distributions."""
    use_sde: bool = key(False, read_by=ACTOR_CRITIC)
    """Gaussian actions, and those of sac, tqc and crossq: the noise is a function of the state (gSDE,
    arXiv:2005.05719)."""
    sde_sample_freq: int = key(-1, at_least=-1, example=16, read_by=ACTOR_CRITIC)
    """With `use_sde`: decisions after which that function is drawn again; -1: with each rollout alone."""
    shared_critic: bool = key(False, read_by=ACTOR_CRITIC)
    """Actor and critic share their hidden layers."""
    critic_layer_norm: bool = key(False, read_by=ACTOR_CRITIC)
    """sac, sac_flow, tqc, iql: the critics' layers are normalised, which keeps them from overestimating actions that
    `algorithm.prior_data` does not hold (RLPD)."""
    num_critics: int = key(2, at_least=1, example=5, read_by=ACTOR_CRITIC)
    """sac, sac_flow, td3, tqc, iql: critics, of which the smallest estimate counts (tqc: all quantiles form one
    mixture)."""
    num_quantiles: int = key(25, at_least=1, read_by=ACTOR_CRITIC)
    """tqc: quantiles of the return that each critic estimates."""
    denoising_steps: int = key(4, at_least=1, example=8, read_by=ACTOR_CRITIC)
    """sac_flow: steps from noise to an action, through all of which the critics' gradient goes."""
    dueling: bool = key(False, read_by=ACTOR_CRITIC)
    """dqn: the value of a state and the advantages of its actions have a layer each."""
    recurrent: Literal["none", "gru", "lstm"] = key("none", read_by=ACTOR_CRITIC)
    """Simulators: a memory across the decisions of an episode."""
    embedding_size: int = key(128, at_least=1, read_by=ACTOR_CRITIC)
    """Simulators: width of recurrent states, and of what images and tokens are encoded to."""
