"""Train the demo model of `hf_guided.demo` and its draft twin, on a CPU, from nothing.

    nice -n 5 python -m scripts.train_demo_model --minutes 40 --draft-minutes 20 --threads 2

Writes the tokenizer, both models and `model_card.md` to --out (default: the package itself). The texts are made as
training goes, so no example is seen twice. The learning rate follows the processor time used, not a step count: a
slower machine takes fewer steps and ends worse, and --resume then trains on. Two runs with one seed agree in data, not
in the last bit. Every ten core minutes the weights so far are saved. With --resume --minutes 0 --draft-minutes 0 it
only measures, and writes the model card.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import multiprocessing
import platform
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import llguidance.hf
import llguidance.torch
import torch
import torch.nn.functional as F
import transformers
from llguidance import LLMatcher
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedTokenizerFast,
)

import hf_guided
from hf_guided import demo
from hf_guided.demo import DRAFT_FOLDER, MODEL_FOLDER, TOKENIZER_FOLDER, Example, examples, iter_examples
from scripts.demo_records import UNSTATED_SHARE, Record, class_of, iter_records, records, reshaped_kinds

VOCAB_SIZE = 2048
CONTEXT = 512
PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
IGNORE = -100
POOL = 2048  # examples sorted by length at a time, so that a batch holds little padding
LONGEST = 320  # tokens; the few longer texts are left out
KINDS_SHARE = 0.15  # of the examples: records of the three kinds, whose keys are learned too
RESHAPED_SHARE = 0.1  # texts of the three kinds, asked for by other classes
LAYOUTS: tuple[tuple[float, dict[str, Any]], ...] = (
    (0.76, {}),
    (0.14, {"separators": (",", ":")}),
    (0.06, {"indent": 2}),
    (0.04, {"indent": 4}),
)
SAVE_EVERY = 10 * 60  # seconds of processor time


@dataclass(frozen=True)
class Recipe:
    """One model: its size and how it is trained."""

    folder: str
    hidden: int
    inner: int
    layers: int
    heads: int
    batch: int = 32
    lr: float = 0.02  # of the matrices, under Muon
    lr_rest: float = 0.004  # of embeddings and norms, under AdamW


RECIPES = (
    Recipe(MODEL_FOLDER, hidden=160, inner=432, layers=4, heads=5),
    Recipe(DRAFT_FOLDER, hidden=80, inner=216, layers=3, heads=5),
)


def train_tokenizer(seed: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE in which a word is the same tokens after a quote as after a space.

    Spaces never join a word and every digit stands alone, so copying a value from the text into the record is copying
    tokens. Runs of punctuation do join: `": "` and `", "` are single tokens.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"[\p{L}_]+|\p{N}|\n|[^\p{L}_\p{N}\n]+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    sample = examples(60_000, seed, "train")
    tokenizer.train_from_iterator((text for e in sample for text in (e.prompt, e.answer)), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        padding_side="left",
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def answer_of(tokenizer: PreTrainedTokenizerFast, record: Record, rng: random.Random) -> tuple[list[int], list[int]]:
    """Token ids of a record of any class, and its labels: no loss on keys, which nothing in the prompt tells."""
    [layout] = rng.choices([layout for _, layout in LAYOUTS], [share for share, _ in LAYOUTS])
    text = json.dumps(record.record, default=float, ensure_ascii=False, **layout)
    encoded = tokenizer.backend_tokenizer.encode(text)
    keys = bytearray(len(text))
    for match in re.finditer(r'[{\n ,]"(\w+)":', text):
        keys[match.start(1) : match.end(1)] = b"\1" * (match.end(1) - match.start(1))
    labels = [IGNORE if keys[start] else one for one, (start, _) in zip(encoded.ids, encoded.offsets, strict=True)]
    return encoded.ids, labels


def batches(tokenizer: PreTrainedTokenizerFast, seed: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Make training batches without end.

    Returns:
        (size, length) int64 token ids, and the same with IGNORE wherever no loss is taken: prompt, padding and the
        keys of classes that are not one of the three kinds.
    """
    rng = random.Random(seed)
    kinds, classes, reshaped = iter_examples(seed, "train"), iter_records(seed, "train"), reshaped_kinds(seed, "train")
    encode = tokenizer.backend_tokenizer.encode
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    while True:
        rows: list[tuple[list[int], list[int], list[int]]] = []
        while len(rows) < POOL:
            # Encoded apart, as they meet at run time: a token may not span the end of the prompt.
            kind = rng.random()
            if kind < KINDS_SHARE:
                example = next(kinds)
                prompt, answer = encode(example.prompt).ids, encode(example.answer).ids
                wanted = answer
            else:
                record = next(reshaped if kind < KINDS_SHARE + RESHAPED_SHARE else classes)
                prompt = encode(record.prompt).ids
                answer, wanted = answer_of(tokenizer, record, rng)
            if len(prompt) + len(answer) < LONGEST:
                rows.append((prompt, [*answer, eos], [*wanted, eos]))
        rows.sort(key=lambda row: len(row[0]) + len(row[1]))
        starts = list(range(0, POOL, size))
        rng.shuffle(starts)
        for start in starts:
            part = rows[start : start + size]
            length = max(len(prompt) + len(answer) for prompt, answer, _ in part)
            ids = torch.full((len(part), length), pad)
            labels = torch.full((len(part), length), IGNORE)
            for i, (prompt, answer, wanted) in enumerate(part):
                # Padding stands on the right, where causal attention never looks back at it.
                ids[i, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
                labels[i, len(prompt) : len(prompt) + len(answer)] = torch.tensor(wanted)
            yield ids, labels


def new_model(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Make an untrained model."""
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=recipe.hidden,
        intermediate_size=recipe.inner,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        training={"steps": 0, "core_minutes": 0.0},  # not transformers': kept with the weights for the model card
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return model


def loss_of(model: LlamaForCausalLM, ids: Tensor, labels: Tensor) -> Tensor:
    """Mean cross entropy over the record tokens."""
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state  # (rows, length, hidden)
        wanted = labels[:, 1:] != IGNORE
        logits = F.linear(hidden[wanted], model.lm_head.weight)  # (record tokens, vocab): half the work of all tokens
    return F.cross_entropy(logits.float(), labels[:, 1:][wanted])


def save(model: LlamaForCausalLM, folder: Path) -> None:
    """Write a rounded copy of the weights; the model itself stays as it is."""
    copy.deepcopy(model).half().save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)  # safetensors makes it readable by its owner alone


def train(
    model: LlamaForCausalLM, recipe: Recipe, tokenizer: PreTrainedTokenizerFast, seconds: float, seed: int, folder: Path
) -> None:
    """Train a model for a number of seconds of processor time, and save it.

    `model.config.training` adds up what it has had so far.
    """
    before = model.config.training
    model.set_attn_implementation("eager")  # at these lengths the fused kernel takes half as long again, on a CPU
    ease = 0.75 if before["steps"] else 1.0  # a model that knows something is not shaken as hard
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    rest = [p for name, p in model.named_parameters() if p.ndim == 1 or "layers" not in name]
    optimizers = [
        torch.optim.Muon(matrices, lr=recipe.lr, weight_decay=0.01, adjust_lr_fn="original"),
        torch.optim.AdamW(rest, lr=recipe.lr_rest, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    peaks = [ease * optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    began = reported = saved = time.process_time()
    seen, steps, recent = 0, 0, 0.0
    for ids, labels in batches(tokenizer, seed + before["steps"], recipe.batch):  # texts not seen yet
        now = time.process_time()
        done = (now - began) / seconds
        model.config.training = {
            "steps": before["steps"] + steps,
            "core_minutes": round(before["core_minutes"] + (now - began) / 60, 1),
        }
        if done >= 1:
            break
        if now - saved > SAVE_EVERY:
            saved = now
            save(model, folder)
        scale = min(1.0, done / 0.02) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))
        for optimizer, peak in zip(optimizers, peaks, strict=True):
            optimizer.param_groups[0]["lr"] = peak * scale
        loss = loss_of(model, ids, labels)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        steps += 1
        seen += ids.numel()
        recent = loss.item() if steps == 1 else 0.98 * recent + 0.02 * loss.item()
        if now - reported > 20:
            reported = now
            print(
                f"{recipe.folder} {done:6.1%} step {steps} loss {recent:.4f} {seen / (now - began):.0f} tokens/s",
                flush=True,
            )
    save(model, folder)


class _Guide(LogitsProcessor):  # type: ignore[misc]  # transformers has no types
    """Masks each row by its own schema, with llguidance alone: an oracle that does not need this package's engine."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, schemas: list[dict[str, object]]) -> None:
        ll_tokenizer = llguidance.hf.from_tokenizer(tokenizer, n_vocab=VOCAB_SIZE)
        options = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
        grammars = [LLMatcher.grammar_from_json_schema(schema, defaults=options) for schema in schemas]
        self.matchers = [LLMatcher(ll_tokenizer, grammar) for grammar in grammars]
        self.bitmask = llguidance.torch.allocate_token_bitmask(1, VOCAB_SIZE)
        self.eos_token_id = tokenizer.eos_token_id
        self.started = False

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        scores = scores.clone()
        for row, matcher in enumerate(self.matchers):
            if self.started and not matcher.is_stopped() and not matcher.consume_token(int(input_ids[row, -1])):
                raise RuntimeError(matcher.get_error())
            if matcher.is_stopped():  # the record is whole and nothing may follow
                scores[row] = -torch.inf
                scores[row, self.eos_token_id] = 0.0
                continue
            llguidance.torch.fill_next_token_bitmask(matcher, self.bitmask)
            llguidance.torch.apply_token_bitmask_inplace(scores[row : row + 1], self.bitmask)
        self.started = True
        return scores


@torch.inference_mode()
def write_records(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, held_out: list[Example], *, guided: bool
) -> list[str]:
    """Decode greedily, 64 prompts at a time."""
    outputs: list[str] = []
    for start in range(0, len(held_out), 64):
        part = held_out[start : start + 64]
        batch = tokenizer([e.prompt for e in part], padding=True, return_tensors="pt", return_token_type_ids=False)
        guide = [_Guide(tokenizer, [e.schema for e in part])] if guided else []
        ids = model.generate(**batch, max_new_tokens=120, do_sample=False, logits_processor=LogitsProcessorList(guide))
        outputs += tokenizer.batch_decode(ids[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    return outputs


def exact_match(held_out: list[Example], outputs: list[str]) -> tuple[float, Counter[str], list[str]]:
    """Compare whole records.

    Returns:
        The share of records that are right, wrong values counted by "kind.field", and the outputs that are wrong.
    """
    right, wrong_fields, wrong = 0, Counter[str](), []
    for example, output in zip(held_out, outputs, strict=True):
        try:
            record = json.loads(output)
        except ValueError:
            record = None
        if record == example.record:
            right += 1
            continue
        wrong.append(f"{output}   <-   {example.prompt}")
        if not isinstance(record, dict):
            wrong_fields[f"{example.kind}: no JSON object"] += 1
            continue
        for field, value in example.record.items():
            wrong_fields[f"{example.kind}.{field}"] += record.get(field) != value
    return right / len(held_out), wrong_fields, wrong


def classes_right(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, held_out: list[Record]) -> float:
    """The share of random classes whose instances come out right as a whole, decoded greedily in any layout."""
    classes = [class_of(record.fields) for record in held_out]
    results = hf_guided.generate(
        model,
        tokenizer,
        [record.prompt for record in held_out],
        classes,
        do_sample=False,
        max_new_tokens=256,
        batch_size=16,
        progress=False,
    )
    wanted = [made.model_validate(record.record) for made, record in zip(classes, held_out, strict=True)]
    return sum(result.value == one for result, one in zip(results, wanted, strict=True)) / len(held_out)


def train_and_measure(recipe: Recipe, args: argparse.Namespace) -> str:
    """Train one model, save it, measure what was saved.

    Returns:
        The model's row of the model card.
    """
    torch.set_num_threads(max(1, args.threads // len(RECIPES)))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(args.out / TOKENIZER_FOLDER)
    torch.manual_seed(args.seed)
    if args.resume:
        model = LlamaForCausalLM.from_pretrained(args.out / recipe.folder, dtype=torch.float32)
    else:
        model = new_model(recipe, tokenizer)
    minutes = args.draft_minutes if recipe.folder == DRAFT_FOLDER else args.minutes
    weights = args.out / recipe.folder / "model.safetensors"
    if minutes:
        train(model.train(), recipe, tokenizer, minutes * 60, args.seed, args.out / recipe.folder)
    # Measured from disk: the figures are those of the rounded weights people load.
    model = LlamaForCausalLM.from_pretrained(args.out / recipe.folder, dtype=torch.float32).eval()
    held_out = examples(args.records, args.seed, "held_out")
    columns = [
        f"`{recipe.folder}`",
        f"{sum(p.numel() for p in model.parameters()):,}",
        f"{recipe.layers} x {recipe.hidden}, {recipe.heads} heads",
        f"{weights.stat().st_size / 1e6:.2f} MB",
        f"{model.config.training['core_minutes']:.1f}",
        f"{model.config.training['steps']:,}",
    ]
    columns.append(f"{classes_right(model, tokenizer, records(args.classes, args.seed)):.1%}")
    for guided in (True, False):
        outputs = write_records(model, tokenizer, held_out, guided=guided)
        share, wrong_fields, wrong = exact_match(held_out, outputs)
        columns.append(f"{share:.1%}")
        print(recipe.folder, "guided" if guided else "free", f"{share:.1%}", dict(wrong_fields), *wrong[:5], sep="\n")
    return f"| {' | '.join(columns)} |"


def main() -> None:
    """Train both models side by side, and write the model card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=40.0, help="training time of the model")
    parser.add_argument("--draft-minutes", type=float, default=20.0, help="of the draft, which trains at the same time")
    parser.add_argument("--resume", action="store_true", help="go on from the weights in --out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(demo.__file__).parent)
    parser.add_argument("--threads", type=int, default=2, help="of both models together")
    parser.add_argument("--records", type=int, default=600, help="held-out records to measure on")
    parser.add_argument("--classes", type=int, default=500, help="held-out records of random classes to measure on")
    args = parser.parse_args()

    if not args.resume:
        train_tokenizer(args.seed).save_pretrained(args.out / TOKENIZER_FOLDER)
    # A process each: matrices this small gain little from a second thread, and nothing on a busy machine.
    with ProcessPoolExecutor(len(RECIPES), mp_context=multiprocessing.get_context("spawn")) as pool:
        rows = list(pool.map(train_and_measure, RECIPES, repeat(args)))
    (args.out / "model_card.md").write_text(card(rows, args), encoding="utf-8")


def card(rows: list[str], args: argparse.Namespace) -> str:
    """Write what was measured."""
    table = "\n".join(rows)
    return f"""# The demo model of hf_guided

A toy Llama and a smaller draft twin. They read one short English text and write what it states as one JSON record:
an invoice, a booking or a person, made up by `data.py`, or the fields of any class, made up by
`scripts/demo_records.py`. They know nothing else. They exist so that every example and test of hf_guided runs in
seconds, on a CPU, without a download.

| model | parameters | layers x width | on disk | core minutes | steps | random classes | guided | free |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{table}

Guided and free: the share of {args.records} held-out records of the three kinds that come out right as a whole, decoded
greedily. Guided is masked by llguidance alone, with the record's schema.
Random classes: the share of {args.classes} random Pydantic classes that come out right as a whole, guided by hf_guided,
decoded greedily. A class asks for one to ten fields of a short text in any order: name, e-mail, phone, age, city, date,
amount and currency, yes or no, one of a list, list of names; {UNSTATED_SHARE:.0%} of the classes ask for one more that
the text does not state, and null is right.
Main names never occur in the training texts, and three names in ten are made-up words. Measured on the float16 weights
on disk, loaded as float32.

Trained by `scripts/train_demo_model.py` on a CPU ({platform.machine()}, torch {torch.__version__}, transformers
{transformers.__version__}), one core a model: first on the three kinds alone, and from those weights on with random
classes too. The model's weights were then averaged with those of an earlier generator of texts (0.7 to 0.3), which
makes it better at texts that no generator wrote, and trained for another 20 minutes at a third of the learning rates
or less. Steps and minutes add up all runs. Texts and weights are of this project, under its licence.
"""


if __name__ == "__main__":
    main()
