"""Environments: verified text tasks as gymnasium vector envs, text games, and adapters to robot simulators.

Importing this package registers the environments and nothing more: no dataset is read, no heavy library is imported.
They are made by name::

    gymnasium.make_vec("rlinf_envs:rlinf/ReasoningGym-v0", num_envs=64, task="chain_sum")
"""

from __future__ import annotations

from typing import Any

from gymnasium.envs.registration import register, registry

_ENVIRONMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "rlinf/FunctionCalls-v0": ("rlinf_envs.function_calls.env:FunctionCallsEnv", {}),
    "rlinf/Math-v0": ("rlinf_envs.math.env:MathEnv", {}),
    "rlinf/MathToolLoop-v0": ("rlinf_envs.math.env:MathEnv", {"tool": "calculator", "max_turns": 8}),
    "rlinf/Prompts-v0": ("rlinf_envs.prompts_env:PromptsEnv", {}),
    "rlinf/ReasoningGym-v0": ("rlinf_envs.reasoning_gym.env:ReasoningGymEnv", {}),
}
_SINGLE = {
    "rlinf/MetaWorld-v0": "rlinf_envs.sim.metaworld:MetaWorldEnv",
    "rlinf/BitFlip-v0": "rlinf_envs.sim.bit_flip:BitFlipEnv",
    "rlinf/Libero-v0": "rlinf_envs.sim.libero:LiberoEnv",
    "rlinf/ManiSkill-v0": "rlinf_envs.sim.maniskill:ManiSkillEnv",
    "rlinf/MiniGrid-v0": "rlinf_envs.sim.minigrid:GridEnv",
    "rlinf/Robosuite-v0": "rlinf_envs.sim.robosuite:RobosuiteEnv",
    "rlinf/SparseReach-v0": "rlinf_envs.sim.reach:SparseReachEnv",
    "rlinf/Tabletop-v0": "rlinf_envs.sim.tabletop.env:TabletopEnv",
    "rlinf/CodeBook-v0": "rlinf_envs.games.code_book:CodeBook",
    "rlinf/FunctionServices-v0": "rlinf_envs.function_calls.services_env:FunctionServicesEnv",
    "rlinf/GuessNumber-v0": "rlinf_envs.games.guess_number:GuessNumber",
    "rlinf/PriceList-v0": "rlinf_envs.games.price_list:PriceList",
    "rlinf/Details-v0": "rlinf_envs.vision.details:Details",
    "rlinf/Figures-v0": "rlinf_envs.vision.figures:Figures",
    "rlinf/ShapeQuestions-v0": "rlinf_envs.vision.questions:ShapeQuestions",
    "rlinf/Shapes-v0": "rlinf_envs.vision.shapes:Shapes",
    "rlinf/TextArena-v0": "rlinf_envs.games.text_arena:TextArenaGame",
    "rlinf/FaultyCartPole-v0": "rlinf_envs.faulty:faulty_cartpole",
}

for _id, (_entry_point, _settings) in _ENVIRONMENTS.items():
    if _id not in registry:
        register(id=_id, vector_entry_point=_entry_point, kwargs=_settings)

for _id, _entry_point in _SINGLE.items():
    if _id not in registry:
        register(id=_id, entry_point=_entry_point)
