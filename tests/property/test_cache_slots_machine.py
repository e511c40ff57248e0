"""Whatever blocks run through the slots of a cache, each row's logits are those of a pass over its own tokens alone.

Blocks of any lengths, tokens that are forgotten, rows that are copied and dropped. At the end, each row's keys and
values lie side by side after the prompt.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from hf_guided.hf.compat import CACHE_NAME
from hf_guided.hf.decode.cache_slots import CacheSlots
from hf_guided.hf.decode.call import GenerateCall
from tests.effort import repeats

VOCABULARY, WIDTH, PAD = 23, 16, 0
TOKENS = st.integers(1, VOCABULARY - 1)
MOST_ROWS, MOST_NEW = 4, 24


@cache
def models() -> tuple[PreTrainedModel, ...]:
    """One with positions that are rotated, one with learned ones; in float64, where holes leave no trace."""
    torch.manual_seed(0)
    llama = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        pad_token_id=PAD,
        bos_token_id=None,
        eos_token_id=None,
    )
    gpt2 = GPT2Config(
        vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=2, n_head=2, n_positions=64, bos_token_id=None, eos_token_id=None
    )
    return LlamaForCausalLM(llama).double().eval(), GPT2LMHeadModel(gpt2).double().eval()


def slots_of(model: PreTrainedModel, prompts: list[list[int]]) -> CacheSlots:
    """What generate() makes of these prompts, padded left, before its first pass."""
    length = max(map(len, prompts))
    ids = torch.tensor([[PAD] * (length - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (length - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    made: list[CacheSlots] = []

    def take(
        model: Any,
        input_ids: Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **kwargs: Any,
    ) -> Tensor:
        for name in ("streamer", "synced_gpus"):
            kwargs.pop(name, None)
        call = GenerateCall(model, input_ids, logits_processor, stopping_criteria, generation_config, kwargs)
        made.append(CacheSlots(call, blocks=True))
        return input_ids

    model.generate(ids, attention_mask=mask, custom_generate=take, max_new_tokens=99, pad_token_id=PAD)
    return made[0]


class Slots(RuleBasedStateMachine):
    @initialize(
        number=st.integers(0, 1),
        prompts=st.lists(st.lists(TOKENS, min_size=1, max_size=4), min_size=1, max_size=3),
        data=st.data(),
    )
    def begin(self, number: int, prompts: list[list[int]], data: st.DataObject) -> None:
        self.model = models()[number]
        self.rows = [list(prompt) for prompt in prompts]
        self.prompt_lengths = [len(prompt) for prompt in prompts]
        self.last = [0] * len(prompts)  # tokens of the last block
        self.slots = slots_of(self.model, prompts)
        start: list[list[int]] = []
        if self.slots.prompt_can_grow and (more := data.draw(st.integers(0, 2))):
            start = [data.draw(st.lists(TOKENS, min_size=more, max_size=more)) for _ in prompts]
            self.rows = [row + new for row, new in zip(self.rows, start, strict=True)]
        with torch.no_grad():
            logits = self.slots.prefill(start)
        assert self.slots.holes and self.slots.padding == [
            max(self.prompt_lengths) - length for length in self.prompt_lengths
        ]
        self.check(logits[:, None], [1] * len(prompts))

    def alone(self, row: int) -> Any:
        """The oracle: the row's own tokens in one pass, without a cache, padding or other rows."""
        with torch.no_grad():
            return self.model(torch.tensor([self.rows[row]]), use_cache=True)

    def check(self, logits: Tensor, columns: list[int]) -> None:
        """The last columns of each row, as many as it has tokens in the block."""
        for row, number in enumerate(columns):
            if number:
                expected = self.alone(row).logits[0, -number:].float()
                torch.testing.assert_close(logits[row, logits.shape[1] - number :], expected, rtol=1e-5, atol=1e-5)

    @rule(data=st.data())
    def run(self, data: st.DataObject) -> None:
        if max(map(len, self.rows)) > MOST_NEW:
            return
        blocks = [data.draw(st.lists(TOKENS, max_size=3)) for _ in self.rows]
        if not any(blocks):
            blocks[0] = [data.draw(TOKENS)]
        keep = data.draw(st.integers(1, max(map(len, blocks))))
        with torch.no_grad():
            logits = self.slots.run(blocks, keep)
        self.rows = [row + block for row, block in zip(self.rows, blocks, strict=True)]
        self.last = [len(block) for block in blocks]
        assert logits.shape[:2] == (len(blocks), keep)
        self.check(logits, [min(keep, len(block)) for block in blocks])

    @precondition(lambda self: any(self.last))
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        numbers = [data.draw(st.integers(0, number)) for number in self.last]
        self.slots.forget(numbers)
        self.rows = [row[: len(row) - number] for row, number in zip(self.rows, numbers, strict=True)]
        self.last = [0] * len(self.rows)  # the loop forgets once after a pass

    @rule(data=st.data())
    def select(self, data: st.DataObject) -> None:
        """Copies of rows go on by themselves; the slots that they come from stay as they are."""
        chosen = data.draw(st.lists(st.integers(0, len(self.rows) - 1), min_size=1, max_size=MOST_ROWS))
        twin = self.slots.select(chosen)
        with torch.no_grad():
            twin.run([[1, 2]] * len(chosen))
        self.slots = self.slots.select(chosen)
        self.rows = [list(self.rows[row]) for row in chosen]
        self.prompt_lengths = [self.prompt_lengths[row] for row in chosen]
        self.last = [0] * len(chosen)

    def teardown(self) -> None:
        if not hasattr(self, "slots"):
            return
        new = [len(row) - length for row, length in zip(self.rows, self.prompt_lengths, strict=True)]
        self.slots.close_holes(max(new))
        for row, number in enumerate(new):
            first = self.slots.padding[row]
            for layer, expected in zip(self.slots.cache.layers, self.alone(row)[CACHE_NAME].layers, strict=True):
                taken = slice(first, first + self.prompt_lengths[row] + number)
                torch.testing.assert_close(layer.keys[row, :, taken], expected.keys[0])
                torch.testing.assert_close(layer.values[row, :, taken], expected.values[0])


TestCacheSlots = Slots.TestCase
TestCacheSlots.settings = settings(max_examples=repeats(40, 400), stateful_step_count=8, deadline=None)
