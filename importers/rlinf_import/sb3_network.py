"""Networks of Stable-Baselines3: the forms of ``policy_kwargs`` and the policies by name."""

from __future__ import annotations

from rlinf_import.python_calls import literal
from rlinf_import.sb3_script import reference
from rlinf_import.sb3_tables import LAYERS
from rlinf_import.sheet import Sheet
from rlinf_import.written import Code

_ACTIVATIONS = {
    "tanh": "tanh",
    "relu": "relu",
    "silu": "silu",
    "gelu": "gelu",
    "elu": "elu",
    "leakyrelu": "leaky_relu",
    "selu": "selu",
    "mish": "mish",
}
"""Classes of `torch.nn`, as small letters alone -> `policy.activation`."""
_ORTHOGONAL = "layers are always orthogonal at first"
_IGNORED = {
    "full_std": "without use_sde nothing reads it",
    "use_expln": "deviations are the exponential of a logarithm",
    "squash_output": "actions are bounded by policy.distribution",
    "normalize_images": "pixels are always divided by 255",
    "lstm_hidden_size": "policy.embedding_size is the width of the memory",
    "n_lstm_layers": "a memory has one layer",
}
_RMS = {"RMSprop": "rmsprop", "RMSpropTFLike": "rmsprop_tf"}
_ENSEMBLES = ("sac", "td3", "tqc")
"""Algorithms with a number of critics to choose."""
_MEMORY = ("lstm_hidden_size", "n_lstm_layers", "enable_critic_lstm", "shared_lstm", "lstm_kwargs")


def network(sheet: Sheet, algorithm: str) -> None:
    """Set layers, activation and memory."""
    sizes, activation = LAYERS[algorithm]
    sheet.put("policy.hidden_sizes", sizes)
    sheet.put("policy.activation", activation)
    if algorithm == "crossq":
        why = "critics have the actor's layers here; sb3-contrib's are [1024, 1024] unless net_arch gives others"
        sheet.differs.append(f"{sheet.source.path}: policy.hidden_sizes: {why}")
    if algorithm == "ppo_lstm":
        sheet.put("policy.recurrent", "lstm")
        sheet.put("policy.embedding_size", 256)
        sheet.differs.append(f"{sheet.source.path}: policy.recurrent: actor and critic share their memory and layers")
    pictures = "Cnn" in sheet.text("policy")
    if pictures:
        sheet.put("policy.hidden_sizes", [512], "policy")
        sheet.put("policy.activation", "relu", "policy")
        sheet.differ("policy", "images are read by a CNN of rlinf's own, instead of NatureCNN")
        if algorithm in ("ppo", "a2c", "maskable_ppo"):
            sheet.put("policy.shared_critic", True, "policy")
    sheet.ignore("policy", "policy.encoder: auto chooses by the observations")
    located = sheet.written("policy_kwargs")
    if located is None:
        return
    plain = located.plain()
    chosen = literal(plain) if isinstance(plain, str) else plain
    if not isinstance(chosen, dict):
        sheet.defer("policy.hidden_sizes, policy.activation, policy.init_log_std", "policy_kwargs")
        return
    for name, value in sorted(chosen.items(), key=lambda pair: pair[0] != "optimizer_class"):
        _option(sheet, algorithm, name, value)
    sheet.named.add("policy_kwargs")
    sheet.named.update(f"policy_kwargs.{name}" for name in chosen)
    sheet.named.update(key for key, _ in sheet.source.leaves() if key.startswith("policy_kwargs."))


def _line(sheet: Sheet, name: str, value: object, what: str) -> str:
    return f"{sheet.origin('policy_kwargs')}: policy_kwargs.{name}: {_words(value)}: {what}"


def _words(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_words(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_words(item)}' for key, item in value.items())}}}"
    return value.text if isinstance(value, Code) else reference(value)


def _option(sheet: Sheet, algorithm: str, name: str, value: object) -> None:
    off_policy = algorithm not in ("ppo", "a2c", "ppo_lstm", "maskable_ppo")
    if name == "net_arch":
        _layers(sheet, value)
    elif name == "activation_fn":
        given = reference(value).rpartition(".")[2]
        if activation := _ACTIVATIONS.get(given.lower().replace("_", "")):
            sheet.put("policy.activation", activation, "policy_kwargs")
        else:
            known = ", ".join(_ACTIVATIONS.values())
            sheet.refuse(f"the activation {given}", f"policy.activation: {known}", "policy_kwargs")
    elif name == "log_std_init" and (not off_policy or sheet.take("use_sde") is True):
        sheet.put("policy.init_log_std", value, "policy_kwargs")
    elif name == "log_std_init":
        sheet.ignored.append(_line(sheet, name, value, "the deviation of an off-policy actor is learned from 1"))
    elif name == "ortho_init":
        (sheet.ignored if value is not False else sheet.differs).append(_line(sheet, name, value, _ORTHOGONAL))
    elif name == "optimizer_class" and not off_policy and (ours := _RMS.get(reference(value).rpartition(".")[2])):
        sheet.put("learner.optimizer.name", ours, "policy_kwargs")
        sheet.put("learner.optimizer.eps", 1e-8)
    elif name == "optimizer_class":
        sheet.differs.append(_line(sheet, name, value, "the optimiser is AdamW (learner.optimizer)"))
    elif name == "optimizer_kwargs" and isinstance(value, dict):
        _optimiser(sheet, value)
    elif name == "n_critics" and algorithm in _ENSEMBLES:
        sheet.put("policy.num_critics", value, "policy_kwargs")
    elif name == "n_critics":
        count = 1 if algorithm == "ddpg" else 2
        what = f"loss_type: {algorithm} has {'one critic' if count == 1 else 'two critics'}"
        (sheet.ignored if value == count else sheet.differs).append(_line(sheet, name, value, what))
    elif name == "n_quantiles" and algorithm == "tqc":
        sheet.put("policy.num_quantiles", value, "policy_kwargs")
    elif name == "lstm_hidden_size" and algorithm == "ppo_lstm":
        sheet.put("policy.embedding_size", value, "policy_kwargs")
    elif name in _MEMORY:
        what = "a memory has one layer, which actor and critic share"
        (sheet.ignored if value in (1, True) else sheet.differs).append(_line(sheet, name, value, what))
    elif name in ("features_extractor_class", "features_extractor_kwargs"):
        sheet.decide.append(_line(sheet, name, value, "write it as policy.encoder: module:Class (docs/plugins.md)"))
    elif name == "share_features_extractor":
        sheet.decide.append(_line(sheet, name, value, "see policy.shared_critic"))
    elif name in ("use_expln", "full_std") and sheet.take("use_sde") is True:
        what = "deviations of gSDE are exp(log_std), one for each feature and number of an action"
        plain = value is (name == "full_std")
        (sheet.ignored if plain else sheet.differs).append(_line(sheet, name, value, what))
    elif name in _IGNORED:
        sheet.ignored.append(_line(sheet, name, value, _IGNORED[name]))
    else:
        sheet.decide.append(_line(sheet, name, value, "see the keys of `policy`"))


def _optimiser(sheet: Sheet, options: dict[str, object]) -> None:
    chosen = sheet.value("learner.optimizer.name") or "adamw"
    of_adam = {"weight_decay": "weight_decay", "betas": "betas"}
    names = {"eps": "eps"} | (of_adam if chosen == "adamw" else {"alpha": "smoothing"})
    for name, value in options.items():
        ours = names.get(name)
        if ours is None or isinstance(value, Code):
            what = f"learner.optimizer.name: {chosen} has no such option"
            sheet.differs.append(_line(sheet, f"optimizer_kwargs.{name}", value, what))
        else:
            sheet.put(f"learner.optimizer.{ours}", value, "policy_kwargs")


def _layers(sheet: Sheet, arch: object) -> None:
    """``net_arch``: sizes, a mapping of actor and critic, or the list with such a mapping of older versions."""
    shared: list[object] = []
    if isinstance(arch, list) and arch and isinstance(arch[-1], dict):
        shared, arch = arch[:-1], arch[-1]
        if shared:
            what = "layers that actor and critic share come first there: all are the actor's here, and the critic's too"
            sheet.decide.append(_line(sheet, "net_arch", [*shared, arch], what))
    sizes = arch.get("pi", arch.get("qf", arch.get("vf"))) if isinstance(arch, dict) else arch
    whole = [*shared, *sizes] if isinstance(sizes, list) else None
    if whole is None or not all(isinstance(size, int) for size in whole):
        sheet.decide.append(_line(sheet, "net_arch", arch, "its form is not read: see policy.hidden_sizes"))
        return
    sheet.put("policy.hidden_sizes", whole, "policy_kwargs")
    if isinstance(arch, dict) and len({str(size) for size in arch.values()}) > 1:
        what = "actor and critic have the same hidden layers here: those of the actor are taken"
        sheet.differs.append(_line(sheet, "net_arch", arch, what))
