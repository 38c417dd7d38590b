"""What a vision-language model refuses, in a sentence before anything starts."""

from pathlib import Path

import pytest
from config_cases import mistakes

from rlinf.config import load

RECIPE = Path(__file__).parents[3] / "config" / "vision" / "shapes.yaml"
REFUSED = {
    "learner.backend=megatron": "learner.backend: megatron has no vision tower",
    "teacher.path=some/model": "teacher.path: a teacher reads text alone",
    "policy.architecture.model_type=gemma3": "attend to each other in both directions",
}


@pytest.mark.parametrize("override", sorted(REFUSED))
def test_what_reads_no_pictures_is_refused(override: str) -> None:
    assert REFUSED[override] in mistakes(RECIPE, override)


def test_the_recipe_is_sound() -> None:
    assert load(RECIPE).facts.text_only_parts == []


def test_keys_of_pictures_are_read_by_no_model_of_text() -> None:
    found = mistakes(RECIPE.parents[1] / "math" / "quickstart.yaml", "policy.vision.max_pixels=1000")
    assert "policy.vision.max_pixels" in found
    assert "the policy is no vision-language model" in found
