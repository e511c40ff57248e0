"""TRL's GRPO trainer with a constraint for each row, whose gradient is that of the policy that samples.

A completion is sampled from q, the model's distribution under the mask. TRL's trainer takes it for a sample of p, the
model's distribution over the whole vocabulary. The two policies that can be trained without this error:

    masked  q itself: log probabilities, reference model, KL and entropy are all under the masks. Exactly on-policy.
    free    p: the gradient of each completion is weighted by p / q, as TRL does for vLLM.

The masks of a batch travel through TRL's shuffling and splitting as their numbers in a table, (rows, tokens).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing

from ..constraints.argument_checks import Rule, check
from ..errors import InvalidArgument, UnsupportedModel
from .trl_correction import importance_ratio
from .trl_masks import MaskTable, masked_logprobs
from .trl_rollout import GuidedSampler, RolloutSettings, check_arguments
from .trl_rows import RowConstraints

Policy = Literal["masked", "free"]
_POLICY = Rule("'masked' or 'free'", lambda value: value in ("masked", "free"))
_MASKS = "mask_numbers"  # among the tensors of a batch: (rows, tokens) int64


class GuidedGRPOTrainer(GRPOTrainer):  # type: ignore[misc]  # TRL is not read by the type checker
    """A ``GRPOTrainer`` whose completions are in the format of their constraint, on the backend of transformers.

    Args:
        model: as for ``GRPOTrainer``.
        reward_funcs: as for ``GRPOTrainer``.
        args: as for ``GRPOTrainer``; without vLLM and continuous batching.
        train_dataset: as for ``GRPOTrainer``, with columns "prompt" and ``constraint_column``.
        constraint: of rows without one of their own, in any form that ``hg.generate`` takes; or a function that returns
            the constraint of a prompt, which is a text or a chat. None is free.
        constraint_column: of the data set; may hold a row's own constraint: a JSON Schema or response_format as JSON
            text, or another form that ``hg.generate`` takes. Rows with None or an empty text have ``constraint``.
        policy: what is trained. "masked": the policy that samples, which chooses among the allowed tokens. "free": the
            model without masks, with importance weights as ``args.vllm_importance_sampling_mode``, ``..._clip_min`` and
            ``..._clip_max`` say; without weights if ``args.vllm_importance_sampling_correction`` is False.
        settings: how completions are sampled.
        **kwargs: as for ``GRPOTrainer``, without ``rollout_func``, ``tools`` and ``environment_factory``.

    Raises:
        InvalidArgument: an argument that cannot be used, or a column that is not there.
        HFGuidedError: ``constraint`` cannot be enforced, or not within ``max_completion_length`` tokens. A row's own
            constraint raises when its row is sampled.
    """

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: Any = None,
        train_dataset: Any = None,
        *,
        constraint: Any = None,
        constraint_column: str | None = None,
        policy: Policy = "masked",
        settings: RolloutSettings | None = None,
        **kwargs: Any,
    ):
        check("policy", policy, _POLICY)
        if kwargs.get("rollout_func") is not None:
            raise InvalidArgument("rollout_func: this trainer has its own; leave it out", name="rollout_func")
        if args is not None:
            tools = kwargs.get("tools") or kwargs.get("environment_factory")
            check_arguments(args, kwargs.get("processing_class"), tools)
            if policy == "free" and args.loss_type == "vespo":
                raise InvalidArgument("loss_type: 'vespo' has weights of its own; use policy='masked'")
        self._rows = RowConstraints(constraint, constraint_column)
        self._rows.check_column(getattr(train_dataset, "column_names", None))
        super().__init__(model, reward_funcs, args, train_dataset, **kwargs)
        self._policy = policy
        self._sampler = GuidedSampler(self, settings or RolloutSettings())
        if self._rows.default is not None:
            self._sampler.check(self._rows.default)
        self._masks = MaskTable(self._sampler.vocab_size)
        self._mask_numbers: Tensor | None = None  # (rows, tokens) of the batch whose log probabilities come next
        self._batch: list[Any] = []  # the constraints of the rows that are being sampled
        self.rollout_func = self._rollout  # given to TRL's constructor, it would warn of an experiment

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self._batch = [self._rows.of_row(row) for row in inputs]
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if self._policy == "masked":
            assert self._mask_numbers is not None
            output[_MASKS] = _of_width(self._mask_numbers, output["completion_ids"].shape[1])
        elif self.args.vllm_importance_sampling_correction:
            output["advantages"] = self._weighted(output)
        return output

    def _rollout(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        completions = self._sampler.sample(prompts, self._batch)
        if self._policy == "masked":
            if self.model.training:  # TRL has used up all batches whose masks are in the table
                self._masks = MaskTable(self._sampler.vocab_size)
            numbers = [self._masks.add(bitmask) for bitmask in self._sampler.allowed(completions)]
            self._mask_numbers = pad_sequence(numbers, batch_first=True).to(self.accelerator.device)
        return completions.rollout()

    def _weighted(self, output: dict[str, Any]) -> Tensor:
        """Advantages times importance weights: a weight scales the loss of a token, as in TRL's loss for vLLM.

        Returns:
            (rows, tokens), or (rows, 1) for weights of whole completions.
        """
        policy, ids = output.get("old_per_token_logps"), output["completion_ids"]
        if policy is None:
            with torch.no_grad(), disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
                policy, _, _ = self._get_per_token_logps_and_entropies(
                    self.model,
                    torch.cat([output["prompt_ids"], ids], 1),
                    torch.cat([output["prompt_mask"], output["completion_mask"]], 1),
                    ids.shape[1],
                    batch_size=self.args.per_device_train_batch_size,
                )
        ratio = importance_ratio(policy, output["sampling_per_token_logps"], output["completion_mask"], self.args)
        mode = "train" if self.model.training else "eval"
        weights = ratio if ratio.shape[1] == 1 else ratio[output["completion_mask"].bool()]
        mean = self.accelerator.gather(weights.mean()).mean().item()
        self._metrics[mode]["sampling/importance_sampling_ratio/mean"].append(mean)
        weighted: Tensor = output["advantages"].unsqueeze(1) * ratio
        return weighted

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        self._mask_numbers = inputs.get(_MASKS)
        loss: Tensor = super()._compute_loss(model, inputs)
        return loss

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **media: Any,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        if self._policy == "free":
            result: tuple[Tensor, Tensor | None, Tensor | None] = super()._get_per_token_logps_and_entropies(
                model,
                input_ids,
                attention_mask,
                logits_to_keep,
                batch_size=batch_size,
                compute_entropy=compute_entropy,
                compute_aux_loss=compute_aux_loss,
                **media,
            )
            return result
        if compute_aux_loss:
            raise UnsupportedModel(
                "router_aux_loss_coef: the loss of a mixture's router is not computed under masks; set "
                "router_aux_loss_coef=0.0, or use policy='free'"
            )
        assert self._mask_numbers is not None and len(self._mask_numbers) == len(input_ids)
        numbers = _of_width(self._mask_numbers, logits_to_keep)
        logps, entropies = [], []
        step = batch_size or len(input_ids)
        for first in range(0, len(input_ids), step):
            rows = slice(first, first + step)
            with self.accelerator.autocast():
                logits = model(
                    input_ids=input_ids[rows],
                    attention_mask=attention_mask[rows],
                    logits_to_keep=logits_to_keep + 1,  # a token's logits come from the position before it
                    use_cache=False,
                ).logits[:, -logits_to_keep - 1 : -1]
            logp, entropy = masked_logprobs(
                logits, input_ids[rows, -logits_to_keep:], self._masks.allowed(numbers[rows]), self.temperature
            )
            logps.append(logp)
            entropies.append(entropy)
        return torch.cat(logps), torch.cat(entropies) if compute_entropy else None, None


def _of_width(numbers: Tensor, width: int) -> Tensor:
    """(rows, width): mask 0 for the padding of completions."""
    return pad(numbers, (0, width - numbers.shape[1]))
