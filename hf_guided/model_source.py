"""Where a command line's model comes from: a folder, the Hub or its local cache, or this package."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from .arguments import Mistake
from .quantization import METHODS, check_quantization, quantization_config

BUILT_IN = "demo"  # the name of the model that comes with the package
WHERE = f"a folder with a saved model, an id on the Hugging Face Hub, or '{BUILT_IN}'"

# As `huggingface_hub.utils.validate_repo_id` has it, whose import would take a second.
_HUB_ID = re.compile(r"(?!.*(?:--|\.\.|\.git$))(?:\b[\w\-.]{1,96}\b/)?\b[\w\-.]{1,96}\b", re.ASCII)


def add_model(parser: argparse.ArgumentParser, *, positional: bool = False) -> None:
    """Add the arguments that ``ModelSource.of`` reads.

    Args:
        parser: gets them.
        positional: the model without a flag, and always with its own tokenizer.
    """
    if positional:
        parser.add_argument("model", metavar="MODEL", help=WHERE)
    else:
        parser.add_argument("--model", required=True, metavar="MODEL", help=WHERE)
        parser.add_argument("--tokenizer", metavar="TOKENIZER", help="likewise, if it is not the model's own")
    add_revision(parser)
    parser.add_argument("--dtype", default="auto", help="of the weights (%(default)s: as they are stored)")
    parser.add_argument(
        "--device",
        default="auto",
        help="cpu, cuda, cuda:1, mps ... (%(default)s: the GPUs that are there, else the CPU)",
    )
    parser.add_argument(
        "--quantization", metavar="NAME", help=f"quantize the weights while they load: {', '.join(METHODS)}"
    )


def add_revision(parser: argparse.ArgumentParser) -> None:
    """Add what only a repository of the Hub has."""
    parser.add_argument("--revision", metavar="NAME", help="a branch, a tag or a commit of the model's Hub repository")
    parser.add_argument(
        "--trust-remote-code", action="store_true", help="run the Python code that comes with the model, if it has any"
    )


@dataclass(frozen=True)
class ModelSource:
    """A model, and how it is loaded.

    Args:
        model: a folder, an id on the Hub, or "demo".
        tokenizer: likewise; None means the model's.
        revision: of the model's Hub repository; None is its main branch.
        trust_remote_code: whether code that comes with the model may run.
        dtype: of the weights; "auto" is what they are stored in.
        device: a device of torch; "auto" spreads the model over the GPUs there are, and takes the CPU where there is
            none.
        device_map: spreads the model as transformers' ``device_map`` does, in place of ``device``.
        quantization: a key of ``quantization.METHODS``; None leaves the weights as they are.
    """

    model: str
    tokenizer: str | None = None
    revision: str | None = None
    trust_remote_code: bool = False
    dtype: str = "auto"
    device: str = "auto"
    device_map: str | None = None
    quantization: str | None = None

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> ModelSource:
        """The source that a command line names.

        Raises:
            Mistake: see ``check``.
        """
        names = {field.name for field in fields(cls)}
        source = cls(**{name: value for name, value in vars(arguments).items() if name in names})
        source.check()
        return source

    def check(self) -> None:
        """See what can be seen without loading anything.

        Raises:
            Mistake: a name that is none, a revision of what has none, a quantization that cannot be used here.
        """
        _kind(self.model)
        if self.tokenizer is not None:
            _kind(self.tokenizer)
        if self.revision is not None and not self.is_on_hub:
            raise Mistake(
                f"--revision {self.revision}: only a Hub repository has revisions, and {self.model!r} is none"
            )
        if self.quantization is not None:
            check_quantization(self.quantization)

    @property
    def is_built_in(self) -> bool:
        """Whether it is the model that comes with the package."""
        return _kind(self.model) == "built in"

    @property
    def is_on_hub(self) -> bool:
        """Whether it is an id on the Hub, which may be in the local cache."""
        return _kind(self.model) == "hub"

    def at(self, revision: str) -> ModelSource:
        """The same at another revision."""
        return replace(self, revision=revision)

    def load(self) -> tuple[Any, Any]:
        """The model, in eval mode and on its device, and its tokenizer.

        Raises:
            Mistake: something of this is not there, or not known.
        """
        from transformers import AutoModelForCausalLM

        quiet()
        kwargs = {"dtype": self.torch_dtype(), "device_map": self.device_map or self.placement()}
        if self.quantization is not None:
            kwargs["quantization_config"] = quantization_config(self.quantization)
        with self.explained("model"):
            model = AutoModelForCausalLM.from_pretrained(self.path, **self.repository(), **kwargs).eval()
        return model, self.load_tokenizer()

    def load_tokenizer(self) -> Any:
        """The tokenizer alone; errors as ``load``."""
        from transformers import AutoTokenizer

        quiet()
        if self.tokenizer is not None:
            return replace(self, model=self.tokenizer, tokenizer=None, revision=None).load_tokenizer()
        path = _demo_folder(of_tokenizer=True) if self.is_built_in else self.model
        with self.explained("tokenizer"):
            return AutoTokenizer.from_pretrained(path, **self.repository())

    @property
    def path(self) -> str:
        """What ``from_pretrained`` takes for the model."""
        return _demo_folder() if self.is_built_in else self.model

    def repository(self) -> dict[str, Any]:
        """What every ``from_pretrained`` has to know of where the files come from."""
        kwargs: dict[str, Any] = {"trust_remote_code": self.trust_remote_code}
        return kwargs | ({"revision": self.revision} if self.revision is not None else {})

    def torch_dtype(self) -> Any:
        """The dtype as ``from_pretrained`` takes it.

        Raises:
            Mistake: torch has none of this name.
        """
        import torch

        if self.dtype == "auto":
            return torch.float32 if self.is_built_in else "auto"  # stored in half precision to be small
        dtype = getattr(torch, self.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise Mistake(f"--dtype {self.dtype}: expected auto, or the name of a dtype of torch, such as bfloat16")
        return dtype

    def placement(self) -> str | int:
        """The device as ``device_map`` takes it.

        Raises:
            Mistake: there is no such device here.
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
            raise Mistake(f"--device {self.device}: {error}") from error
        if kind == "meta":
            raise Mistake(
                "--device meta: a model that has no weights writes nothing; give a device such as cpu or cuda"
            )
        return device

    @contextmanager
    def explained(self, what: str) -> Iterator[None]:
        """Around ``from_pretrained``: what goes wrong there becomes a Mistake that names the model.

        Args:
            what: "model" or "tokenizer".
        """
        try:
            yield
        except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
            raise Mistake(self._explanation(what, error)) from error

    def _explanation(self, what: str, error: BaseException) -> str:
        from huggingface_hub import constants
        from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

        text = f"cannot load a {what} from {self.model!r}: {error}"
        if "trust_remote_code" in str(error):
            return f"{text}\n(on the command line: --trust-remote-code)"
        missing = any(isinstance(cause, (LocalEntryNotFoundError, OfflineModeIsEnabled)) for cause in _causes(error))
        if not (self.is_on_hub and (missing or constants.is_offline_mode())):
            return text
        revision = "" if self.revision is None else f" --revision {self.revision}"
        absent = f"{what} {self.model!r}{revision} is not a folder here, and not complete in the local Hub cache"
        if constants.is_offline_mode():
            return (
                f"{absent} ({constants.HF_HUB_CACHE}); HF_HUB_OFFLINE is set, which forbids to download it: unset it, "
                f"or run `hf download {self.model}{revision}` where the Hub can be reached"
            )
        return (
            f"{absent} ({constants.HF_HUB_CACHE}), and the Hub ({constants.ENDPOINT}) cannot be reached: run "
            f"`hf download {self.model}{revision}` while it can; HF_HUB_OFFLINE=1 then uses the cache alone"
        )


def quiet() -> None:
    """No progress bar while weights load: stderr is for messages."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def _kind(name: str) -> str:
    """Which of "folder", "built in" and "hub" a name is.

    Raises:
        Mistake: it is none of them.
    """
    if Path(name).is_dir():
        return "folder"
    if name == BUILT_IN:
        return "built in"
    if _HUB_ID.fullmatch(name):
        return "hub"
    raise Mistake(f"the folder {name!r} does not exist, and an id on the Hub looks otherwise; give {WHERE}")


def _demo_folder(*, of_tokenizer: bool = False) -> str:
    from . import demo

    return str(Path(demo.__file__).parent / (demo.TOKENIZER_FOLDER if of_tokenizer else demo.MODEL_FOLDER))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
