"""verl's data, rewards and agent loops."""

from __future__ import annotations

from pathlib import Path

from rlinf_import.fitting import MODEL
from rlinf_import.models import PICTURES, pictures
from rlinf_import.sheet import Sheet
from rlinf_import.written import Code

_ROLLOUT, _MODEL = "actor_rollout_ref.rollout.", "actor_rollout_ref.model."
_BUFFERS = (
    "reward_model.overlong_buffer.",
    "reward_model.reward_kwargs.overlong_buffer_cfg.",
    "reward.reward_kwargs.overlong_buffer_cfg.",
)
_TOOLS = "env.kwargs.tools of rlinf_envs:rlinf/Math-v0, or an agent of yours (docs/agents.md)"
_FUNCTIONS = ("custom_reward_function.path", "reward.custom_reward_function.path")


def data(sheet: Sheet) -> None:
    """Set the environment, its files and lengths; refuse tools and prompts that are not text."""
    pictures(sheet, f"{_MODEL}path", "data.train_files", "images", "data.image_key")
    for key in ("data.video_key", "data.audio_key"):
        if sheet.text(key):
            sheet.refuse(PICTURES, "text and pictures (docs/vision.md)", key)
    _loops(sheet)
    sheet.put("env.id", "rlinf_envs:rlinf/Math-v0")
    _paths(sheet)
    sheet.copy("data.max_prompt_length", "data.max_response_length", "data.train_batch_size", "data.shuffle")
    if sheet.take("data.truncation") in ("left", "right", "middle"):
        sheet.differ("data.truncation", "longer prompts are dropped and counted here, never cut")
    rendered = sheet.take("data.apply_chat_template_kwargs")
    if isinstance(rendered, dict) and not any(isinstance(value, Code) for value in rendered.values()):
        keys = [f"data.apply_chat_template_kwargs.{name}" for name in rendered]
        sheet.put("data.chat_template_kwargs", dict(rendered), *keys)
    sheet.ignore("data.truncation", "longer prompts are dropped and counted (data.max_prompt_length)")
    sheet.ignore("data.val_batch_size", "all of evaluation.size are measured at once")
    most = sheet.count("data.val_max_samples")
    if most and most > 0:
        sheet.put("evaluation.size", most, "data.val_max_samples")
    rows = sheet.count("data.train_max_samples")
    if rows and rows > 0:
        sheet.put("env.kwargs.limit", rows, "data.train_max_samples")
    _rewards(sheet)


def _loops(sheet: Sheet) -> None:
    """Conversations with tools and agents are other environments."""
    for key in (f"{_ROLLOUT}multi_turn.tool_config_path", f"{_ROLLOUT}multi_turn.function_tool_path"):
        if sheet.take(f"{_ROLLOUT}multi_turn.enable") is True and _named(sheet, key):
            sheet.refuse("tools from a configuration of verl", _TOOLS, key)
    for key in (f"{_ROLLOUT}agent.agent_loop_config_path", f"{_ROLLOUT}agent.default_agent_loop"):
        if _named(sheet, key) and sheet.text(key) != "single_turn_agent":
            sheet.refuse("agent loops of verl", _TOOLS, key)
    for key in ("data.custom_cls.path", "nemo_gym", "atropos.api_url"):
        if _named(sheet, key):
            sheet.refuse(
                "data of a class or service of verl's own", "an environment of yours (docs/environments.md)", key
            )
    turns = sheet.count(f"{_ROLLOUT}multi_turn.max_assistant_turns")
    if turns and turns > 1 and sheet.take(f"{_ROLLOUT}multi_turn.enable") is True and not sheet.missing:
        sheet.put("env.max_turns", turns, f"{_ROLLOUT}multi_turn.max_assistant_turns")


def _named(sheet: Sheet, key: str) -> bool:
    """Whether something is written at a key, even if it is known only when the script runs."""
    located = sheet.written(key)
    return located is not None and located.value not in (None, "", "null")


def _paths(sheet: Sheet) -> None:
    files = _files(sheet, "data.train_files")
    if files:
        sheet.put("env.kwargs.path", files[0], "data.train_files")
    if len(files) > 1:
        sheet.defer("one file or folder is read: put these into one folder, or one file", "data.train_files")
    held_out = _files(sheet, "data.val_files")
    if held_out:
        sheet.put("evaluation.env_kwargs", {"path": held_out[0]}, "data.val_files")
    if len(held_out) > 1:
        sheet.defer("one file or folder is read", "data.val_files")


def _files(sheet: Sheet, key: str) -> list[str]:
    value = sheet.take(key)
    if isinstance(value, str) and value.startswith("["):
        value = [part.strip(" '\"") for part in value.strip("[]").split(",")]
    names = value if isinstance(value, list) else [value] if value else []
    return [str(name) for name in names if not isinstance(name, Code)]


def _rewards(sheet: Sheet) -> None:
    for key in _FUNCTIONS:
        if sheet.text(key):
            file = sheet.take(key)
            module = "MODULE" if isinstance(file, Code) else Path(str(file)).stem
            function = sheet.text(key.replace(".path", ".name")) or "compute_score"
            sheet.defer(
                f"it runs as it is: env.kwargs.reward={{custom: {{'{module}:{function}': 1.0}}}}, with its folder in "
                "PYTHONPATH",
                key,
            )
            sheet.ignore(key.replace(".path", ".name"), "named with its file")
    for begin in _BUFFERS:
        if sheet.take(f"{begin}enable") is True:
            _overlong(sheet, begin)
        for name in ("enable", "len", "penalty_factor", "log"):
            sheet.ignore(f"{begin}{name}", "algorithm.overlong_penalty is this penalty")
    if sheet.take("reward_model.enable") is True:
        sheet.put("reward_model.supervision", "outcome", "reward_model.enable")
        sheet.copy_as("reward_model.model.path", "reward_model.path")
        if "reward_model.path" not in sheet.settings:
            sheet.put("reward_model.path", MODEL)
            sheet.defer(f"reward_model.path: the reward model ({MODEL} stands for it)")
        sheet.differ("reward_model.enable", "the reward is the probability that its head gives (reward_model.output)")
    if sheet.take("reward.reward_model.enable") is True:
        nearest = "reward_model, a head that scores, or env.kwargs.reward.custom"
        sheet.refuse("a generative reward model", nearest, "reward.reward_model.enable")


def _overlong(sheet: Sheet, begin: str) -> None:
    """DAPO's soft punishment: linear over the last ``len`` tokens of the limit."""
    length, factor = sheet.count(f"{begin}len"), sheet.number(f"{begin}penalty_factor")
    whole = sheet.count("data.max_response_length") or 0
    if not length or not factor or length >= whole:
        return
    penalty = "algorithm.overlong_penalty."
    sheet.put(f"{penalty}safe_length", whole - length, f"{begin}len", "data.max_response_length")
    sheet.put(f"{penalty}max_length", whole, "data.max_response_length")
    sheet.put(f"{penalty}coef", factor, f"{begin}penalty_factor", f"{begin}enable")
    sheet.put("rollout.max_new_tokens", whole, "data.max_response_length")
