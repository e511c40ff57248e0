"""GRPO with TRL, where every completion has the format of its constraint.

trainer = GuidedGRPOTrainer(model, reward, args, rows, processing_class=tokenizer, constraint=Person)
trainer = GRPOTrainer(model, reward, args, rows, processing_class=tokenizer, rollout_func=guided_rollout(Person))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .trl_rollout import GuidedSampler, RolloutSettings
from .trl_rows import RowConstraints
from .trl_trainer import GuidedGRPOTrainer

__all__ = ["GuidedGRPOTrainer", "RolloutSettings", "guided_rollout"]


def guided_rollout(
    constraint: Any, settings: RolloutSettings | None = None
) -> Callable[[Sequence[Any], Any], dict[str, Any]]:
    """A ``rollout_func`` for TRL's ``GRPOTrainer``.

    The trainer then computes its gradient as if the completions were free: use it where the model writes the format
    by itself nearly always, and ``GuidedGRPOTrainer`` elsewhere.

    Args:
        constraint: of all completions, in any form that ``hg.generate`` takes; or a function that returns the
            constraint of a prompt, which is a text or a chat.
        settings: how completions are sampled.

    Returns:
        A function of the prompts and the trainer, which calls it. It returns one completion for each prompt, in order:
        "prompt_ids", "completion_ids" (up to and including the stop token), and "logprobs", the natural logarithms of
        the probabilities with which the tokens were sampled. TRL uses these only in ``off_policy_mask_threshold``.

    Raises:
        InvalidConstraint: the constraint is malformed.
        HFGuidedError: by the function that is returned: the constraint cannot be enforced, or the trainer samples in
            another way (vLLM, tools ...).
    """
    rows, settings = RowConstraints(constraint), settings or RolloutSettings()

    def rollout(prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        completions = GuidedSampler(trainer, settings).sample(prompts, [rows.of_prompt(prompt) for prompt in prompts])
        return completions.rollout()

    return rollout
