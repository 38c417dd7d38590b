"""GGUF files: de-quantised, split and answered as the model that was written, and refused where they are not whole."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from rlinf.cli import WRONG_CONFIG, main
from rlinf.models import gguf
from rlinf.models.gguf import GGUFError, cached_folder, convert_gguf, model_folder
from rlinf.models.loading import load_causal_lm, load_tokenizer
from rlinf.rollouts.text.tokens.chat_template import text_start

pytest.importorskip("gguf")

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS = 64, 96, 2, 4, 2
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"


def write_gguf(file: Path, *, begins: bool = False) -> Any:
    """Writes a small llama, quantised to 8 bits; returns the transformers model of the weights that this leaves.

    ``begins``: every text begins with <|end|>.
    """
    from gguf import GGMLQuantizationType, GGUFWriter, TokenType, quants
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    tokens = ["<|end|>", *bytes_to_unicode().values(), "ĠĠ", "ab"]
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokens),
            hidden_size=HIDDEN,
            intermediate_size=INNER,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS,
            rms_norm_eps=1e-5,
            max_position_embeddings=64,
            tie_word_embeddings=True,
        )
    ).eval()
    writer = GGUFWriter(str(file), "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL, *[TokenType.NORMAL] * (len(tokens) - 1)])
    writer.add_token_merges(["Ġ Ġ", "a b"])
    writer.add_eos_token_id(0)
    if begins:
        writer.add_bos_token_id(0)
        writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.data = torch.from_numpy(rounded(parameter.detach().numpy()))
    for name, tensor in gguf_tensors(model).items():
        kind = GGMLQuantizationType.Q8_0 if tensor.ndim == 2 else GGMLQuantizationType.F32
        writer.add_tensor(name, quants.quantize(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def rounded(tensor: np.ndarray) -> np.ndarray:
    """The tensor as 8 bits keep it: rows in blocks of 32 numbers that share a scale (of 16 bits)."""
    blocks = tensor.reshape(-1, 32)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / 127
    whole = np.round(blocks / scale)
    return (whole * scale.astype(np.float16).astype(np.float32)).reshape(tensor.shape)


def gguf_tensors(model: Any) -> dict[str, np.ndarray]:
    """The weights under llama.cpp's names; queries and keys have their rotary halves interleaved there."""
    names = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    weights = {name: tensor.detach().numpy() for name, tensor in model.named_parameters()}
    written = {
        "token_embd.weight": weights["model.embed_tokens.weight"],
        "output_norm.weight": weights["model.norm.weight"],
    }
    for layer in range(LAYERS):
        for ours, theirs in names.items():
            tensor = weights[f"model.layers.{layer}.{ours}.weight"]
            if theirs in ("attn_q", "attn_k"):
                heads = HEADS if theirs == "attn_q" else KV_HEADS
                tensor = tensor.reshape(heads, 2, -1, HIDDEN).swapaxes(1, 2).reshape(tensor.shape)
            written[f"blk.{layer}.{theirs}.weight"] = tensor
    return written


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_gguf(tmp_path / "small.gguf")
    return tmp_path / "small.gguf"


def test_the_folder_answers_as_the_model_that_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exact = write_gguf(tmp_path / "small.gguf")
    assert main(["convert", str(tmp_path / "small.gguf"), str(tmp_path / "folder")]) == 0
    assert "15 of Q8_0" in capsys.readouterr().out
    tokens = torch.arange(1, 40)[None]
    with torch.inference_mode():
        found = load_causal_lm(str(tmp_path / "folder"))(input_ids=tokens).logits
        torch.testing.assert_close(found, exact(input_ids=tokens).logits, rtol=0, atol=1e-6)
    tokenizer = load_tokenizer(str(tmp_path / "folder"))
    assert tokenizer.chat_template == TEMPLATE
    assert tokenizer.eos_token == "<|end|>"


def test_digits_are_split_as_the_file_states(file: Path) -> None:
    tokenizer = load_tokenizer(str(file))
    pieces = tokenizer.convert_ids_to_tokens(tokenizer.encode("ab  12", add_special_tokens=False))
    assert pieces == ["ab", "ĠĠ", "1", "2"], "GPT-2's own rules leave a single blank before the number"


@pytest.mark.parametrize("begins", [False, True])
def test_texts_begin_as_the_file_states(tmp_path: Path, begins: bool) -> None:
    write_gguf(tmp_path / "small.gguf", begins=begins)
    convert_gguf(tmp_path / "small.gguf", tmp_path / "folder")
    tokenizer = load_tokenizer(str(tmp_path / "folder"))
    plain = tokenizer.encode("ab", add_special_tokens=False)
    assert tokenizer.encode("ab") == [0] * begins + plain
    assert text_start(tokenizer) == (0,) * begins


def test_a_gguf_file_is_converted_once(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model_folder(str(file))
    assert folder == str(cached_folder(str(file)))
    assert model_folder(str(file)) == folder
    assert capsys.readouterr().err.count("converting") == 1
    assert model_folder("some/folder") == "some/folder"


def test_a_run_takes_a_gguf_file(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sums.jsonl").write_text(
        '{"question": "1 + 1?", "answer": "2"}\n{"question": "2 + 1?", "answer": "3"}\n'
    )
    sections: dict[str, Any] = {
        "run": {"max_steps": 1, "dir": "run"},
        "env": {"id": "rlinf_envs:rlinf/Math-v0", "kwargs": {"path": "sums.jsonl", "eval_fraction": 0.0}},
        "policy": {"path": "small.gguf"},
        "data": {"max_prompt_length": 60},
        "rollout": {"batch_size": 2, "max_new_tokens": 4, "sampler": "hf"},
        "algorithm": {"group_size": 2},
        "evaluation": {"size": 0},
        "cluster": {"backend": "local"},
        "logging": {"progress": "none", "tensorboard": False},
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(sections))
    assert main(["train", "run.yaml"]) == 0
    assert (tmp_path / "run" / "policy" / "model.safetensors").exists()


def test_what_is_missing_is_named(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(GGUFError, match="no GGUF file: it begins with b'hell'"):
        convert_gguf(tmp_path / "text.gguf", tmp_path / "out")
    (tmp_path / "short.gguf").write_bytes(file.read_bytes()[:2000])
    with pytest.raises(GGUFError, match="Is it whole"):
        convert_gguf(tmp_path / "short.gguf", tmp_path / "out")
    with pytest.raises(GGUFError, match="No such file"):
        convert_gguf(tmp_path / "none.gguf", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    find = importlib.util.find_spec
    monkeypatch.setattr(gguf.importlib.util, "find_spec", lambda name: None if name == "gguf" else find(name))
    with pytest.raises(GGUFError, match=r"reading it needs gguf: pip install 'oneloop-rl\[gguf\]'"):
        convert_gguf(file, tmp_path / "out")


def test_convert_needs_an_empty_folder(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(file), str(tmp_path)]) == WRONG_CONFIG
    assert "is not empty" in capsys.readouterr().err
    assert main(["convert", str(file)]) == WRONG_CONFIG
    assert "name a new folder" in capsys.readouterr().err
