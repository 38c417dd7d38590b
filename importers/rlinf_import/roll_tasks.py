"""ROLL's data, rewards and agentic environments, as far as there is an environment for them here."""

from __future__ import annotations

from rlinf_import.models import reads_pictures
from rlinf_import.sheet import Sheet

_DATA = "actor_train.data_args."
_GAMES = "rlinf_envs:rlinf/TextArena-v0, whose games are played by their rules (docs/agents.md)"
_NEAREST = {
    "sokoban": "rlinf_envs:rlinf/TextArena-v0 with game: Sokoban-v0",
    "webshop": "an environment of your own (docs/environments.md)",
    "game": _GAMES,
    "code": "rlinf_envs:rlinf/CodeBook-v0, or an environment of your own",
    "qa": "rlinf_envs:rlinf/Prompts-v0 with a reward of your own",
    "roll_qa": "rlinf_envs:rlinf/Prompts-v0 with a reward of your own",
    "logic": "rlinf_envs:rlinf/ReasoningGym-v0",
}
_OWN = "an environment of your own (docs/environments.md)"
_REWARDS = {
    "DetectionRewardWorker": "rewards for boxes in images",
    "VideoR1": "rewards for videos",
    "GeneralRuleRewardWorker": "rewards for instructions (IFEval)",
    "CodeSandboxRewardWorker": "rewards from running code",
    "LLMJudgeRewardWorker": "rewards of a judging model",
    "CrossThinkQARuleRewardWorker": "rewards for multiple choice (CrossThink)",
}


def tasks(sheet: Sheet) -> None:
    """Set the environment, its data and what is rewarded."""
    reads_pictures(sheet, "pretrain", "actor_train.model_args.model_name_or_path", f"{_DATA}template")
    for key in (f"{_DATA}image_folder", f"{_DATA}video_folder", f"{_DATA}audio_folder"):
        if sheet.text(key):
            sheet.refuse("prompts with images, sound or video", "text alone", key)
    if sheet.written("train_env_manager") is not None:
        _agentic(sheet)
        return
    sheet.put("env.id", "rlinf_envs:rlinf/Math-v0")
    _files(sheet)
    _rewards(sheet)


def _files(sheet: Sheet) -> None:
    files = sheet.take(f"{_DATA}file_name")
    names = [str(name) for name in (files if isinstance(files, list) else [files] if files else [])]
    if not names:
        return
    math = [name for name in names if "math" in name.lower()]
    chosen = math[0] if len(math) == 1 else names[0]
    sheet.put("env.kwargs.path", chosen, f"{_DATA}file_name")
    if len(names) > 1:
        others = ", ".join(name for name in names if name != chosen)
        sheet.defer(
            f"{chosen} is read; {others}: put rows that are graded alike into one file or folder", f"{_DATA}file_name"
        )
    sheet.differs.append(
        f"{sheet.origin(f'{_DATA}file_name')}: {_DATA}file_name: of ROLL's rows `prompt` and ground_truth "
        "are read, and `messages` is not (env.kwargs.question_field: messages takes it instead of `prompt`)"
    )


def _rewards(sheet: Sheet) -> None:
    rewards = sheet.take("rewards")
    if not isinstance(rewards, dict):
        return
    workers = {name: str(reward.get("worker_cls", "")) for name, reward in rewards.items() if isinstance(reward, dict)}
    rules = [name for name, worker in workers.items() if "MathRule" in worker]
    others = [name for name in workers if name not in rules]
    for name in others:
        if "Detection" in workers[name] or "VideoR1" in workers[name]:
            key = f"rewards.{name}.worker_cls"
            sheet.refuse("prompts with images, sound or video", "text alone", key)
    if rules:
        sheet.put("env.kwargs.reward", {"correctness": 1.0}, f"rewards.{rules[0]}.worker_cls")
        sheet.differ(f"rewards.{rules[0]}.worker_cls", "answers are graded by the verifier of rlinf_envs.math")
        for name in others:
            sheet.defer(
                "write it as a function and name it in env.kwargs.reward.custom, or as an environment of its own",
                f"rewards.{name}.worker_cls",
            )
        return
    for name in others:
        worker = workers[name].rpartition(".")[2]
        feature = next((words for part, words in _REWARDS.items() if part in worker), f"the reward {worker}")
        sheet.refuse(feature, "env.kwargs.reward.custom, a function of your own", f"rewards.{name}.worker_cls")


def _agentic(sheet: Sheet) -> None:
    """Set the environment of the first tag; its kind decides which of ours it is."""
    tags = sheet.take("train_env_manager.tags")
    names = tags if isinstance(tags, list) and tags else ["SimpleSokoban"]
    key = f"custom_envs.{names[0]}"
    kind = sheet.text(f"{key}.env_type")
    if len(names) > 1:
        sheet.refuse(
            "a mixture of agentic environments", "env.tasks, with environments of ours", "train_env_manager.tags"
        )
    family, _, task = kind.partition(":")
    if sheet.written(f"{key}.tool_wrapper") is not None:
        nearest = "env.kwargs.tools of rlinf_envs:rlinf/Math-v0 (docs/agents.md)"
        sheet.refuse("tools that run code or search", nearest, f"{key}.tool_wrapper")
    elif family == "rg":
        sheet.put("env.id", "rlinf_envs:rlinf/ReasoningGym-v0", f"{key}.env_type")
        sheet.put("env.kwargs.task", task, f"{key}.env_type")
        sheet.copy_as(f"{key}.env_config.size", "env.kwargs.size")
        sheet.copy_as(f"{key}.env_config.seed", "env.kwargs.seed")
        sheet.put("env.kwargs.answer_format", "boxed", f"{key}.agent_template")
    elif family in ("math", "roll_math"):
        sheet.put("env.id", "rlinf_envs:rlinf/Math-v0", f"{key}.env_type")
        sheet.copy_as(f"{key}.env_config.dataset_name", "env.kwargs.path")
    elif family in ("sokoban", "frozen_lake"):
        _game(sheet, key, family)
    elif not kind:
        sheet.refuse("an environment that the file does not hold", _OWN, "train_env_manager.tags")
    else:
        nearest = next((words for part, words in _NEAREST.items() if family.startswith(part)), _OWN)
        sheet.refuse(f"the environment {family}", nearest, f"{key}.env_type")
    if not sheet.missing:
        _conversation(sheet, key)


def _game(sheet: Sheet, key: str, family: str) -> None:
    """Sokoban and FrozenLake, which TextArena plays by the same rules."""
    sheet.put("env.id", "rlinf_envs:rlinf/TextArena-v0", f"{key}.env_type")
    sheet.put("env.kwargs.game", "Sokoban-v0" if family == "sokoban" else "FrozenLake-v0", f"{key}.env_type")
    given = sheet.take(f"{key}.env_config")
    result = given if isinstance(given, dict) else {}
    if family == "sokoban":
        settings = {"dim_room": result.get("dim_room", [10, 10]), "num_boxes": result.get("num_boxes", 4)}
        settings["max_turns"] = sheet.count(f"{key}.max_steps") or result.get("max_steps", 20)
    else:
        size, frozen = int(result.get("size", 4)), float(result.get("p", 0.8))
        settings = {"size": size, "num_holes": round(size * size * (1 - frozen))}
        if result.get("is_slippery", True) is not False:
            nearest = "rlinf_envs:rlinf/TextArena-v0 with game: FrozenLake-v0, whose moves succeed"
            sheet.refuse("the environment frozen_lake with slippery ice", nearest, f"{key}.env_type")
    names = [name for name in ("dim_room", "num_boxes", "size", "p", "is_slippery") if name in result]
    sheet.put("env.kwargs.settings", settings, *[f"{key}.env_config.{name}" for name in names])
    why = "TextArena plays it: moves are written as [up], and the end of the game pays, 1 for one that is won"
    sheet.differ(f"{key}.env_type", why)
    sheet.ignore(f"{key}.env_config", "the game has its own words and rewards, without a penalty for the form of moves")
    sheet.ignore(f"{key}.agent_template", "the game's own words are the prompts")


def _conversation(sheet: Sheet, key: str) -> None:
    turns = sheet.count(f"{key}.max_steps")
    manager = sheet.text(f"{key}.env_manager_cls")
    if "StepEnvManager" in manager:
        sheet.differ(f"{key}.env_manager_cls", "a conversation is one row here; there each step is one, with its past")
    if turns and turns > 1:
        sheet.put("env.max_turns", turns, f"{key}.max_steps")
    system = sheet.take(f"{key}.agent_system_template")
    if isinstance(system, str) and system:
        sheet.put("data.system_prompt", system, f"{key}.agent_system_template")
    template = sheet.take(f"{key}.agent_template")
    if isinstance(template, str) and "{observation}" in template and "env.kwargs.game" not in sheet.settings:
        text = template.replace("{observation}", "{question}")
        sheet.put("env.kwargs.prompt_template", text, f"{key}.agent_template")
    sheet.ignore(f"{key}.agent_template", "prompts are written by env.kwargs.prompt_template")
    _normalisation(sheet)


def _normalisation(sheet: Sheet) -> None:
    """``reward_normalization``: the mean and deviation of a batch or of a group."""
    section = "reward_normalization."
    if sheet.text("adv_estimator") == "gigpo":
        # ROLL normalises episodes within their group and steps within their state by one method.
        method = sheet.text(f"{section}method") or "identity"
        std = sheet.text(f"{section}norm_std_type") or ("group" if method in ("mean_std", "asym_clip") else "")
        sheet.put("algorithm.normalize_by_std", bool(std), f"{section}method")
        sheet.ignore(f"{section}grouping", "adv_type: gigpo compares episodes of a group, and steps of a state")
        return
    grouping, method = sheet.text(f"{section}grouping"), sheet.text(f"{section}method") or "identity"
    scope = "batch" if grouping in ("", "batch") else "group"
    mean = sheet.text(f"{section}norm_mean_type") or (scope if method != "identity" else "")
    std = sheet.text(f"{section}norm_std_type") or (scope if method in ("mean_std", "asym_clip") else "")
    if sheet.text("adv_estimator") == "grpo":
        # ROLL's agentic grpo is reward-to-go of the normalised reward.
        sheet.put("algorithm.adv_type", "reinforce", "adv_estimator")
        sheet.differ("adv_estimator", "in ROLL's agentic pipeline it is reward-to-go of the normalised reward")
    for part, value in (("mean", mean), ("std", std)):
        if value:
            sheet.put(f"algorithm.reward_norm.{part}", value, f"{section}grouping", f"{section}method")
