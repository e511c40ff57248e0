"""GRPO with TRL, where every completion has the format of its constraint.

trainer = GuidedGRPOTrainer(model, reward, args, rows, processing_class=tokenizer, constraint=Person)
trainer = GRPOTrainer(model, reward, args, rows, processing_class=tokenizer, rollout_func=guided_rollout(Person))

A completion is sampled from q, the model's distribution under the mask. TRL's trainer takes it for a sample of p, the
model's distribution over the whole vocabulary. The two policies that can be trained without this error:

    masked  q itself: log probabilities, reference model, KL and entropy are all under the masks. Exactly on-policy.
    free    p: the gradient of each completion is weighted by p / q, as TRL does for vLLM.

The masks of a batch travel through TRL's shuffling and splitting as their numbers in a table, (rows, tokens).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing

from ..constraints.argument_checks import Rule, check
from ..errors import InvalidArgument, UnsupportedModel
from ..vocabulary.bitmask import allocate_bitmask, unpack
from .trl_sampling import GuidedSampler, RolloutSettings, RowConstraints, check_arguments

__all__ = ["GuidedGRPOTrainer", "RolloutSettings", "guided_rollout"]

Policy = Literal["masked", "free"]
_POLICY = Rule("'masked' or 'free'", lambda value: value in ("masked", "free"))
_MASKS = "mask_numbers"  # among the tensors of a batch: (rows, tokens) int64


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
        self._masks = DistinctMasks(self._sampler.vocab_size)
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
                self._masks = DistinctMasks(self._sampler.vocab_size)
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


class DistinctMasks:
    """The distinct masks of some completions: a constraint has far fewer masks than completions have tokens.

    Mask 0 allows every token; padding has it.

    Args:
        vocab_size: columns of the logits.
    """

    def __init__(self, vocab_size: int):
        self._vocab_size = vocab_size
        everything = allocate_bitmask(1, vocab_size)
        self._masks = [everything]
        self._numbers = {everything.numpy().tobytes(): 0}

    def add(self, bitmask: Tensor) -> Tensor:
        """Add masks.

        Args:
            bitmask: (tokens, words) int32 on CPU.

        Returns:
            (tokens,) int64: the number of each mask.
        """
        numbers = []
        for mask in bitmask:
            number = self._numbers.setdefault(mask.numpy().tobytes(), len(self._masks))
            if number == len(self._masks):
                self._masks.append(mask[None].clone())
            numbers.append(number)
        return torch.tensor(numbers, dtype=torch.int64)

    def allowed(self, numbers: Tensor) -> Tensor:
        """Masks by their numbers.

        Args:
            numbers: (rows, tokens) int64, any device.

        Returns:
            (rows, tokens, vocab) bool on the same device.
        """
        distinct, place = torch.unique(numbers, return_inverse=True)
        bitmask = torch.cat([self._masks[number] for number in distinct.tolist()])
        return unpack(bitmask.to(numbers.device), self._vocab_size)[place]


def masked_logprobs(logits: Tensor, token_ids: Tensor, allowed: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log probabilities and entropies of the policy that samples these logits under a mask.

    Args:
        logits: (rows, tokens, vocab) floating point, any device: the model's own.
        token_ids: (rows, tokens) int64, the tokens that were chosen.
        allowed: (rows, tokens, vocab) bool, the tokens that could be chosen.
        temperature: by which logits are divided.

    Returns:
        Two of (rows, tokens), float32 or wider: the natural logarithm of the probability of each token, which is -inf
        for a token that is not allowed; and the entropy, in nats, of the distribution that it was sampled from.
    """
    wide = logits if logits.dtype == torch.float64 else logits.float()
    log_p = (wide / temperature).masked_fill(~allowed, -torch.inf).log_softmax(-1)
    entropy = -(log_p.exp() * log_p.masked_fill(~allowed, 0)).sum(-1)
    return log_p.gather(-1, token_ids.unsqueeze(-1)).squeeze(-1), entropy


def importance_ratio(policy: Tensor, sampled: Tensor, mask: Tensor, args: Any) -> Tensor:
    """Ratio of the probabilities that policy and sampler give to a completion, as TRL computes it for vLLM.

    A mask only ever raises the probability of the tokens that it allows. So without top-k and the like, no ratio is
    above 1. It is the probability that the free policy gives to all allowed tokens together: at each token, or
    multiplied over the completion.

    Args:
        policy: (rows, tokens), the natural logarithms of the policy's probabilities, without gradient.
        sampled: (rows, tokens), those with which the tokens were sampled.
        mask: (rows, tokens), 1 for the tokens of a completion, 0 for padding.
        args: a ``GRPOConfig``: its ``vllm_importance_sampling_mode``, ``..._clip_min`` and ``..._clip_max``.

    Returns:
        (rows, tokens), or (rows, 1) for the modes of sequences.
    """
    level, _, treatment = args.vllm_importance_sampling_mode.partition("_")
    if level not in ("token", "sequence") or treatment not in ("truncate", "mask"):
        raise InvalidArgument(
            "vllm_importance_sampling_mode: expected token_truncate, token_mask, sequence_truncate or sequence_mask, "
            f"got {args.vllm_importance_sampling_mode!r}",
            name="vllm_importance_sampling_mode",
        )
    difference = (policy - sampled) * mask
    ratio = (difference.sum(-1, keepdim=True) if level == "sequence" else difference).exp()
    least, most = args.vllm_importance_sampling_clip_min, args.vllm_importance_sampling_clip_max
    least, most = 0.0 if least is None else least, torch.inf if most is None else most
    if treatment == "truncate":
        return ratio.clamp(least, most)
    return ratio.masked_fill((ratio < least) | (ratio > most), 0.0)
