"""A command line's model: its source, how it is loaded, and the arguments for both."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields, replace
from typing import Any

from ..errors import UsageError
from .location import WHERE, Location, is_built_in, is_on_hub, locate
from .quantization import METHODS, check_quantization, quantization_config


def add_model(parser: argparse.ArgumentParser, *, tokenizer: bool = True) -> None:
    """Add the arguments that ``ModelSource.of`` reads.

    Args:
        parser: gets them.
        tokenizer: whether another tokenizer than the model's own may be named.
    """
    parser.add_argument("--model", required=True, metavar="MODEL", help=WHERE)
    if tokenizer:
        add_tokenizer(parser)
    add_revision(parser)
    parser.add_argument("--dtype", default="auto", help="of the weights (%(default)s: as they are stored)")
    parser.add_argument(
        "--device",
        default="auto",
        help="cpu, cuda, cuda:1, mps ... (%(default)s: the GPUs that are there, else the CPU)",
    )
    parser.add_argument(
        "--quantization",
        metavar="NAME",
        help=f"quantize the weights while they load: {', '.join(METHODS)} (default: no)",
    )


def add_tokenizer(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for a tokenizer that is not the model's own."""
    parser.add_argument("--tokenizer", metavar="TOKENIZER", help="Hub id or folder (default: the model's own)")
    parser.add_argument("--tokenizer-revision", metavar="NAME", help="of the Hub repository of --tokenizer (main)")


def add_revision(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for repositories of the Hub."""
    parser.add_argument(
        "--revision", metavar="NAME", help="a branch, a tag or a commit of the model's Hub repository (main)"
    )
    parser.add_argument(
        "--trust-remote-code", action="store_true", help="run the Python code that comes with the model, if it has any"
    )


@dataclass(frozen=True)
class ModelSource:
    """A model, and how it is loaded.

    Args:
        model: a folder, an id on the Hub, or "demo".
        tokenizer: a Hub id or a folder; None means the model's.
        revision: of the model's Hub repository: a branch, a tag or a commit; None is its main branch.
        tokenizer_revision: of the tokenizer's.
        trust_remote_code: whether code that comes with the model may run.
        dtype: of the weights; "auto" keeps the stored one.
        device: a device of torch; "auto" spreads the model over the GPUs that are there, and takes the CPU where there
            is none.
        device_map: spreads the model as transformers' ``device_map`` does, instead of ``device``.
        quantization: a key of ``quantization.METHODS``; None leaves the weights as they are.
    """

    model: str
    tokenizer: str | None = None
    revision: str | None = None
    tokenizer_revision: str | None = None
    trust_remote_code: bool = False
    dtype: str = "auto"
    device: str = "auto"
    device_map: str | None = None
    quantization: str | None = None

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> ModelSource:
        """The source that a command line names.

        Raises:
            UsageError: see ``check``.
        """
        names = {field.name for field in fields(cls)}
        source = cls(**{name: value for name, value in vars(arguments).items() if name in names})
        source.check()
        return source

    def check(self) -> None:
        """See what can be seen without loading anything.

        Raises:
            UsageError: a name that is none, a revision of what has none, a quantization that cannot be used here.
        """
        for name, revision, flag in (
            (self.model, self.revision, "--revision"),
            (self.tokenizer, self.tokenizer_revision, "--tokenizer-revision"),
        ):
            if (name is None or not is_on_hub(name)) and revision is not None:
                raise UsageError(f"{flag} {revision}: only a Hub repository has revisions, and {name!r} is none")
        if self.quantization is not None:
            check_quantization(self.quantization)

    @property
    def is_built_in(self) -> bool:
        """Whether it is the model that comes with the package."""
        return is_built_in(self.model)

    def pinned(self) -> ModelSource:
        """The same with commits as revisions, where it comes from the Hub; errors as ``locate``."""
        tokenizer = None if self.tokenizer is None else locate(self.tokenizer, self.tokenizer_revision).commit
        return replace(self, revision=self.locate().commit, tokenizer_revision=tokenizer)

    def locate(self) -> Location:
        """Where the model's files are; errors as ``locate``."""
        return locate(self.model, self.revision)

    def load(self) -> tuple[Any, Any]:
        """The model, in eval mode and on its device, and its tokenizer.

        Raises:
            UsageError: something of this is not there, or not known.
        """
        from transformers import AutoModelForCausalLM

        return self.load_model(AutoModelForCausalLM), self.load_tokenizer()

    def load_model(self, loader: Any) -> Any:
        """The model alone, loaded by a class of transformers; errors as ``load``."""
        quiet()
        kwargs = {"dtype": self.torch_dtype(), "device_map": self.device_map or self.placement()}
        if self.quantization is not None:
            kwargs["quantization_config"] = quantization_config(self.quantization)
        location = self.locate()
        with location.loading("model"):
            return loader.from_pretrained(
                location.path, revision=location.revision, trust_remote_code=self.trust_remote_code, **kwargs
            ).eval()

    def load_tokenizer(self) -> Any:
        """The tokenizer alone; errors as ``load``."""
        from transformers import AutoTokenizer

        quiet()
        if self.tokenizer is None:
            location = locate(self.model, self.revision, of_tokenizer=True)
        else:
            location = locate(self.tokenizer, self.tokenizer_revision, of_tokenizer=True)
        with location.loading("tokenizer"):
            return AutoTokenizer.from_pretrained(
                location.path, revision=location.revision, trust_remote_code=self.trust_remote_code
            )

    def torch_dtype(self) -> Any:
        """The dtype as ``from_pretrained`` takes it.

        Raises:
            UsageError: torch has none of this name.
        """
        import torch

        if self.dtype == "auto":
            return torch.float32 if self.is_built_in else "auto"  # stored in half precision to be small
        dtype = getattr(torch, self.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise UsageError(f"--dtype {self.dtype}: expected auto, or the name of a dtype of torch, such as bfloat16")
        return dtype

    def placement(self) -> str | int:
        """The device as ``device_map`` takes it.

        Raises:
            UsageError: there is no such device here.
        """
        import torch

        if self.device == "auto":
            if torch.cuda.is_available():
                return "auto"
            accelerator = torch.accelerator.current_accelerator(check_available=True)
            return "cpu" if accelerator is None else accelerator.type
        device = int(self.device) if self.device.isdecimal() else self.device
        try:
            kind = torch.empty(0, device=device).device.type
        except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch built without CUDA asserts
            raise UsageError(f"--device {self.device}: {error}") from error
        if kind == "meta":
            raise UsageError(
                "--device meta: a model that has no weights writes nothing; give a device such as cpu or cuda"
            )
        return device


def quiet() -> None:
    """No progress bar while weights load: stderr is for messages."""
    from transformers.utils import logging

    logging.disable_progress_bar()
