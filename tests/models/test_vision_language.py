"""Vision-language models as policies: transformers' own forward pass, packed and padded rows, samplers, learner."""

import copy
import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from vision_models import ARCHITECTURES, picture, tiny_vision, tokenizer_of

from rlinf.data.inputs import TextInputs, picture_column
from rlinf.data.messages import SampleRequest, SamplingParams
from rlinf.data.pictures import marked, opened
from rlinf.datasets.conversation_rows import ConversationError, conversation_of
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.models.loading import checkpoint_config
from rlinf.models.packing import distinct_prompts
from rlinf.models.vision.families import FAMILIES
from rlinf.models.vision.features import FeatureCountError
from rlinf.models.vision.reading import PictureReader, excluded_ids, picture_reader, stacked
from rlinf.rollouts.text.imitation import ConversationEncoder, ImitationData
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.samplers.hf import HFSampler
from rlinf.samplers.sight import Sight
from rlinf.schema.policy import VisionConfig

SAMPLING = SamplingParams(max_new_tokens=5)
WORDS = " Which colour is the shape?"


def rows(*prompts: tuple[str, list[str]], renderer: PromptRenderer) -> TextInputs:
    """Prompts (text, pictures) as inputs of responses of 5 tokens."""
    ids = [torch.tensor(renderer.prompt(text)) for text, _ in prompts]
    padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    lengths = torch.tensor([len(one) for one in ids])
    pictures = [own for _, own in prompts]
    return TextInputs(
        padded, lengths, torch.full((len(ids),), 5), pictures=picture_column(pictures) if any(pictures) else None
    )


MODEL_TYPES = [
    # One of each kind: positions of three axes, and tiles in one row of tokens.
    name if name in ("qwen2_vl", "smolvlm") else pytest.param(name, marks=pytest.mark.slow)
    for name in sorted(ARCHITECTURES)
]


def own_logits(model: Any, reader: PictureReader, ids: list[int], pictures: list[str]) -> torch.Tensor:
    """[L, V] by transformers' forward pass, which finds features by its placeholder id."""
    placeholder = model.config.image_token_id
    tokens = torch.tensor([[token if token >= 0 else placeholder for token in ids]])
    given: dict[str, Any] = dict(stacked([reader.pixels(uri) for uri in pictures])) if pictures else {}
    if pictures and reader.family.axes:
        given["mm_token_type_ids"] = (tokens == placeholder).int()
    elif pictures and "pixel_attention_mask" in given:
        given = {name: tensor[None] for name, tensor in given.items()}
    with torch.no_grad():
        return model(input_ids=tokens, attention_mask=torch.ones_like(tokens), **given).logits[0]


@pytest.mark.parametrize("model_type", MODEL_TYPES)
@pytest.mark.parametrize("pack_rows", [True, False])
def test_log_probabilities_are_those_of_transformers_own_forward_pass(model_type: str, pack_rows: bool) -> None:
    tokenizer = tokenizer_of(model_type)
    model, reader = tiny_vision(model_type, tokenizer)
    renderer = PromptRenderer(tokenizer, reader=reader)
    one, other, wide = picture(0), picture(1), picture(2, 28, 56)
    prompts = [
        (marked(one) + WORDS, [one]),
        (marked(other) + WORDS, [other]),
        ("red" + marked(wide) + "blue" + marked(one) + WORDS, [wide, one]),
        (WORDS, []),
        (marked(one) + WORDS, [one]),
    ]
    inputs = rows(*prompts, renderer=renderer)
    actions = torch.randint(5, 200, (len(prompts), 5), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(actions.shape, dtype=torch.bool)
    policy = CausalLMPolicy(copy.deepcopy(model), sampling=SAMPLING, pack_rows=pack_rows, reader=reader)
    found = policy.evaluate(inputs, actions, mask).logprobs
    for row, (text, pictures) in enumerate(prompts):
        ids = [*renderer.prompt(text), *actions[row].tolist()]
        logits = own_logits(model, reader, ids, pictures)[-6:-1].log_softmax(-1)
        expected = logits.gather(1, actions[row][:, None])[:, 0]
        torch.testing.assert_close(found[row], expected, atol=2e-5, rtol=1e-4)
    # The same words under two pictures, in one batch and in the same packed prompt otherwise.
    assert not torch.allclose(
        policy.evaluate(inputs, actions[:1].expand(5, -1), mask).logprobs[0],
        policy.evaluate(inputs, actions[:1].expand(5, -1), mask).logprobs[1],
        atol=1e-4,
    )


@pytest.mark.parametrize("model_type", MODEL_TYPES)
@pytest.mark.parametrize("session", [True, False])
def test_sampler_and_learner_give_the_same_logprobs(model_type: str, session: bool) -> None:
    tokenizer = tokenizer_of(model_type)
    model, reader = tiny_vision(model_type, tokenizer)
    renderer = PromptRenderer(tokenizer, reader=reader)
    one, other, wide = picture(0), picture(1), picture(2, 28, 56)
    texts = [marked(one) + WORDS, marked(other) + WORDS, WORDS, "red" + marked(wide) + marked(one) + WORDS]
    pictures: list[tuple[str, ...]] = [(one,), (other,), (), (wide, one)]
    sampling = replace(SAMPLING, ignore_eos=True, repetition_penalty=1.2)
    excluded = excluded_ids(model.config, tokenizer)
    requests = [
        SampleRequest(row, renderer.prompt(text), 2, sampling, (row,), pictures=pictures[row])
        for row, text in enumerate(texts)
    ]
    sampler = HFSampler(
        copy.deepcopy(model), eos_token_ids=[1], pad_token_id=0, seed=0, generation_batch_size=8, max_model_len=128,
        sight=Sight(reader, excluded),
    )  # fmt: skip
    if session:
        opened_session = sampler.session()
        opened_session.submit(requests)
        done = []
        while opened_session.open:
            done += opened_session.poll(1.0)
        opened_session.close()
        done.sort(key=lambda one: (one.request_id, one.sample_index))
    else:
        done = sampler.sample(requests)
    actions = torch.tensor([list(one.token_ids) for one in done])
    inputs = rows(*((texts[one.request_id], list(pictures[one.request_id])) for one in done), renderer=renderer)
    policy = CausalLMPolicy(model, sampling=sampling, reader=reader, excluded=excluded)
    found = policy.evaluate(inputs, actions, torch.ones(actions.shape, dtype=torch.bool)).logprobs
    sampled = torch.tensor([list(one.logprobs) for one in done])
    assert float((found - sampled).abs().max()) < 4e-5


def test_a_picture_in_a_later_turn_is_read_where_it_stands() -> None:
    tokenizer = tokenizer_of("qwen2_vl")
    model, reader = tiny_vision("qwen2_vl", tokenizer)
    renderer = PromptRenderer(tokenizer, reader=reader)
    one, wide = picture(0), picture(2, 28, 56)
    prompt = renderer.prompt(marked(one) + WORDS)
    answer = [40, 41, renderer.turn_end, *renderer.continuation(marked(wide) + "red", after=renderer.turn_end), 42, 43]
    policy = CausalLMPolicy(copy.deepcopy(model), sampling=SAMPLING, reader=reader)
    inputs = TextInputs(
        torch.tensor([prompt]), torch.tensor([len(prompt)]), torch.tensor([len(answer)]),
        pictures=picture_column([[one, wide]]),
    )  # fmt: skip
    mask = torch.tensor([[token >= 0 for token in answer]])
    found = policy.evaluate(inputs, torch.tensor([answer]), mask).logprobs[0]
    logits = own_logits(model, reader, [*prompt, *answer], [one, wide])[len(prompt) - 1 : -1].log_softmax(-1)
    expected = logits.gather(1, torch.tensor(answer).clamp(min=0)[:, None])[:, 0]
    torch.testing.assert_close(found[mask[0]], expected[mask[0]], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("freeze", [True, False])
def test_the_tower_is_trained_unless_it_is_frozen(freeze: bool) -> None:
    from rlinf.models.vision.families import freeze_encoder

    tokenizer = tokenizer_of("smolvlm")
    model, reader = tiny_vision("smolvlm", tokenizer)
    if freeze:
        freeze_encoder(model)
    renderer = PromptRenderer(tokenizer, reader=reader)
    policy = CausalLMPolicy(model, sampling=SAMPLING, reader=reader)
    uri = picture(0)
    inputs = rows((marked(uri) + WORDS, [uri]), renderer=renderer)
    actions = torch.full((1, 5), 7)
    policy.evaluate(inputs, actions, torch.ones(1, 5, dtype=torch.bool)).logprobs.sum().backward()
    for name, parameter in model.named_parameters():
        only_pictures = any(f".{part}." in name for part in FAMILIES["smolvlm"].encoder)
        moved = parameter.grad is not None and bool(parameter.grad.any())
        assert moved or not only_pictures or freeze or "position_embedding" in name or "k_proj.bias" in name, name
        assert not (moved and only_pictures and freeze), name


@pytest.mark.slow
def test_no_placeholder_in_1e5_draws_at_temperature_5() -> None:
    tokenizer = tokenizer_of("qwen2_vl")
    model, reader = tiny_vision("qwen2_vl", tokenizer)
    excluded = excluded_ids(model.config, tokenizer)
    assert len(excluded) == 5
    sampler = HFSampler(
        model, eos_token_ids=[1], pad_token_id=0, seed=0, generation_batch_size=256, max_model_len=600,
        sight=Sight(reader, excluded),
    )  # fmt: skip
    uri = picture(0)
    prompt = PromptRenderer(tokenizer, reader=reader).prompt(marked(uri) + WORDS)
    sampling = SamplingParams(max_new_tokens=400, temperature=5.0, ignore_eos=True)
    done = sampler.sample([SampleRequest(0, prompt, 256, sampling, (0,), pictures=(uri,))])
    drawn = torch.tensor([list(one.token_ids) for one in done])
    assert drawn.numel() >= 100_000
    assert not torch.isin(drawn, torch.tensor(excluded)).any()
    assert len(drawn.unique()) == len(tokenizer) - len(excluded)


def test_text_that_spells_a_placeholder_is_text_and_trains() -> None:
    tokenizer = tokenizer_of("qwen2_vl")
    model, reader = tiny_vision("qwen2_vl", tokenizer)
    renderer = PromptRenderer(tokenizer, reader=reader)
    excluded = excluded_ids(model.config, tokenizer)
    uri = picture(0)
    text = marked(uri) + "<|vision_start|><|image_pad|><|vision_end|> Which?"
    prompt = renderer.prompt(text)
    assert sum(token < 0 for token in prompt) == reader.pixels(uri).count
    # Those around the picture are the reader's; what the text spells has become other tokens.
    assert sum(token in excluded for token in prompt) == 2
    assert "<|image_pad|>" in renderer.text(prompt)
    answer = renderer.encode("<|image_pad|>")
    inputs = rows((text, [uri]), renderer=renderer)
    inputs = replace(inputs, response_lengths=torch.tensor([len(answer)]))
    policy = CausalLMPolicy(model, sampling=SAMPLING, reader=reader, excluded=excluded)
    logprobs = policy.evaluate(inputs, torch.tensor([answer]), torch.ones(1, len(answer), dtype=torch.bool)).logprobs
    assert bool(logprobs.isfinite().all())
    logprobs.sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in policy.parameters())


def test_features_that_do_not_fit_the_pictures_are_an_error() -> None:
    tokenizer = tokenizer_of("qwen2_vl")
    model, reader = tiny_vision("qwen2_vl", tokenizer)
    renderer = PromptRenderer(tokenizer, reader=reader)
    uri = picture(0)
    inputs = replace(rows((marked(uri), [uri]), renderer=renderer), pictures=picture_column([[uri, uri]]))
    policy = CausalLMPolicy(model, sampling=SAMPLING, reader=reader)
    with pytest.raises(FeatureCountError, match="4 feature tokens, and its 2 pictures have 8"):
        policy.evaluate(inputs, torch.full((1, 5), 7), torch.ones(1, 5, dtype=torch.bool))


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
@pytest.mark.parametrize("size", [(28, 28), (56, 84), (100, 40)])
def test_prompts_are_those_of_the_familys_own_processor(model_type: str, size: tuple[int, int]) -> None:
    """Ids and pixels of a chat of two pictures, against transformers' processor (golden by another implementation)."""
    tokenizer = tokenizer_of(model_type)
    _, reader = tiny_vision(model_type, tokenizer, max_pixels=56 * 56)
    renderer = PromptRenderer(tokenizer, reader=reader)
    uris = [picture(0, *size), picture(1)]
    text = "red" + marked(uris[0]) + " and " + marked(uris[1]) + WORDS
    ids = renderer.prompt(text)
    placeholder = FAMILIES[model_type].placeholder
    chat = f"<|im_start|>user\nred{placeholder} and {placeholder}{WORDS}<|im_end|>\n<|im_start|>assistant\n"
    expected = processor_ids(model_type, tokenizer, reader, chat, [opened(uri) for uri in uris])
    image = tokenizer.convert_tokens_to_ids(FAMILIES[model_type].feature)
    assert [image if token < 0 else token for token in ids] == expected


def processor_ids(model_type: str, tokenizer: Any, reader: PictureReader, chat: str, images: list[Image.Image]) -> Any:
    """What transformers' processor of the family makes of a text with placeholders."""
    processor = reader._processor
    if model_type.startswith("qwen"):
        name = {"qwen2_vl": "Qwen2VL", "qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL"}[model_type]
        module = importlib.import_module(f"transformers.models.{model_type}.processing_{model_type}")
        whole = object.__new__(getattr(module, f"{name}Processor"))
        whole.image_token, whole.image_processor = "<|image_pad|>", processor
        given = processor(images=images, return_tensors="np")
        for index in range(len(images)):
            chat = chat.replace("<|image_pad|>", whole.replace_image_token(given, index).replace("pad", "PAD"), 1)
        return tokenizer.encode(chat.replace("PAD", "pad"), add_special_tokens=False)
    if model_type == "idefics3":
        from transformers import Idefics3Processor

        whole = object.__new__(Idefics3Processor)
        whole.fake_image_token, whole.image_token, whole.global_image_tag = (
            "<fake_token_around_image>", "<image>", "<global-img>"
        )  # fmt: skip
        whole.image_seq_len = 4
        given = processor(images=[images], return_row_col_info=True, return_tensors="np")
        parts = chat.split("<image>")
        for index in range(len(images)):
            parts[index] += whole.replace_image_token(given, index)
        return tokenizer.encode("".join(parts), add_special_tokens=False)
    if model_type == "smolvlm":
        from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

        given = processor(images=[images], return_row_col_info=True, return_tensors="np")
        parts = chat.split("<image>")
        for index, (row, column) in enumerate(zip(given["rows"][0], given["cols"][0], strict=True)):
            marks = ("<fake_token_around_image>", "<image>", "<global-img>")
            parts[index] += get_image_prompt_string(row, column, 4, *marks)
        return tokenizer.encode("".join(parts), add_special_tokens=False)
    from transformers import LlavaProcessor

    options = {"patch_size": 7, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    whole = LlavaProcessor(processor, tokenizer, **options)
    return whole(images=images, text=chat, add_special_tokens=False)["input_ids"][0]


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_an_exported_policy_reads_pictures_as_it_was_trained(model_type: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(model_type)
    model, reader = tiny_vision(model_type, tokenizer, max_pixels=28 * 56)
    CausalLMPolicy(model, sampling=SAMPLING, reader=reader).save_pretrained(str(tmp_path))
    again = picture_reader(checkpoint_config(str(tmp_path)), str(tmp_path), VisionConfig())
    assert again is not None
    uri = picture(0, 56, 84)
    assert again.tokens(uri, tokenizer) == reader.tokens(uri, tokenizer)
    for name, tensor in reader.pixels(uri).tensors.items():
        assert torch.equal(again.pixels(uri).tensors[name], tensor), name


def test_everything_keyed_by_a_prompt_is_keyed_by_its_pictures() -> None:
    """The same words under two pictures: renderer's cache, distinct prompts, one prefill a prompt."""
    tokenizer = tokenizer_of("qwen2_vl")
    model, reader = tiny_vision("qwen2_vl", tokenizer)
    renderer = PromptRenderer(tokenizer, reader=reader)
    uris = [picture(0), picture(1), picture(0)]
    prompts = [renderer.prompt(marked(uri) + WORDS) for uri in uris]
    assert prompts[0] == prompts[2] != prompts[1]
    assert [token for token in prompts[0] if token >= 0] == [token for token in prompts[1] if token >= 0]
    first, owners = distinct_prompts(torch.tensor(prompts), torch.tensor([len(one) for one in prompts]))
    assert first.tolist() == [0, 1]
    assert owners.tolist() == [0, 1, 0]
    # Micro-batches count the tokens of each picture, once for the rows that share it.
    inputs = rows(*((marked(uri) + WORDS, [uri]) for uri in uris), renderer=renderer)
    policy = CausalLMPolicy(copy.deepcopy(model), sampling=SAMPLING, reader=reader)
    costs = policy.costs(inputs, torch.ones(3, 5, dtype=torch.bool))
    words = len([token for token in prompts[0] if token >= 0])
    assert costs.shared is not None
    assert costs.owners is not None
    assert costs.shared.tolist() == [words + reader.pixels(uri).count for uri in uris]
    assert costs.owners.tolist() == [0, 1, 0]
    sampler = HFSampler(
        model, eos_token_ids=[1], pad_token_id=0, seed=0, generation_batch_size=8, max_model_len=128,
        sight=Sight(reader, excluded_ids(model.config, tokenizer)),
    )  # fmt: skip
    forced = replace(SAMPLING, ignore_eos=True)
    # The same stream: only the pictures can make the responses' log-probabilities differ.
    done = sampler.sample(
        [
            SampleRequest(row, ids, 1, forced, (7,), pictures=(uri,))
            for row, (ids, uri) in enumerate(zip(prompts, uris, strict=True))
        ]
    )
    assert done[0].logprobs == done[2].logprobs
    assert done[0].logprobs != done[1].logprobs


def test_conversations_with_pictures_are_imitated() -> None:
    """Content parts, a column of pictures, and a picture in a later turn; behind the last answer nothing is read."""
    tokenizer = tokenizer_of("qwen2_vl")
    model, reader = tiny_vision("qwen2_vl", tokenizer)
    uris = [picture(0), picture(1), picture(2)]
    question = [{"type": "image", "url": uris[0]}, {"type": "text", "text": "Which?"}]
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": "red"},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "And this?"}]},
        {"role": "assistant", "content": "blue"},
        {"role": "user", "content": "<image> thanks"},
    ]
    row = {"messages": messages, "images": uris[1:]}
    one = ConversationEncoder(tokenizer, reader=reader).encode(conversation_of("rows:1", row))
    assert one.pictures == uris[:2]
    count = reader.pixels(uris[0]).count
    assert sum(token < 0 for token in one.prompt) == count
    assert sum(token < 0 for token in one.tokens) == count
    assert not any(counts for token, counts in zip(one.tokens, one.mask, strict=True) if token < 0)
    batch = ImitationData([[one]], batch_size=1, pad_token_id=0, seed=0).batch(0)
    policy = CausalLMPolicy(copy.deepcopy(model), sampling=SAMPLING, reader=reader)
    found = policy.evaluate(batch.inputs, batch.actions, batch.mask).logprobs[0]
    ids = [*one.prompt, *one.tokens]
    logits = own_logits(model, reader, ids, one.pictures)[len(one.prompt) - 1 : -1].log_softmax(-1)
    expected = logits.gather(1, torch.tensor(one.tokens).clamp(min=0)[:, None])[:, 0]
    mask = torch.tensor(one.mask)
    torch.testing.assert_close(found[mask], expected[mask], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "<image>Which?", "images": [], "response": "1"}, None),
        ({"prompt": "<image>Which?", "images": ["none.png"], "response": "1"}, "none.png"),
        ({"prompt": "<image><image>", "images": [picture(0)], "response": "1"}, "2 times, and the row has 1"),
        ({"prompt": "Which?", "response": [{"role": "assistant", "content": [{"type": "image", "url": picture(0)}]}]},
         "an answer of the assistant has a picture"),
    ],
)  # fmt: skip
def test_a_conversation_with_a_wrong_picture_is_named_with_its_line(row: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert conversation_of("rows.jsonl:1", row).messages[0].content == "<image>Which?"
        return
    with pytest.raises(ConversationError, match=f"^rows.jsonl:1: .*{message}"):
        conversation_of("rows.jsonl:1", row)
