"""Which kernels are launched with which arguments: the only file that knows how tensors become kernel parameters.

It checks the tensors and launches nothing, so a GPU runs the same list that tests run on the CPU. A tensor stands for
its address, None for a null pointer. The sources are in kernels/guided_bitmask; its C++ side for torch does the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import BitmaskShapeError
from ...vocabulary.bitmask import WORD_BITS
from .lane import DESCRIPTOR_WORDS, WORK_WORDS
from .row_output import RowOutput

THREADS = 256  # GB_THREADS
_UNIT_BYTES, _UNITS_PER_THREAD = 16, 4
_BLOCKS_PER_PROCESSOR = 8  # as many as a multiprocessor holds: 2,048 threads
_MOST_ROWS = 65_535  # blocks in y
_MOST_COLUMNS = 2**31 - 1  # the kernels count them in 32 bits
_SUFFIX = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


class Launch(NamedTuple):
    """One kernel.

    Args:
        kernel: its name.
        grid: blocks in x and y; with 0 of either there is nothing to launch.
        arguments: tensors, 64-bit integers, null pointers; the first is the tensor that changes from call to call.
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
        (*_strided(logits, bitmask), row_slots, alive, work_count),
    )


class TableBuffers(NamedTuple):
    """What the kernels read of the constraints and of the vocabulary; dtypes and shapes as ``_check_tables`` wants.

    Args:
        languages: (languages, 14) int64, the lane's descriptors of the constraints.
        token_bytes: (words,) int64.
        token_start: (tokens,) int32.
        token_length: (tokens,) int32.
        stops: (stops,) int32.
    """

    languages: Tensor
    token_bytes: Tensor
    token_start: Tensor
    token_length: Tensor
    stops: Tensor

    @property
    def vocabulary(self) -> tuple[Tensor | int, ...]:
        """The parameters for the tokens of the vocabulary."""
        return self.token_bytes, self.token_start, self.token_length, len(self.token_start)


class RowBuffers(NamedTuple):
    """What a lane keeps for each row.

    Args:
        tokens: (rows, at least capacity) int64, unit stride in the last dimension.
        length: (rows,) int32, as are all without another shape.
        shadow: (rows, capacity) int32.
        history: (rows, capacity) int32.
        known: (rows,).
        language_of: (rows,).
        start: (rows,).
        limit: (rows,).
        think_until: (rows,).
    """

    tokens: Tensor
    length: Tensor
    shadow: Tensor
    history: Tensor
    known: Tensor
    language_of: Tensor
    start: Tensor
    limit: Tensor
    think_until: Tensor

    @property
    def capacity(self) -> int:
        """Tokens that a row has room for."""
        return self.shadow.shape[-1]


class MaskBuffers(NamedTuple):
    """The masks of a lane, and the list of those that a step has to build.

    Args:
        claims: (pool slots,) int32.
        masks: (pool slots + rows, words) int32.
        state_of: (rows,) int32.
        slot_of: (rows,) int32.
        work: (rows, 4) int32.
        work_count: (1,) int32.
    """

    claims: Tensor
    masks: Tensor
    state_of: Tensor
    slot_of: Tensor
    work: Tensor
    work_count: Tensor


class StepBuffers(NamedTuple):
    """The tensors of a step, in groups."""

    rows: RowBuffers
    tables: TableBuffers
    masks: MaskBuffers

    @classmethod
    def of(cls, buffers: Sequence[Tensor]) -> StepBuffers:
        """The groups of ``Lane.buffers``."""
        rows, tables = len(RowBuffers._fields), len(TableBuffers._fields)
        return cls(
            RowBuffers(*buffers[:rows]),
            TableBuffers(*buffers[rows : rows + tables]),
            MaskBuffers(*buffers[rows + tables :]),
        )


def step_launches(logits: Tensor, buffers: StepBuffers, *, processors: int) -> list[Launch]:
    """Advance, build and apply.

    Args:
        logits: as for ``apply_launch``.
        buffers: of the lane.
        processors: multiprocessors of the GPU.

    Raises:
        BitmaskShapeError: tensors that do not fit together.
    """
    masks = buffers.masks
    _check_step(logits, buffers.rows, masks)
    build = build_launch(masks.work, masks.work_count, buffers.tables, masks.masks, processors=processors)
    apply = apply_launch(logits, masks.masks, masks.slot_of, None, masks.work_count)
    return [_advance_launch(buffers), build, apply]


def _check_step(logits: Tensor, of_rows: RowBuffers, of_masks: MaskBuffers) -> None:
    rows, capacity = logits.shape[0], of_rows.capacity
    _check_rows(
        logits,
        length=of_rows.length,
        known=of_rows.known,
        language_of=of_rows.language_of,
        start=of_rows.start,
        limit=of_rows.limit,
        think_until=of_rows.think_until,
        state_of=of_masks.state_of,
        slot_of=of_masks.slot_of,
    )
    slots = len(of_masks.claims)
    for name, tensor, shape in (
        ("shadow", of_rows.shadow, (rows, capacity)),
        ("history", of_rows.history, (rows, capacity)),
        ("claims", of_masks.claims, (slots,)),
        ("work", of_masks.work, (rows, WORK_WORDS)),
    ):
        _check(name, tensor, torch.int32, shape, logits)
    _check_strided("tokens", of_rows.tokens, torch.int64, (rows, capacity), logits)
    _check_strided("masks", of_masks.masks, torch.int32, (slots + rows, 0), logits)


def _advance_launch(buffers: StepBuffers) -> Launch:
    """Move every row on by its new tokens, and list the masks that are missing."""
    rows, tables, masks = buffers
    parameters = (
        *(rows.tokens, rows.tokens.stride(0), rows.length, rows.capacity, rows.shadow, rows.history, rows.known),
        *(rows.language_of, rows.start, rows.limit, rows.think_until),
        *(tables.languages, *tables.vocabulary, tables.stops, len(tables.stops)),
        *(masks.claims, len(masks.claims), masks.state_of, masks.slot_of, masks.work, masks.work_count),
    )
    return Launch("gb_advance", (1, len(rows.length)), parameters)


def build_launch(work: Tensor, work_count: Tensor, tables: TableBuffers, masks: Tensor, *, processors: int) -> Launch:
    """Make the masks on a list.

    Args:
        work: (at most, 4) int32.
        work_count: (1,) int32, how many of them; read on the device.
        tables: of the lane.
        masks: (slots, words) int32, written.
        processors: multiprocessors of the GPU.

    Raises:
        BitmaskShapeError: tensors that do not fit together.
    """
    _check("work", work, torch.int32, (len(work), WORK_WORDS), masks)
    _check("work_count", work_count, torch.int32, (1,), masks)
    _check_tables(tables, masks)
    _check_strided("masks", masks, torch.int32, (0, 0), masks)
    chunks = -(-masks.shape[1] // (THREADS // WORD_BITS))
    blocks = min(chunks * len(work), processors * _BLOCKS_PER_PROCESSOR)
    parameters = (
        *(work, work_count, tables.languages, *tables.vocabulary, tables.stops, len(tables.stops)),
        *(masks, masks.stride(0), masks.shape[1]),
    )
    return Launch("gb_build", (blocks, 1), parameters)


def _check_tables(tables: TableBuffers, masks: Tensor) -> None:
    tokens = len(tables.token_start)
    for name, dtype, shape in (
        ("languages", torch.int64, (len(tables.languages), DESCRIPTOR_WORDS)),
        ("token_bytes", torch.int64, (len(tables.token_bytes),)),
        ("token_start", torch.int32, (tokens,)),
        ("token_length", torch.int32, (tokens,)),
        ("stops", torch.int32, (len(tables.stops),)),
    ):
        _check(name, getattr(tables, name), dtype, shape, masks)


def sample_launch(
    logits: Tensor,
    bitmask: Tensor,
    row_slots: Tensor | None,
    temperature: Tensor,
    seed: Tensor,
    position: Tensor,
    best: Tensor,
) -> Launch:
    """Find the best token of every part of a row; arguments as for ``sampling.masked_sample``.

    Args:
        logits: as for ``apply_launch``.
        bitmask: as for ``apply_launch``.
        row_slots: (rows,) int32, or None.
        temperature: (rows,) float32.
        seed: (rows,) int64.
        position: (rows,) int32.
        best: (rows, parts) int64, written; each part of a row is searched by a block.

    Raises:
        BitmaskShapeError: tensors that do not fit together.
    """
    suffix = _checked(logits, bitmask, row_slots)
    rows = logits.shape[0]
    parts = max(1, best.shape[-1])
    _check_rows(logits, position=position)
    _check("best", best, torch.int64, (rows, parts), logits)
    _check("temperature", temperature, torch.float32, (rows,), logits)
    _check("seed", seed, torch.int64, (rows,), logits)
    return Launch(
        f"gb_sample_{suffix}",
        (parts, rows),
        (*_strided(logits, bitmask), row_slots, temperature, seed, position, best),
    )


def pick_launch(chosen: Tensor, best: Tensor, output: RowOutput | None = None) -> Launch:
    """Pick every row's token, and append it.

    Args:
        chosen: (rows,) int64, written; -1 where nothing allowed is above -inf.
        best: (rows, parts) int64, of ``sample_launch``.
        output: of these rows; None: the tokens are not appended.

    Raises:
        BitmaskShapeError: tensors that do not fit together.
    """
    rows = len(best)
    _check("chosen", chosen, torch.int64, (rows,), best)
    parameters: tuple[Tensor | int | None, ...] = (None, 0, None, 0, None, None, None, 0, None, 0)
    if output is not None:
        _check_strided("tokens", output.tokens, torch.int64, (rows, output.capacity), best)
        _check("length", output.length, torch.int32, (rows,), best)
        _check("ended", output.ended, torch.bool, (rows,), best)
        _check("last", output.last, torch.int64, (rows, 1), best)
        _check("fallbacks", output.fallbacks, torch.int64, (rows,), best)
        _check("ends", output.ends, torch.int64, (len(output.ends),), best)
        parameters = (
            *(output.tokens, output.tokens.stride(0), output.length, output.capacity, output.ended, output.last),
            *(output.fallbacks, output.pad_token_id, output.ends, len(output.ends)),
        )
    return Launch("gb_pick", (1, rows), (chosen, best, best.shape[1], *parameters))


def sample_parts(rows: int, vocab: int, processors: int) -> int:
    """In how many parts each row is searched: enough to keep the GPU busy, none of them empty."""
    return max(1, min(-(-vocab // THREADS), processors * _BLOCKS_PER_PROCESSOR // max(rows, 1)))


def _strided(logits: Tensor, bitmask: Tensor) -> tuple[Tensor | int, ...]:
    return logits, logits.stride(0), logits.shape[1], bitmask, bitmask.stride(0), bitmask.shape[1]


def _checked(logits: Tensor, bitmask: Tensor, row_slots: Tensor | None) -> str:
    """The suffix of the kernels for these logits."""
    if logits.dtype not in _SUFFIX:
        raise BitmaskShapeError(f"logits: expected float32, float16 or bfloat16, got {logits.dtype}")
    _check_strided("logits", logits, logits.dtype, (logits.shape[0], 0), logits)
    if logits.shape[0] > _MOST_ROWS:
        raise BitmaskShapeError(f"logits: expected at most {_MOST_ROWS} rows, got {logits.shape[0]}")
    if logits.shape[1] > _MOST_COLUMNS:
        raise BitmaskShapeError(f"logits: expected at most {_MOST_COLUMNS} columns, got {logits.shape[1]}")
    _check_strided("bitmask", bitmask, torch.int32, (0, 0), logits)
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
    """A contiguous tensor of this type and shape, on the device of another."""
    if tensor.dtype != dtype or tensor.shape != shape or tensor.device != beside.device or not tensor.is_contiguous():
        raise BitmaskShapeError(
            f"{name}: expected contiguous {dtype} of shape {shape} on {beside.device}, got {tensor.dtype} of shape "
            f"{tuple(tensor.shape)} with strides {tensor.stride()} on {tensor.device}"
        )


def _check_strided(name: str, tensor: Tensor, dtype: torch.dtype, least: tuple[int, int], logits: Tensor) -> None:
    """A matrix of any row stride, with at least this number of rows and columns."""
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
