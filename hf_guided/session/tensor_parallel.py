"""Processes that hold parts of one model (tensor parallelism): all run every forward pass, rank zero decides.

Masks, drafts and samples depend on more than the logits: on when a constraint was compiled, on time limits, on each
process's random numbers. If every process decided by itself, one could run a forward pass more than another, which
would then wait for ever. So rank zero decides, and broadcasts its decisions.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from ..errors import GenerationError

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """The processes of one model. All of them make the same calls in the same order."""

    group: dist.ProcessGroup
    device: torch.device  # of this process's part of the model; messages are sent over it

    @classmethod
    def of(cls, model: Any) -> Ranks | None:
        """The processes that hold parts of a transformers model; None for other objects, or if one process holds it."""
        if (getattr(model, "tp_size", None) or 1) == 1 or not (dist.is_available() and dist.is_initialized()):
            return None
        return cls(model._device_mesh["tp"].get_group(), model.device)

    @property
    def first(self) -> bool:
        """Whether this process is rank zero, which decides."""
        return dist.get_rank(self.group) == 0

    def broadcast(self, *message: Any) -> None:
        """Send picklable values from rank zero to the others, which call ``receive``."""
        self._broadcast([message])

    def receive(self) -> tuple[Any, ...]:
        """Wait for rank zero's next message."""
        box: list[Any] = [None]
        self._broadcast(box)
        message: tuple[Any, ...] = box[0]
        return message

    def computed(self, compute: Callable[[], Tensor], like: Tensor) -> Tensor:
        """A tensor that rank zero computes. All processes then continue with the same random state.

        ``like`` has its shape, dtype and device. An error of ``compute`` is raised in all processes.
        """
        if not self.first:
            error, state = self.receive()
            if error is not None:
                raise error
            set_random_state(state, like.device)
            result = torch.empty_like(like)
        else:
            try:
                result = compute().contiguous()
            except BaseException as error:
                self.broadcast(portable(error), None)
                raise
            self.broadcast(None, random_state(like.device))
        dist.broadcast(result, group_src=0, group=self.group)
        return result

    def agreed(self, do: Callable[[], T], fingerprint: Callable[[T], str]) -> T:
        """The result of ``do`` in this process, if it succeeded in all, with results of the same ``fingerprint``.

        Raises:
            Exception: the error of the first process in which ``do`` failed; raised in all processes.
            GenerationError: the processes were called with different arguments; raised in all processes.
        """
        result: T | None = None
        own_error: BaseException | None = None
        digest = ""
        try:
            result = do()
            digest = hashlib.blake2b(fingerprint(result).encode(errors="surrogatepass")).hexdigest()
        except Exception as error:
            own_error = error
        outcomes: list[Any] = [None] * dist.get_world_size(self.group)
        outcome = digest, None if own_error is None else portable(own_error)
        dist.all_gather_object(outcomes, outcome, group=self.group)
        errors = [error for _, error in outcomes if error is not None]
        if errors:
            raise errors[0] from own_error  # the same in all processes, even if several failed differently
        if len({digest for digest, _ in outcomes}) > 1:  # such processes would later wait for each other for ever
            raise GenerationError(
                "the processes that hold this model were called with different arguments; make the same calls, with "
                "the same prompts and constraints, in all of them"
            )
        return result  # type: ignore[return-value]  # ``do`` succeeded

    def _broadcast(self, box: list[Any]) -> None:
        dist.broadcast_object_list(box, group_src=0, group=self.group, device=self.device)


def random_state(device: torch.device) -> Tensor:
    """The state of torch's generator for a device."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def set_random_state(state: Tensor, device: torch.device) -> None:
    """Set the state of torch's generator for a device."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


def portable(error: BaseException) -> BaseException:
    """The error, if it survives pickling; else a GenerationError with the same text."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:  # a class may raise any error while pickling; the message is kept
        return GenerationError(f"in the process that decides for all: {type(error).__name__}: {error}")
