"""A bounded table of masks that stay where scores are masked, so that a step sends one number for each row.

Masks are known by the keys of engines (``MaskedEngine.mask_key``). Those with equal content share one row of the table,
also over constraints. The row that was used least recently goes, unless masks that are not applied yet name it.

All of a table's copies and kernels run in one order, also if callers use several streams: so a row is never written
before the last kernel that reads it, nor read before it is written. Pinned host memory is not written before its copy
is done.

Ctrl-C may interrupt any line here, and the table is used again: at each line, a mask that can be found is in its row.
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InvalidArgument, cause
from ..options import LoopOptions
from ..vocabulary.bitmask import words
from .row import Key
from .transfers import StreamOrder

Words = NDArray[np.int32]
_MOST_KEYS = 64  # most keys of one row of the table: an engine that has forgotten its masks never uses their keys again


@dataclass
class _Row:
    """The content of a row of the table, and who uses it."""

    content: bytes = b""  # the hash of its mask; empty until the mask is there
    users: int = 0  # masks that name it and are not applied yet
    is_sent: bool = False
    copied: Any = None  # the event after its copy to a GPU
    keys: list[Key] = field(default_factory=list)  # the newest last


class Lease:
    """Rows of a table that must stay, until this object is deleted."""

    def __init__(self, table: MaskTable):
        self.table = table
        self.rows: list[_Row] = []
        self.host = table.host  # also after a fork, where the table starts empty

    def __del__(self) -> None:
        with self.table._lock:
            for row in self.rows:
                row.users -= 1


class MaskTable:
    """Rows of masks on one device, and the same rows on the host. Thread safe.

    Args:
        vocab_size: tokens of each mask (the padded vocab size).
        max_bytes: of the rows, on the device and on the host each.
        device: where scores are masked.
    """

    def __init__(self, vocab_size: int, max_bytes: int, device: torch.device):
        self.device = device
        self.sent_bytes = 0
        self._num_rows = max_bytes // (4 * words(vocab_size))
        self._vocab_size = vocab_size
        self._clear()
        _tables.add(self)

    def _clear(self) -> None:
        """Forget all rows. Masks that name some keep the memory that they were in."""
        self._lock = threading.RLock()  # entered again where the deletion of a lease interrupts its holder
        self._rows: OrderedDict[int, _Row] = OrderedDict()  # the least recently used first
        self._by_key: dict[Key, int] = {}
        self._by_content: dict[bytes, int] = {}
        self._host: Words | None = None  # (rows, words)
        self._pinned: Tensor | None = None  # its memory, pinned for a GPU
        self._on_device: Tensor | None = None
        self._order: StreamOrder | None = None

    @property
    def host(self) -> Words:
        """(rows, words) int32; read only."""
        with self._lock:
            if self._host is None:
                shape, on_gpu = (self._num_rows, words(self._vocab_size)), self.device.type == "cuda"
                try:
                    self._pinned = torch.empty(shape, dtype=torch.int32, device="cpu", pin_memory=on_gpu)
                except Exception as error:
                    raise InvalidArgument(
                        f"expected memory for {4 * shape[0] * shape[1]} bytes of masks that stay, got {cause(error)}; "
                        "set HF_GUIDED_MASK_TABLE_BYTES to less, or to 0 for none"
                    ) from error
                self._host = self._pinned.numpy()
            return self._host

    def slots(self, keys: Sequence[Key | None], lease: Lease) -> list[int | None]:
        """The slots of the masks with these keys, whose rows the lease keeps; None for those that are in no table."""
        slots: list[int | None] = []
        with self._lock:
            for key in keys:
                slot = None if key is None else self._by_key.get(key)
                slots.append(None if slot is None else self._leased(slot, lease))
        return slots

    def _leased(self, slot: int, lease: Lease) -> int:
        row = self._rows[slot]
        self._rows.move_to_end(slot)
        row.users += 1
        lease.rows.append(row)
        return slot

    def add(self, key: Key, mask: Words, lease: Lease) -> int | None:
        """Take a mask, (words,) int32 with the stop tokens, into a slot that the lease keeps; None: no room."""
        content = hashlib.blake2b(mask.data, digest_size=16).digest()
        with self._lock:
            slot = self._by_content.get(content)
            if slot is None:
                slot = self._free_slot()
                if slot is None:
                    return None
                self.host[slot] = mask
                self._rows[slot].content = content
                self._by_content[content] = slot
            if key not in self._by_key:
                keys = self._rows[slot].keys
                keys.append(key)
                self._by_key[key] = slot
                if len(keys) > _MOST_KEYS:
                    self._by_key.pop(keys.pop(0), None)
            return self._leased(slot, lease)

    def _free_slot(self) -> int | None:
        slot = len(self._rows)
        if slot == self._num_rows:
            unused = next(((slot, row) for slot, row in self._rows.items() if not row.users), None)
            if unused is None:
                return None
            slot, row = unused
            if row.copied is not None:
                row.copied.synchronize()
            for key in row.keys:
                self._by_key.pop(key, None)
            self._by_content.pop(row.content, None)
        self._rows[slot] = _Row()
        return slot

    @contextmanager
    def on_device(self, slots: Sequence[int]) -> Iterator[Tensor]:
        """The table on its device, (rows, words) int32, for a kernel that is queued in this context.

        The rows of these slots, which are leased, are there.

        Streams: sends the rows that are new to the device on the current stream; the host does not wait for a GPU.
        """
        with self._lock:
            if self._on_device is None:
                self._order = StreamOrder(self.device) if self.device.type == "cuda" else None
                self._on_device = torch.empty(self.host.shape, dtype=torch.int32, device=self.device)
            assert self._pinned is not None, "a slot is in the table, which has made its memory"
            order = self._order
            if order is not None:
                order.enter()
            new = [slot for slot in dict.fromkeys(slots) if not self._rows[slot].is_sent]
            try:
                for slot in new:  # other devices copy late too, but have no event here to wait for
                    self._on_device[slot].copy_(self._pinned[slot], non_blocking=order is not None)
                    self._rows[slot].is_sent = True
                self.sent_bytes += 4 * self.host.shape[1] * len(new)
                yield self._on_device
            finally:  # the copies are queued also if the kernel is not: out of memory, Ctrl-C
                if order is not None:
                    done = order.leave()
                    for slot in new:
                        self._rows[slot].copied = done

    def send(self, slots: Sequence[int]) -> None:
        """As ``on_device``, for kernels that may run on any stream: the host waits until the rows are there."""
        with self.on_device(slots):
            pass
        for copied in {self._rows[slot].copied for slot in slots} - {None}:
            copied.synchronize()


class MaskTables:
    """The tables of one vocabulary, by device; for ``max_bytes`` None reads the environment, 0 makes no tables."""

    def __init__(self, vocab_size: int, max_bytes: int | None = None):
        self._vocab_size = vocab_size
        self._max_bytes = LoopOptions.from_env().mask_table_bytes if max_bytes is None else max_bytes
        self._tables: dict[torch.device, MaskTable] = {}  # without a lock, which a fork may leave held

    def of(self, device: torch.device) -> MaskTable | None:
        """The table of a device; None if not one row fits."""
        table = self._tables.get(device)
        if table is None:  # of two threads, one makes a table that neither uses: it has no memory yet
            table = self._tables.setdefault(device, MaskTable(self._vocab_size, self._max_bytes, device))
        return table if table._num_rows else None


_tables: weakref.WeakSet[MaskTable] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # Another thread of the parent may have held a lock, and no CUDA memory comes along.
    for table in list(_tables):
        table._clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
