"""What is launched with which arguments: the one place that knows how tensors become the kernels' parameters.

It checks the tensors and launches nothing, so what runs on a GPU is the same list that tests run on the CPU. A tensor
stands for its address, None for a null pointer. The sources are in kernels/guided_bitmask; its C++ side for torch
does the same.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import BitmaskShapeError
from ...vocabulary.bitmask import WORD_BITS
from .lane import DESCRIPTOR_WORDS, WORK_WORDS

THREADS = 256  # GB_THREADS
_UNIT_BYTES, _UNITS_PER_THREAD = 16, 4
_BLOCKS_PER_PROCESSOR = 8  # all that a multiprocessor holds: 2,048 threads
_MOST_ROWS = 65_535  # blocks in y
_SUFFIX = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


class Launch(NamedTuple):
    """One kernel.

    Args:
        kernel: its name.
        grid: blocks in x and y; with none of either there is nothing to launch.
        arguments: tensors, numbers of 64 bits, null pointers.
    """

    kernel: str
    grid: tuple[int, int]
    arguments: tuple[Tensor | int | None, ...]


def apply_launch(
    logits: Tensor,
    bitmask: Tensor,
    row_slots: Tensor | None = None,
    alive: Tensor | None = None,
    work_count: Tensor | None = None,
) -> Launch:
    """Write -inf over what the masks forbid; arguments as for ``reference.apply_slots_``.

    Args:
        logits: (rows, vocab) float32 | float16 | bfloat16, unit stride in the last dimension.
        bitmask: (slots, words) int32, unit stride in the last dimension.
        row_slots: (rows,) int32, or None.
        alive: (rows,) int32, or None.
        work_count: (1,) int32, zeroed; or None.

    Raises:
        BitmaskShapeError: tensors that do not fit together.
    """
    suffix = _checked(logits, bitmask, row_slots)
    _check_rows(logits, alive=alive)
    units = 2 + logits.shape[1] * logits.element_size() // _UNIT_BYTES
    blocks = -(-units // (THREADS * _UNITS_PER_THREAD))
    return Launch(
        f"gb_apply_{suffix}",
        (blocks, logits.shape[0]),
        (*_lines(logits, bitmask), row_slots, alive, work_count),
    )


def step_launches(
    logits: Tensor,
    tokens: Tensor,
    length: Tensor,
    shadow: Tensor,
    history: Tensor,
    known: Tensor,
    language_of: Tensor,
    start: Tensor,
    limit: Tensor,
    languages: Tensor,
    token_bytes: Tensor,
    token_start: Tensor,
    token_length: Tensor,
    stops: Tensor,
    claims: Tensor,
    masks: Tensor,
    state_of: Tensor,
    slot_of: Tensor,
    work: Tensor,
    work_count: Tensor,
    alive: Tensor | None = None,
    *,
    processors: int,
) -> list[Launch]:
    """Advance, build and apply.

    Args:
        logits: as for ``apply_launch``.
        tokens: (rows, at least capacity) int64, unit stride in the last dimension.
        length: this and what follows are a ``Lane``'s, in the order of ``Lane.buffers``.
        shadow: (rows, capacity).
        history: (rows, capacity).
        known: (rows,).
        language_of: (rows,).
        start: (rows,).
        limit: (rows,).
        languages: (languages, 9), the lane's descriptors.
        token_bytes: (words,).
        token_start: (tokens,).
        token_length: (tokens,).
        stops: (stops,).
        claims: (pool slots,).
        masks: (pool slots + rows, words).
        state_of: (rows,).
        slot_of: (rows,).
        work: (rows, 4).
        work_count: (1,).
        alive: (rows,) int32, or None.
        processors: multiprocessors of the GPU.

    Raises:
        BitmaskShapeError: tensors that do not fit together.
    """
    rows, capacity = logits.shape[0], shadow.shape[-1]
    _check_rows(
        logits,
        length=length,
        known=known,
        language_of=language_of,
        start=start,
        limit=limit,
        state_of=state_of,
        slot_of=slot_of,
    )
    for name, tensor, shape in (
        ("shadow", shadow, (rows, capacity)),
        ("history", history, (rows, capacity)),
        ("claims", claims, (len(claims),)),
        ("work", work, (rows, WORK_WORDS)),
    ):
        _check(name, tensor, torch.int32, shape, logits)
    _check_lines("tokens", tokens, torch.int64, (rows, capacity), logits)
    _check_lines("masks", masks, torch.int32, (len(claims) + rows, 0), logits)
    vocabulary = token_bytes, token_start, token_length, stops
    build = build_launch(work, work_count, languages, *vocabulary, masks, processors=processors)
    advance = (
        *(tokens, tokens.stride(0), length, capacity, shadow, history, known, language_of, start, limit, languages),
        *(token_bytes, token_start, token_length, len(token_start), stops, len(stops)),
        *(claims, len(claims), state_of, slot_of, work, work_count),
    )
    return [Launch("gb_advance", (1, rows), advance), build, apply_launch(logits, masks, slot_of, alive, work_count)]


def build_launch(
    work: Tensor,
    work_count: Tensor,
    languages: Tensor,
    token_bytes: Tensor,
    token_start: Tensor,
    token_length: Tensor,
    stops: Tensor,
    masks: Tensor,
    *,
    processors: int,
) -> Launch:
    """Make the masks on a list.

    Args:
        work: (at most, 4) int32.
        work_count: (1,) int32, how many of them; read on the device.
        languages: this and what follows as for ``step_launches``.
        token_bytes: (words,).
        token_start: (tokens,).
        token_length: (tokens,).
        stops: (stops,).
        masks: (slots, words) int32, written.
        processors: multiprocessors of the GPU.

    Raises:
        BitmaskShapeError: tensors that do not fit together.
    """
    for name, tensor, dtype, shape in (
        ("work", work, torch.int32, (len(work), WORK_WORDS)),
        ("work_count", work_count, torch.int32, (1,)),
        ("languages", languages, torch.int64, (len(languages), DESCRIPTOR_WORDS)),
        ("token_bytes", token_bytes, torch.int64, (len(token_bytes),)),
        ("token_start", token_start, torch.int32, (len(token_start),)),
        ("token_length", token_length, torch.int32, (len(token_start),)),
        ("stops", stops, torch.int32, (len(stops),)),
    ):
        _check(name, tensor, dtype, shape, masks)
    _check_lines("masks", masks, torch.int32, (0, 0), masks)
    chunks = -(-masks.shape[1] // (THREADS // WORD_BITS))
    blocks = min(chunks * len(work), processors * _BLOCKS_PER_PROCESSOR)
    return Launch(
        "gb_build",
        (blocks, 1),
        (
            *(work, work_count, languages, token_bytes, token_start, token_length, len(token_start)),
            *(stops, len(stops), masks, masks.stride(0), masks.shape[1]),
        ),
    )


def sample_launches(
    next_tokens: Tensor,
    best: Tensor,
    logits: Tensor,
    bitmask: Tensor,
    row_slots: Tensor | None,
    temperature: Tensor,
    seed: Tensor,
    position: Tensor,
) -> list[Launch]:
    """Pick every row's next token; arguments as for ``sampling.masked_sample``.

    Args:
        next_tokens: (rows,) int64, written.
        best: (rows, parts) int64, written; each part of a row is searched by a block.
        logits: as for ``apply_launch``.
        bitmask: as for ``apply_launch``.
        row_slots: (rows,) int32, or None.
        temperature: (rows,) float32.
        seed: (rows,) int64.
        position: (rows,) int32.

    Raises:
        BitmaskShapeError: tensors that do not fit together.
    """
    suffix = _checked(logits, bitmask, row_slots)
    rows = logits.shape[0]
    parts = max(1, best.shape[-1])
    _check_rows(logits, position=position)
    _check("next_tokens", next_tokens, torch.int64, (rows,), logits)
    _check("best", best, torch.int64, (rows, parts), logits)
    _check("temperature", temperature, torch.float32, (rows,), logits)
    _check("seed", seed, torch.int64, (rows,), logits)
    return [
        Launch(
            f"gb_sample_{suffix}",
            (parts, rows),
            (*_lines(logits, bitmask), row_slots, temperature, seed, position, best),
        ),
        Launch("gb_pick", (1, rows), (best, parts, next_tokens)),
    ]


def sample_parts(rows: int, vocab: int, processors: int) -> int:
    """In how many parts to search each row: enough to keep the GPU busy, none of them empty."""
    return max(1, min(-(-vocab // THREADS), processors * _BLOCKS_PER_PROCESSOR // max(rows, 1)))


def _lines(logits: Tensor, bitmask: Tensor) -> tuple[Tensor | int, ...]:
    return logits, logits.stride(0), logits.shape[1], bitmask, bitmask.stride(0), bitmask.shape[1]


def _checked(logits: Tensor, bitmask: Tensor, row_slots: Tensor | None) -> str:
    """What kernels for these logits are called."""
    if logits.dtype not in _SUFFIX:
        raise BitmaskShapeError(f"logits: expected float32, float16 or bfloat16, got {logits.dtype}")
    _check_lines("logits", logits, logits.dtype, (logits.shape[0], 0), logits)
    if logits.shape[0] > _MOST_ROWS:
        raise BitmaskShapeError(f"logits: expected at most {_MOST_ROWS} rows, got {logits.shape[0]}")
    _check_lines("bitmask", bitmask, torch.int32, (0, 0), logits)
    if row_slots is None and len(bitmask) < len(logits):
        raise BitmaskShapeError(
            f"bitmask: expected {len(logits)} rows, one for each row of the logits, got {len(bitmask)}; pass row_slots"
        )
    _check_rows(logits, row_slots=row_slots)
    return _SUFFIX[logits.dtype]


def _check_rows(logits: Tensor, **tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None:
            _check(name, tensor, torch.int32, (logits.shape[0],), logits)


def _check(name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...], beside: Tensor) -> None:
    """A contiguous tensor of this type and shape, where another is."""
    if tensor.dtype != dtype or tensor.shape != shape or tensor.device != beside.device or not tensor.is_contiguous():
        raise BitmaskShapeError(
            f"{name}: expected contiguous {dtype} of shape {shape} on {beside.device}, got {tensor.dtype} of shape "
            f"{tuple(tensor.shape)} with strides {tensor.stride()} on {tensor.device}"
        )


def _check_lines(name: str, tensor: Tensor, dtype: torch.dtype, least: tuple[int, int], logits: Tensor) -> None:
    """Lines of any stride, at least so many and so long."""
    fits = tensor.dim() == 2 and tensor.shape[0] >= least[0] and tensor.shape[1] >= least[1]
    if (
        not fits
        or tensor.dtype != dtype
        or tensor.device != logits.device
        or (tensor.shape[1] > 1 and tensor.stride(1) != 1)
    ):
        raise BitmaskShapeError(
            f"{name}: expected {dtype} of at least {least}, unit stride in the last dimension, on {logits.device}, got "
            f"{tensor.dtype} of shape {tuple(tensor.shape)} with strides {tensor.stride()} on {tensor.device}"
        )
