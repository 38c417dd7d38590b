"""HerReplayBuffer of Stable-Baselines3."""

from __future__ import annotations

from rlinf_import.python_calls import literal
from rlinf_import.sb3_script import reference
from rlinf_import.sheet import Sheet

_BUFFER, _OPTIONS = "replay_buffer_class", "replay_buffer_kwargs"
_IGNORED = {
    "online_sampling": "goals are always chosen when transitions are sampled",
    "max_episode_length": "ends of episodes are recorded",
    "handle_timeout_termination": "truncated episodes are always bootstrapped",
    "copy_info_dict": "compute_reward is given an empty info",
}


def hindsight(sheet: Sheet) -> None:
    """Set the goals that replayed transitions get, if the replay buffer is one for that."""
    if "Her" not in sheet.text(_BUFFER):
        return
    located = sheet.written(_OPTIONS)
    plain = None if located is None else located.plain()
    chosen = literal(plain) if isinstance(plain, str) else plain
    options = chosen if isinstance(chosen, dict) else {}
    if plain is not None and not isinstance(chosen, dict):
        sheet.ask("algorithm.hindsight and algorithm.hindsight_goals", _OPTIONS)
    strategy = reference(options.get("goal_selection_strategy", "future")).rpartition(".")[2].lower()
    sheet.put("algorithm.hindsight", strategy, _BUFFER, _OPTIONS)
    goals = options.get("n_sampled_goal", 4)
    if isinstance(goals, int):
        sheet.put("algorithm.hindsight_goals", goals, _OPTIONS)
    else:
        sheet.ask("algorithm.hindsight_goals", _OPTIONS)
    for name in options.keys() & _IGNORED.keys():
        kept = name == "copy_info_dict" and options[name] is True
        line = f"{sheet.place(_OPTIONS)}: {_OPTIONS}.{name}: {options[name]}: {_IGNORED[name]}"
        (sheet.differs if kept else sheet.ignored).append(line)
    sheet.named.update({_BUFFER, _OPTIONS, *(f"{_OPTIONS}.{name}" for name in options)})
    sheet.put("env.success_key", "is_success")
    if sheet.value("env.normalize_rewards"):
        sheet.adjust("env.normalize_rewards", False, "relabelled rewards are the environment's own, as they are")
