"""Checkpoints as others leave them: whole ones load exactly, and no tensor is drawn at random in silence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from language_models import tiny
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlinf.base.errors import UserError
from rlinf.data.messages import SamplingParams
from rlinf.learners.shards import SafetensorsFolder
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.models.checkpoint_files import require_trainable, twice_there, without_weights
from rlinf.models.finite_weights import require_finite
from rlinf.models.loading import PolicyError, load_causal_lm, load_tokenizer
from rlinf.models.tokenizer import train_tokenizer
from rlinf.rollouts.text.tokens.prompts import ChatTemplateError, PromptRenderer

OWN_CODE = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}}
Tensors = dict[str, Tensor]
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
TOKENS = torch.arange(2, 12)[None]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tied model of two layers."""
    folder = tmp_path_factory.mktemp("saved")
    tiny("qwen2").save_pretrained(folder)
    return folder


def changed(saved: Path, folder: Path, change: Callable[[Tensors], Tensors]) -> str:
    """Copy a checkpoint with other tensors in it."""
    shutil.copytree(saved, folder)
    tensors = {name: value.contiguous() for name, value in change(load_file(saved / "model.safetensors")).items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda tensors: {f"module.{name}": value for name, value in tensors.items()},
            r"lacks .* and \d+ more of its model's tensors; it has module\.model\.embed_tokens\.weight instead",
        ),
        (lambda tensors: {"a": torch.zeros(1)}, r"it has a instead, which the model does not have"),
        (
            lambda tensors: {name: value for name, value in tensors.items() if "layers.1.mlp.up_proj" not in name},
            r"lacks model\.layers\.1\.mlp\.up_proj\.weight of its model's tensors\. Save it again",
        ),
    ],
)
def test_a_checkpoint_without_some_of_its_tensors_is_refused(
    saved: Path, tmp_path: Path, change: Callable[[Tensors], Tensors], words: str
) -> None:
    with pytest.raises(PolicyError, match=words):
        load_causal_lm(changed(saved, tmp_path / "model", change))


def test_a_head_that_is_not_tied_and_not_there_is_refused(saved: Path, tmp_path: Path) -> None:
    path = Path(changed(saved, tmp_path / "model", dict))
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    with pytest.raises(PolicyError, match=r"lacks lm_head\.weight of its model's tensors.*tie_word_embeddings"):
        load_causal_lm(str(path))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_no_numbers_are_named(saved: Path, tmp_path: Path, value: float) -> None:
    def damage(tensors: Tensors) -> Tensors:
        tensors["model.layers.1.mlp.up_proj.weight"][0, :2] = value
        tensors["model.norm.weight"][0] = value
        return tensors

    path = changed(saved, tmp_path / "damaged", damage)
    words = r"damaged' has 2 of [\d,]+ values in model\.layers\.1\.mlp\.up_proj\.weight .* and in 1 more tensors"
    with pytest.raises(PolicyError, match=words):
        load_causal_lm(path)
    with pytest.raises(PolicyError, match=r"model\.safetensors has 2 of"):
        SafetensorsFolder(Path(path))("model.layers.1.mlp.up_proj.weight")


def test_large_values_whose_sum_overflows_are_finite() -> None:
    require_finite([("large", torch.full((4,), 3e38)), ("half", torch.full((4,), 60000.0, dtype=torch.float16))], "it")


def test_further_tensors_do_no_harm(saved: Path, tmp_path: Path) -> None:
    path = changed(saved, tmp_path / "model", lambda tensors: {**tensors, "v_head.weight": torch.zeros(1, 32)})
    assert torch.equal(load_causal_lm(path)(TOKENS).logits, load_causal_lm(str(saved))(TOKENS).logits)


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_a_head_of_its_own_is_exported_as_that(saved: Path, tmp_path: Path, shift: float) -> None:
    """Readers that go by config.json (vLLM, transformers 4) would otherwise take the embeddings for the head."""
    folder = changed(saved, tmp_path / "a", lambda t: {**t, "lm_head.weight": t["model.embed_tokens.weight"] + shift})
    model = load_causal_lm(folder)
    model.save_pretrained(tmp_path / "export")
    written = json.loads((tmp_path / "export" / "config.json").read_text())
    assert written["tie_word_embeddings"] == (shift == 0.0)
    assert torch.equal(load_causal_lm(str(tmp_path / "export"))(TOKENS).logits, model(TOKENS).logits)


def test_pointers_of_git_lfs_are_named(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copytree(saved, path)
    (path / "model.safetensors").write_bytes(POINTER)
    sentence = f"{path} holds pointers of Git LFS instead of model.safetensors: run `git lfs pull` there"
    assert without_weights(str(path)) == (sentence, "")
    with pytest.raises(PolicyError, match=r"no causal language model .*git lfs pull"):
        load_causal_lm(str(path))
    (path / "tokenizer.json").write_bytes(POINTER)
    with pytest.raises(PolicyError, match=r"no tokenizer .* instead of model\.safetensors and 1 more files"):
        load_tokenizer(str(path))


def test_a_folder_below_the_home_folder(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(saved, tmp_path / "model")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert torch.equal(load_causal_lm("~/model")(TOKENS).logits, load_causal_lm(str(saved))(TOKENS).logits)


def test_a_temperature_without_sampling_does_not_stop_the_export(saved: Path, tmp_path: Path) -> None:
    """transformers reads such a generation_config.json, and refuses to write it: after a whole run."""
    shutil.copytree(saved, tmp_path / "model")
    own = {"temperature": 0.9, "top_p": 0.6, "eos_token_id": [1, 7], "bos_token_id": 3}
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(own))
    policy = CausalLMPolicy(load_causal_lm(str(tmp_path / "model")), sampling=SamplingParams(max_new_tokens=4))
    policy.save_pretrained(str(tmp_path / "export"))
    written = json.loads((tmp_path / "export" / "generation_config.json").read_text())
    assert (written["eos_token_id"], written["bos_token_id"]) == ([1, 7], 3)
    assert "temperature" not in written


def test_a_tensor_of_another_shape_is_named(saved: Path, tmp_path: Path) -> None:
    def longer(tensors: Tensors) -> Tensors:
        return {name: torch.cat([one, one[:3]]) if "embed" in name else one for name, one in tensors.items()}

    path = changed(saved, tmp_path / "model", longer)
    with pytest.raises(PolicyError, match=r"has model\.embed_tokens\.weight of shape \[64, 32\], and .* \[61, 32\]"):
        load_causal_lm(path)


def test_adapters_alone_and_with_their_model_are_refused(saved: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    adapted = peft.get_peft_model(tiny("qwen2"), peft.LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM"))
    adapted.save_pretrained(tmp_path / "adapter")
    assert "holds an adapter of peft and no whole model: merge it first" in str(without_weights(f"{tmp_path}/adapter"))
    with pytest.raises(PolicyError, match="merge it first"):
        load_causal_lm(str(tmp_path / "adapter"))
    shutil.copytree(saved, tmp_path / "both")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copy(tmp_path / "adapter" / name, tmp_path / "both" / name)
    assert without_weights(str(tmp_path / "both")) is None
    with pytest.raises(PolicyError, match="holds a model and an adapter of peft"):
        load_causal_lm(str(tmp_path / "both"))


def test_the_folder_that_was_meant_is_named(saved: Path, tmp_path: Path) -> None:
    assert without_weights(f"{saved}/model.safetensors") == (
        f"{saved}/model.safetensors is a file, and a model is a folder: name {saved}",
        f"Write {saved}.",
    )
    for inside in ("trained/checkpoint-500", "cached/snapshots/abc"):
        shutil.copytree(saved, tmp_path / inside)
        outer = tmp_path / inside.partition("/")[0]
        problem = without_weights(str(outer))
        assert problem is not None
        assert problem.what.endswith(f"is missing; there is a model in {tmp_path / inside}")
        assert problem.fix == f"Write {tmp_path / inside}."


def test_weights_that_are_cut_short_or_of_another_layout_are_named(saved: Path, tmp_path: Path) -> None:
    assert without_weights(str(saved)) is None
    shutil.copytree(saved, tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert f"{file} is cut short: it has {len(whole) // 2:,} bytes" in str(without_weights(str(tmp_path / "model")))
    file.unlink()
    (tmp_path / "model" / "model_world_size_2_rank_0.pt").touch()
    assert "verl.model_merger" in str(without_weights(str(tmp_path / "model")))


def test_a_tokenizer_that_is_not_there_and_code_of_a_model_are_named(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "model")
    (tmp_path / "model" / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with pytest.raises(PolicyError, match=r"it has none of tokenizer\.json, .* in policy\.tokenizer\.path"):
        load_tokenizer(str(tmp_path / "model"))
    own = {"model_type": "own", "auto_map": {"AutoModelForCausalLM": "own.Own"}}
    (tmp_path / "model" / "config.json").write_text(json.dumps(own))
    with pytest.raises(PolicyError, match=r"its model is code of its own \(auto_map\)"):
        load_causal_lm(str(tmp_path / "model"))


def test_quantised_weights_are_not_trained(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"quantization_config": {"quant_method": "gptq"}}')
    with pytest.raises(
        UserError, match=r"is quantised \(gptq\), and such weights are not trained: name the checkpoint"
    ):
        require_trainable(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    require_trainable(str(tmp_path))
    require_trainable(None)


def test_a_tokenizer_that_names_the_class_of_another_family_keeps_its_own_rules(tmp_path: Path) -> None:
    """DeepSeek's models of Llama's architecture do so: Llama's rules lose every blank of a text in bytes."""
    train_tokenizer(["a text"], vocab_size=300).save_pretrained(str(tmp_path))
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, "tokenizer_class": "LlamaTokenizerFast"}))
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    tokenizer = load_tokenizer(str(tmp_path))
    text = "Two  words,\n\nand 12 more"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.eos_token == "<eos>"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"chat_template.json": json.dumps({"chat_template": "legacy"})}, "legacy"),
        ({"chat_template.json": json.dumps({"chat_template": "legacy"}), "chat_template.jinja": "own"}, "own"),
        ({"additional_chat_templates/tool_use.jinja": "one"}, "one"),
        ({"processor_config.json": json.dumps({"chat_template": "of the processor"})}, "of the processor"),
        ({"chat_template.json": "{}"}, None),
    ],
)
def test_the_chat_template_is_read_where_processors_and_other_versions_keep_it(
    files: dict[str, str], words: str | None, tmp_path: Path
) -> None:
    train_tokenizer(["one two"], vocab_size=300).save_pretrained(tmp_path)
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert load_tokenizer(str(tmp_path)).chat_template == words


def test_of_several_chat_templates_without_a_default_one_is_to_be_named(tmp_path: Path) -> None:
    train_tokenizer(["one two"], vocab_size=300).save_pretrained(tmp_path)
    (tmp_path / "additional_chat_templates").mkdir()
    for name in ("rag", "tool_use"):
        (tmp_path / f"additional_chat_templates/{name}.jinja").write_text(f"{name} {{{{ messages[0].content }}}}")
    loaded = load_tokenizer(str(tmp_path))
    with pytest.raises(ChatTemplateError, match=r"Set data\.chat_template_kwargs: \{chat_template: (rag|tool_use)\}"):
        PromptRenderer(loaded).opening("1?")
    assert PromptRenderer(loaded, template_kwargs={"chat_template": "rag"}).opening("1?") == "rag 1?"


def test_whole_weights_next_to_shards_are_one_model(saved: Path, tmp_path: Path) -> None:
    folder, shards = tmp_path / "model", tmp_path / "shards"
    shutil.copytree(saved, folder)
    tiny("qwen2").save_pretrained(shards, max_shard_size="3KB")
    names = sorted(file.name for file in shards.glob("model-*.safetensors"))
    for name in (*names, "model.safetensors.index.json"):
        shutil.copy(shards / name, folder / name)
    assert without_weights(str(folder)) is None
    assert f"model.safetensors, which is loaded, and {names[0]} with others" in str(twice_there(str(folder)))
    tensors = {name: value + 1 for name, value in load_file(saved / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model = load_causal_lm(str(folder))
    for name in ("model.embed_tokens.weight", "model.norm.weight"):  # the learners that read single tensors read these
        assert torch.equal(SafetensorsFolder(folder)(name), model.get_parameter(name))
    save_file({**tensors, "more": torch.zeros(1)}, folder / "model.safetensors", metadata={"format": "pt"})
    wrong = without_weights(str(folder))
    assert wrong is not None
    assert wrong.what.endswith("which differ in 1 tensors (more)")
    assert twice_there(str(saved)) is None
    assert twice_there(str(shards)) is None
    (shards / "pytorch_model.bin").touch()
    words = "model.safetensors.index.json, which is loaded, and pytorch_model.bin, which is not read."
    assert str(twice_there(str(shards))).endswith(words)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("tokenizer_config.json", "{", r"tokenizer_config\.json is damaged"),
        ("tokenizer.json", "", r"tokenizer\.json is damaged"),
        ("tokenizer.json", "{}", "its tokenizer.json has no model"),
        ("tokenizer_config.json", json.dumps(OWN_CODE), "it is code of its own"),
    ],
)
def test_the_file_that_keeps_a_tokenizer_from_loading_is_named(
    name: str, content: str, words: str, tmp_path: Path
) -> None:
    train_tokenizer(["one two"], vocab_size=300).save_pretrained(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(PolicyError, match=words):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize(
    ("files", "what", "fix"),
    [
        (["config.json", "m-Q4.gguf", "mmproj-m.gguf"], "of GGUF the file is named itself", "m-Q4.gguf."),
        (["params.json", "consolidated.00.pth"], "another layout", "convert_llama_weights_to_hf.py of transformers."),
        (["config.json", "tf_model.h5"], "another layout", "from_tf=True"),
        (["config.json", "pytorch_model-00001-of-00002.bin"], "part of its weights: pytorch_model.bin.index.json", ""),
        (
            [
                "checkpoint-9/model.safetensors",
                "checkpoint-100/model.safetensors",
                "checkpoint-100/g/mp_rank_0_states.pt",
            ],
            "there is a model in",
            "checkpoint-100.",
        ),
    ],
)
def test_the_weights_that_a_folder_has_instead_are_named(files: list[str], what: str, fix: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        if name.startswith("checkpoint"):
            (tmp_path / name).with_name("config.json").touch()
    wrong = without_weights(str(tmp_path))
    assert wrong is not None
    assert what in wrong.what
    assert fix in wrong.fix


def test_weights_that_mlx_quantised_are_not_trained(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"quantization": {"group_size": 64, "bits": 4}}))
    with pytest.raises(UserError, match=r"is quantised .*often without .* or -4bit in its name"):
        require_trainable(str(tmp_path))
