"""Processes that hold parts of one model (tensor parallelism): all run every forward pass, the first of them decides.

Masks, drafts and samples depend on more than the logits: on when a constraint was compiled, on limits of time, on each
process's random numbers. Were every process to decide by itself, one might run a forward pass more than another, which
then waits for ever. So whatever is decided is told.
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
    """The processes of one model. All of them make the same calls, in the same order.

    Args:
        group: of those processes.
        device: of this one's part of the model; messages travel there.
    """

    group: dist.ProcessGroup
    device: torch.device

    @classmethod
    def of(cls, model: Any) -> Ranks | None:
        """Those that hold the parts of a model; None where one process holds it all.

        Args:
            model: a transformers model; anything else is not spread.
        """
        if (getattr(model, "tp_size", None) or 1) == 1 or not (dist.is_available() and dist.is_initialized()):
            return None
        return cls(model._device_mesh["tp"].get_group(), model.device)

    @property
    def first(self) -> bool:
        """Whether this process decides."""
        return dist.get_rank(self.group) == 0

    def tell(self, *message: Any) -> None:
        """The first process's side of ``hear``.

        Args:
            message: what can be pickled.
        """
        self._broadcast([message])

    def hear(self) -> tuple[Any, ...]:
        """Wait for the next message."""
        box: list[Any] = [None]
        self._broadcast(box)
        message: tuple[Any, ...] = box[0]
        return message

    def computed(self, compute: Callable[[], Tensor], like: Tensor) -> Tensor:
        """A tensor that the first process computes. Random numbers go on alike in all of them.

        Args:
            compute: called in the first process.
            like: a tensor of the same shape, dtype and device.

        Raises:
            Exception: what ``compute`` raised, everywhere.
        """
        if not self.first:
            error, state = self.hear()
            if error is not None:
                raise error
            set_random_state(state, like.device)
            found = torch.empty_like(like)
        else:
            try:
                found = compute().contiguous()
            except BaseException as error:
                self.tell(portable(error), None)
                raise
            self.tell(None, random_state(like.device))
        dist.broadcast(found, group_src=0, group=self.group)
        return found

    def agreed(self, do: Callable[[], T], asked: Callable[[T], str]) -> T:
        """What each process does by itself, if it went well in all of them.

        Args:
            do: called in each process.
            asked: what of that has to be the same in all of them, as text.

        Raises:
            Exception: what it raised in the first process that it raised in, everywhere.
            GenerationError: the processes were asked for different things; likewise.
        """
        done: T | None = None
        mine: BaseException | None = None
        told = ""
        try:
            done = do()
            told = hashlib.blake2b(asked(done).encode(errors="surrogatepass")).hexdigest()
        except Exception as error:
            mine = error
        everybodys: list[Any] = [None] * dist.get_world_size(self.group)
        dist.all_gather_object(everybodys, (told, None if mine is None else portable(mine)), group=self.group)
        raised = [error for _, error in everybodys if error is not None]
        if raised:
            raise raised[0] from mine  # the same in all of them, though each may have had one of its own
        if len({told for told, _ in everybodys}) > 1:  # they would wait for each other in the middle
            raise GenerationError(
                "the processes that hold this model were asked for different things; make the same calls, with the "
                "same prompts and constraints, in all of them"
            )
        return done  # type: ignore[return-value]  # it went well

    def _broadcast(self, box: list[Any]) -> None:
        dist.broadcast_object_list(box, group_src=0, group=self.group, device=self.device)


def random_state(device: torch.device) -> Tensor:
    """The state of torch's generator for a device."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def set_random_state(state: Tensor, device: torch.device) -> None:
    """Go on drawing as from this state."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


def portable(error: BaseException) -> BaseException:
    """The error, if it comes back from a pickle as it was, or one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:  # whatever a class raises that does not pickle; the error itself is not lost
        return GenerationError(f"in the process that decides for all: {type(error).__name__}: {error}")
