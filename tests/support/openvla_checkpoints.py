"""Small random checkpoints of OpenVLA and OpenVLA-OFT in the real layout, the same in every interpreter.

The original code (`openvla_original.py`) and this project's tests both read the folders that are written here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import published_checkpoints
from numpy.typing import NDArray

GOLDEN = published_checkpoints.GOLDEN
CAMERA = (256, 256, 3)
TASKS = ("Pick up the RED cup", "open the drawer")
KEY = "libero_object_no_noops"
STATE, ACTION, HORIZON = 8, 7, 8
WORDS, PADDING = 32_000, 64
TRAINED_STEPS, STEPS = 50, 7
"""Of diffusion: 50 are not a multiple of those that are taken."""
LORA_RANK = 32
SHARD = "model-0000{}-of-00002.safetensors"


@dataclass(frozen=True)
class Case:
    """How a checkpoint is evaluated by its original code."""

    cameras: tuple[str, ...] = ("front",)
    crop: bool = True
    dataset: bool = True
    """Whether pictures go through JPEG and the Lanczos filter."""
    gripper: bool = True
    """Whether it is turned into LIBERO's."""
    parallel: bool = False
    regression: bool = False
    diffusion: bool = False
    film: bool = False
    gain: float = 3.0
    """Of attention: a small decoder then depends on all that it reads. With more, rounding shows."""

    @property
    def continuous(self) -> bool:
        """Whether there is a head of numbers, and a projector of states."""
        return self.regression or self.diffusion


CASES = {
    "openvla": Case(crop=False, dataset=False, gripper=False),
    "openvla_libero": Case(),
    "openvla_oft": Case(("front", "wrist"), parallel=True, regression=True),
    "openvla_oft_film": Case(("front", "wrist"), parallel=True, regression=True, film=True, gain=1.5),
    "openvla_oft_tokens": Case(parallel=True),
    "openvla_oft_diffusion": Case(("front", "wrist"), parallel=True, diffusion=True, gain=1.5),
}
TOWERS = {"featurizer": (32, 64, True), "fused_featurizer": (48, 40, False)}
"""Width, inner width, and whether there are scales and tokens before the patches (DINOv2) or a pooling head."""
BLOCKS, _PATCHES, _PATCH = 3, 256, 14
_WIDTH, _INNER, _LAYERS, _HEADS = 16, 24, 2, 2


def config() -> dict[str, Any]:
    """Return `config.json` as OpenVLA's converter writes it."""
    return {
        "arch_specifier": "no-align+fused-gelu-mlp",
        "architectures": ["OpenVLAForActionPrediction"],
        "auto_map": {
            "AutoConfig": "configuration_prismatic.OpenVLAConfig",
            "AutoModelForVision2Seq": "modeling_prismatic.OpenVLAForActionPrediction",
        },
        "hf_llm_id": "meta-llama/Llama-2-7b-hf",
        "image_resize_strategy": "resize-naive",
        "image_sizes": [224, 224],
        "llm_backbone_id": "llama2-7b-pure",
        "llm_max_length": 2048,
        "model_type": "openvla",
        "n_action_bins": 256,
        "norm_stats": statistics(),
        "output_projector_states": False,
        "pad_to_multiple_of": PADDING,
        "pad_token_id": WORDS,
        "text_config": {
            "hidden_size": _WIDTH,
            "intermediate_size": _INNER,
            "model_type": "llama",
            "num_attention_heads": _HEADS,
            "num_hidden_layers": _LAYERS,
            "num_key_value_heads": _HEADS,
            "pad_token_id": WORDS,
            "torch_dtype": "float32",
            "vocab_size": WORDS + PADDING,
        },
        "timm_model_ids": ["vit_large_patch14_reg4_dinov2.lvd142m", "vit_so400m_patch14_siglip_224"],
        "timm_override_act_layers": [None, None],
        "torch_dtype": "float32",
        "transformers_version": "4.40.1",
        "use_fused_vision_backbone": True,
        "vision_backbone_id": "dinosiglip-vit-so-224px",
    }


def preprocessor() -> dict[str, Any]:
    """Return `preprocessor_config.json`; mean and deviation have the rounding of the published one."""
    means = [[0.484375, 0.455078125, 0.40625], [0.5, 0.5, 0.5]]
    deviations = [[0.228515625, 0.2236328125, 0.224609375], [0.5, 0.5, 0.5]]
    return {
        "auto_map": {
            "AutoImageProcessor": "processing_prismatic.PrismaticImageProcessor",
            "AutoProcessor": "processing_prismatic.PrismaticProcessor",
        },
        "image_processor_type": "PrismaticImageProcessor",
        "image_resize_strategy": "resize-naive",
        "input_sizes": [[3, 224, 224], [3, 224, 224]],
        "interpolations": ["bicubic", "bicubic"],
        "means": means,
        "processor_class": "PrismaticProcessor",
        "stds": deviations,
        "tvf_crop_params": [{"output_size": [224, 224]}] * 2,
        "tvf_do_letterbox": False,
        "tvf_letterbox_fill": None,
        "tvf_normalize_params": [
            {"inplace": False, "mean": mean, "std": std} for mean, std in zip(means, deviations, strict=True)
        ],
        "tvf_resize_params": [{"antialias": True, "interpolation": 3, "max_size": None, "size": [224, 224]}] * 2,
        "use_fused_vision_backbone": True,
    }


def statistics() -> dict[str, Any]:
    """Statistics of two data sets: every kind, no two numbers alike."""
    found: dict[str, Any] = {}
    for name in ("bridge_orig", KEY):
        found[name] = {"num_transitions": 1000, "num_trajectories": 10}
        for leaf, count in (("action", ACTION), ("proprio", STATE)):
            draw = np.random.default_rng(zlib.crc32(f"{name} {leaf}".encode()))
            mean, std, reach = draw.normal(0, 0.4, count), draw.uniform(0.3, 0.9, count), draw.uniform(1.5, 2.5, count)
            parts = {"mean": mean, "std": std, "min": mean - 1.3 * reach * std, "max": mean + 1.2 * reach * std}
            parts |= {"q01": mean - 1.1 * reach * std, "q99": mean + reach * std}
            found[name][leaf] = {key: [round(float(number), 6) for number in part] for key, part in parts.items()}
        # The gripper's sign hides its scale: so one more number is left as it is.
        found[name]["action"]["mask"] = [number not in (2, ACTION - 1) for number in range(ACTION)]
    return found


def shapes() -> dict[str, list[int]]:
    """Shapes of the tensors in the safetensors files."""
    found: dict[str, list[int]] = {}

    def linear(name: str, inputs: int, outputs: int, *, bias: bool = True) -> None:
        found[f"{name}.weight"] = [outputs, inputs]
        if bias:
            found[f"{name}.bias"] = [outputs]

    def norm(name: str, width: int, *, bias: bool = True) -> None:
        found.update({f"{name}.weight": [width]} | ({f"{name}.bias": [width]} if bias else {}))

    for tower, (width, inner, dino) in TOWERS.items():
        prefix = f"vision_backbone.{tower}"
        found[f"{prefix}.pos_embed"] = [1, _PATCHES, width]
        if dino:
            found[f"{prefix}.cls_token"], found[f"{prefix}.reg_token"] = [1, 1, width], [1, 4, width]
        found[f"{prefix}.patch_embed.proj.weight"] = [width, 3, _PATCH, _PATCH]
        found[f"{prefix}.patch_embed.proj.bias"] = [width]
        for number in range(BLOCKS):
            block = f"{prefix}.blocks.{number}"
            norm(f"{block}.norm1", width)
            linear(f"{block}.attn.qkv", width, 3 * width)
            linear(f"{block}.attn.proj", width, width)
            norm(f"{block}.norm2", width)
            linear(f"{block}.mlp.fc1", width, inner)
            linear(f"{block}.mlp.fc2", inner, width)
            if dino:
                found[f"{block}.ls1.scale_factor"] = found[f"{block}.ls2.scale_factor"] = [width]
        norm(f"{prefix}.norm", width)
        if not dino:
            found[f"{prefix}.attn_pool.latent"] = [1, 1, width]
            linear(f"{prefix}.attn_pool.q", width, width)
            linear(f"{prefix}.attn_pool.kv", width, 2 * width)
            linear(f"{prefix}.attn_pool.proj", width, width)
            norm(f"{prefix}.attn_pool.norm", width)
            linear(f"{prefix}.attn_pool.mlp.fc1", width, inner)
            linear(f"{prefix}.attn_pool.mlp.fc2", inner, width)
    seen = sum(width for width, _, _ in TOWERS.values())
    for number, (inputs, outputs) in enumerate([(seen, 4 * seen), (4 * seen, _WIDTH), (_WIDTH, _WIDTH)], start=1):
        linear(f"projector.fc{number}", inputs, outputs)
    model = "language_model.model"
    found[f"{model}.embed_tokens.weight"] = found["language_model.lm_head.weight"] = [WORDS + PADDING, _WIDTH]
    for number in range(_LAYERS):
        layer = f"{model}.layers.{number}"
        norm(f"{layer}.input_layernorm", _WIDTH, bias=False)
        norm(f"{layer}.post_attention_layernorm", _WIDTH, bias=False)
        for part in ("q_proj", "k_proj", "v_proj", "o_proj"):
            linear(f"{layer}.self_attn.{part}", _WIDTH, _WIDTH, bias=False)
        linear(f"{layer}.mlp.gate_proj", _WIDTH, _INNER, bias=False)
        linear(f"{layer}.mlp.up_proj", _WIDTH, _INNER, bias=False)
        linear(f"{layer}.mlp.down_proj", _INNER, _WIDTH, bias=False)
    norm(f"{model}.norm", _WIDTH, bias=False)
    return found


def part_shapes(*, diffusion: bool) -> dict[str, dict[str, list[int]]]:
    """Shapes of the tensors of OpenVLA-OFT's own files, by their names' beginning."""
    head: dict[str, list[int]] = {}
    prefix = "module.noise_predictor.mlp_resnet" if diffusion else "module.model"
    given = ACTION * _WIDTH
    for name, shape in {
        "layer_norm1": [given],
        "fc1": [_WIDTH, given],
        **{f"mlp_resnet_blocks.{number}.ffn.0": [_WIDTH] for number in range(2)},
        **{f"mlp_resnet_blocks.{number}.ffn.1": [_WIDTH, _WIDTH] for number in range(2)},
        "layer_norm2": [_WIDTH],
        "fc2": [ACTION, _WIDTH],
    }.items():
        head[f"{prefix}.{name}.weight"], head[f"{prefix}.{name}.bias"] = shape, shape[:1]
    state = {"module.fc1.weight": [_WIDTH, STATE], "module.fc1.bias": [_WIDTH]}
    state |= {"module.fc2.weight": [_WIDTH, _WIDTH], "module.fc2.bias": [_WIDTH]}
    parts = {"action_head": head, "proprio_projector": state}
    return parts | ({"noisy_action_projector": {**state, "module.fc1.weight": [_WIDTH, 1]}} if diffusion else {})


def film_shapes() -> dict[str, list[int]]:
    """Shapes of both towers with FiLM layers and adapters, as OpenVLA-OFT+ writes them."""
    found: dict[str, list[int]] = {}
    for name, shape in shapes().items():
        if not name.startswith("vision_backbone."):
            continue
        known = re.sub(r"(blocks\.\d+)\.", r"\1.block.", name)
        if re.search(r"(qkv|proj|fc1|fc2|attn_pool\.q|kv)\.(weight|bias)$", name):
            prefix, kind = known.rsplit(".", 1)
            known = f"{prefix}.base_layer.{kind}"
            if kind == "weight":
                found[f"{prefix}.lora_A.default.weight"] = [LORA_RANK, *shape[1:]]
                found[f"{prefix}.lora_B.default.weight"] = [shape[0], LORA_RANK, *(1 for _ in shape[2:])]
        found[known] = shape
    for tower, (width, _, _) in TOWERS.items():
        for number in range(BLOCKS):
            for part in ("scale", "shift"):
                prefix = f"vision_backbone.{tower}.blocks.{number}.{part}"
                found[f"{prefix}.weight"], found[f"{prefix}.bias"] = [width, _WIDTH], [width]
    return found


def weight(name: str, shape: Sequence[int], gain: float) -> NDArray[np.float32]:
    """Random numbers of a tensor; ids of actions are the likely ones, as in a trained checkpoint."""
    known = name.replace("language_model", "llama")
    if name.endswith(("pos_embed", "_token", "latent")):
        known += ".position_embedding"
    made = published_checkpoints.weight(known, shape)
    if ".lora_" in name:
        made *= 0.2
    if "self_attn" in name:
        made *= gain
    # Steps of diffusion would multiply what rounds differently by thousands.
    if name.endswith("fc2.weight") and ("noise_predictor" in name or name.startswith("noisy_action_projector")):
        made *= 0.3 if "noise_predictor" in name else 0.1
    if name.endswith("lm_head.weight"):
        made *= 3.0
        made[: WORDS - 256] *= 0.01
        made[WORDS:] *= 0.01
    return made


def observation(row: int) -> dict[str, Any]:
    """What the robot sees: two cameras [256, 256, 3] uint8, a state, an instruction."""
    draw = np.random.default_rng(300 + row)
    pictures = {}
    for name in ("front", "wrist"):
        coarse = np.kron(draw.uniform(0, 256, (16, 16, 3)), np.ones((16, 16, 1)))
        pictures[name] = np.clip(coarse + draw.normal(0, 12, CAMERA), 0, 255).astype(np.uint8)
    return {**pictures, "state": draw.normal(0, 0.5, STATE).astype(np.float32), "task": TASKS[row]}


def noise(row: int) -> NDArray[np.float32]:
    """Where a diffusion begins: [chunk, numbers]."""
    return published_checkpoints.noise(HORIZON, ACTION, row)


def make_tokenizer(folder: Path) -> None:
    """Write a tokenizer of Llama's kind: pieces with byte fallback, `<s>` before a text, spaces as `▁`."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

    special = ("<unk>", "<s>", "</s>")
    pieces = [*special, *(f"<0x{code:02X}>" for code in range(256))]
    letters = sorted({*map(chr, range(33, 127))})
    merges = [("▁", "I"), ("▁I", "n"), ("▁", "t"), ("h", "e"), ("▁t", "he"), ("O", "u"), ("Ou", "t"), ("o", "b")]
    pieces += [*letters, *("".join(pair) for pair in merges)]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    vocabulary |= {f"<filler {number}>": number for number in range(len(pieces), WORDS)}
    del vocabulary["<filler 29871>"]
    vocabulary["▁"] = 29_871
    made = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    made.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in special])
    made.add_special_tokens([AddedToken("<PAD>", normalized=False, special=True)])
    whole = json.loads(made.to_str())
    whole["model"]["merges"] = [" ".join(pair) for pair in merges]  # as before tokenizers 0.20
    (folder / "tokenizer.json").write_text(json.dumps(whole, ensure_ascii=False))
    written = {
        "add_bos_token": True,
        "add_eos_token": False,
        "bos_token": "<s>",
        "clean_up_tokenization_spaces": False,
        "eos_token": "</s>",
        "legacy": False,
        "model_max_length": 2048,
        "pad_token": "<PAD>",
        "padding_side": "right",
        "processor_class": "PrismaticProcessor",
        "tokenizer_class": "LlamaTokenizer",
        "unk_token": "<unk>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(written, indent=2))
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<PAD>", "unk_token": "<unk>"}
    (folder / "special_tokens_map.json").write_text(json.dumps(names, indent=2))


def write_checkpoint(case: str, folder: Path) -> None:
    """Write the folder of a case: two shards with their index, settings, tokenizer, and files of OpenVLA-OFT."""
    import torch
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    known, gain = shapes(), CASES[case].gain
    shard_of = {name: SHARD.format(1 + name.startswith("language_model.")) for name in known}
    for file in sorted({*shard_of.values()}):
        tensors = {name: weight(name, known[name], gain) for name, shard in shard_of.items() if shard == file}
        save_file(tensors, folder / file, metadata={"format": "pt"})
    size = 4 * sum(int(np.prod(shape)) for shape in known.values())
    index = {"metadata": {"total_size": size}, "weight_map": shard_of}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config(), indent=2))
    (folder / "preprocessor_config.json").write_text(json.dumps(preprocessor(), indent=2))
    (folder / "dataset_statistics.json").write_text(json.dumps(statistics(), indent=2))
    make_tokenizer(folder)
    if CASES[case].continuous:
        parts = part_shapes(diffusion=CASES[case].diffusion) | (
            {"vision_backbone": film_shapes()} if CASES[case].film else {}
        )
        for part, tensors in parts.items():
            made = {name: torch.from_numpy(weight(f"{part}.{name}", shape, gain)) for name, shape in tensors.items()}
            torch.save(made, folder / f"{part}--150000_checkpoint.pt")


def fit_checkpoint(folder: Path, *, state: int, action: int) -> None:
    """Rewrite a checkpoint's statistics for another robot; only the sizes of OpenVLA-OFT's own files change."""
    import torch

    for name in ("dataset_statistics.json", "config.json"):
        file = folder / name
        written = json.loads(file.read_text())
        for part in (written.get("norm_stats") or written).values():
            for leaf, count in (("action", action), ("proprio", state)):
                part[leaf] = {key: list(np.resize(value, count).tolist()) for key, value in part[leaf].items()}
        file.write_text(json.dumps(written))
    sizes = {"fc2": (0, action), "layer_norm1": (0, action * _WIDTH), "fc1.weight": (1, action * _WIDTH)}
    for file in folder.glob("*_checkpoint.pt"):
        tensors = torch.load(file, weights_only=True)
        kinds = {"action_head": sizes, "proprio_projector": {"fc1.weight": (1, state)}}.get(
            file.name.split("--")[0], {}
        )
        for name, tensor in tensors.items():
            for part, (axis, size) in kinds.items():
                if f".{part}" in name:
                    tensors[name] = tensor.narrow(axis, 0, size).contiguous().clone()
        torch.save(tensors, file)


def acted_by_original(interpreter: str, sources: str, cases: Mapping[str, Path]) -> dict[str, Any]:
    """Actions of checkpoints by the original code in another interpreter, for each case."""
    script = Path(__file__).parent / "openvla_original.py"
    found = {}
    for case, folder in cases.items():
        repository = "openvla-oft" if CASES[case].parallel else "openvla"
        paths = [str(script.parent), f"{sources}/{repository}"]
        paths += [f"{sources}/transformers-openvla-oft/src"] if CASES[case].parallel else []
        environment = {**os.environ, "PYTHONPATH": ":".join(paths), "HF_HUB_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = subprocess.run(
            [interpreter, str(script), "act", case, str(folder)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=600,
            env=environment,
        )
        found[case] = json.loads(done.stdout.splitlines()[-1])
    return found
