"""RLinf's simulators: those that are here with their suites and limits, and the names of those that are not."""

from __future__ import annotations

import re

from rlinf_import.metaworld import TASKS
from rlinf_import.sheet import Sheet

_TRAIN = "env.train."
_SUITES = {"libero_spatial": 10, "libero_object": 10, "libero_goal": 10, "libero_10": 10, "libero_90": 90}
_OURS = "ManiSkill-v0, Libero-v0, MetaWorld-v0 and Robosuite-v0 (docs/simulators.md)"
_PLAIN_MANISKILL = re.compile(
    r"(PickCube|PushCube|StackCube|PegInsertionSide|PlugCharger|PullCube|LiftPegUpright|PokeCube|"
    r"RollBall|PushT|PickSingleYCB|PlaceSphere|TurnFaucet|OpenCabinetDrawer|TwoRobotPickCube)-v\d"
)
_CONTROLS = {"panda-qpos": "pd_joint_delta_pos", "panda-ee-dpos": "pd_ee_delta_pos"}
_NAMES = {
    "realworld": "real robots",
    "wan_wm": "a world model as the simulator (Wan)",
    "opensora_wm": "a world model as the simulator (OpenSora)",
    "diffusion": "diffusion models of images",
}


def simulator(sheet: Sheet) -> None:
    """Set the environment by ``env.train.env_type``."""
    kind = sheet.text(f"{_TRAIN}env_type")
    if kind == "libero":
        _libero(sheet)
    elif kind == "maniskill":
        _maniskill(sheet)
    elif kind == "metaworld":
        _metaworld(sheet)
    elif kind:
        sheet.refuse(_NAMES.get(kind, f"the simulator {kind}"), _OURS, f"{_TRAIN}env_type")
    else:
        sheet.refuse("a simulator that neither the file nor its neighbours define", _OURS, "defaults")


def _libero(sheet: Sheet) -> None:
    key = f"{_TRAIN}task_suite_name"
    suite = sheet.text(key)
    if suite not in _SUITES:
        sheet.refuse(f"the suite {suite}", f"the suites {', '.join(_SUITES)}", key)
        return
    sheet.put("env.id", "rlinf_envs:rlinf/Libero-v0", f"{_TRAIN}env_type")
    sheet.put("env.kwargs.suite", suite, key)
    sheet.put("env.tasks", [{"kwargs": {"task": task}} for task in range(_SUITES[suite])], key)
    sheet.put("env.isolation", "process", f"{_TRAIN}env_type")
    sheet.put("env.python", "venvs/libero/bin/python", f"{_TRAIN}env_type")
    sheet.copy_as(f"{_TRAIN}max_episode_steps", "env.kwargs.max_steps")
    sheet.copy_as(f"{_TRAIN}init_params.camera_heights", "env.kwargs.image_size")
    sheet.ignore(f"{_TRAIN}init_params.camera_widths", "pictures are square (env.kwargs.image_size)")
    if sheet.count("actor.model.num_images_in_input") == 1:
        sheet.put("env.kwargs.wrist", False, "actor.model.num_images_in_input")
    single = sheet.take(f"{_TRAIN}specific_reset_id")
    if single is not None:
        sheet.defer("env.reset_state_ids: start states by number, within each task", f"{_TRAIN}specific_reset_id")
    sheet.defer("the processes of LIBERO: `make venvs/libero` makes env.python", f"{_TRAIN}env_type")
    _success_reward(sheet)
    _held_out(sheet)


def _success_reward(sheet: Sheet) -> None:
    """RLinf multiplies the reward of success; bounds of groups' rewards are in its units."""
    scale = sheet.number(f"{_TRAIN}reward_coef") or sheet.number("algorithm.reward_coef") or 1.0
    if scale == 1.0:
        return
    key = f"{_TRAIN}reward_coef" if sheet.written(f"{_TRAIN}reward_coef") is not None else "algorithm.reward_coef"
    sheet.differ(key, "success is worth 1 here; bounds of rewards are divided by it")
    for bound in ("rewards_lower_bound", "rewards_upper_bound"):
        value = sheet.value(f"algorithm.{bound}")
        if isinstance(value, int | float):
            sheet.adjust(f"algorithm.{bound}", value / scale, f"success is worth 1 here and {scale:g} there")


def _held_out(sheet: Sheet) -> None:
    sheet.put("evaluation.env_kwargs", {"split": "eval"})
    sheet.differs.append(
        f"{sheet.source.path}: evaluation.env_kwargs: evaluations start from states that are never trained on, RLinf's "
        "from those of training"
    )


def _maniskill(sheet: Sheet) -> None:
    key = f"{_TRAIN}init_params.id"
    task = sheet.text(key)
    if not _PLAIN_MANISKILL.fullmatch(task):
        sheet.refuse(f"the task {task or 'of ManiSkill'}", "tasks of ManiSkill 3 itself, such as PickCube-v1", key)
        return
    sheet.put("env.id", "rlinf_envs:rlinf/ManiSkill-v0", f"{_TRAIN}env_type")
    sheet.put("env.kwargs.task", task, key)
    sheet.differ(f"{_TRAIN}env_type", "ManiSkill runs on its CPU backend, one simulator per environment")
    sheet.copy_as(f"{_TRAIN}max_episode_steps", "env.kwargs.max_steps")
    setup = sheet.text("actor.model.policy_setup")
    if setup in _CONTROLS:
        sheet.put("env.kwargs.control_mode", _CONTROLS[setup], "actor.model.policy_setup")
    if sheet.take(f"{_TRAIN}reward_mode") == "only_success":
        sheet.put("env.kwargs.reward_mode", "sparse", f"{_TRAIN}reward_mode")
    sheet.ignore(
        f"{_TRAIN}reward_mode", "raw is ManiSkill's normalized_dense, which env.kwargs.reward_mode is by default"
    )
    sheet.ignore(f"{_TRAIN}init_params.control_mode", "RLinf sets it by actor.model.policy_setup")
    if "rgb" in sheet.text(f"{_TRAIN}init_params.obs_mode"):
        sheet.put("env.kwargs.camera", "base_camera", f"{_TRAIN}init_params.obs_mode")
    _held_out(sheet)


def _metaworld(sheet: Sheet) -> None:
    key = f"{_TRAIN}task_suite_name"
    suite = sheet.text(key)
    if suite != "metaworld_50":
        sheet.refuse(f"the suite {suite}", "env.tasks with the tasks of rlinf_envs:rlinf/MetaWorld-v0", key)
        return
    sheet.put("env.id", "rlinf_envs:rlinf/MetaWorld-v0", f"{_TRAIN}env_type")
    sheet.put("env.tasks", [{"kwargs": {"task": task}} for task in TASKS], key)
    sheet.copy_as(f"{_TRAIN}max_episode_steps", "env.kwargs.max_steps")
    sheet.put("env.kwargs.camera", "corner2", f"{_TRAIN}env_type")
    sheet.copy_as(f"{_TRAIN}init_params.camera_heights", "env.kwargs.image_size")
    sheet.put("env.kwargs.reward_mode", "sparse", f"{_TRAIN}env_type")
    sheet.put("env.kwargs.end_on_success", True, f"{_TRAIN}env_type")
    sheet.differ(f"{_TRAIN}env_type", "the camera corner2 stands where the package has it, in RLinf it is moved")
    _success_reward(sheet)
    _held_out(sheet)
