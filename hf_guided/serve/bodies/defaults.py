"""What the model and the server's options say where a request says nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...constraints.json_style import Spelling, Whitespace
from ..job import Sampling
from ..options import ServeOptions


@dataclass(frozen=True)
class Defaults:
    """What reading a request needs to know.

    Args:
        names: of the model, that a request may give.
        vocab_size: token ids are below it.
        sampling: what the fields are where a request samples and leaves them out.
        samples: whether a request that gives no field of sampling is sampled; not if the generation config says
            ``do_sample=False``.
        takes_images: whether messages may have images.
        template_variables: that the chat template reads, without those of transformers itself; None: not known.
        tool_format: how the model writes its tool calls (``ToolCalls``).
        whitespace: of JSON (``JsonSchema``); None is the constraint's own.
        indent: of JSON (``JsonSchema``).
        spelling: of the values in JSON (``JsonSchema``).
    """

    names: tuple[str, ...]
    vocab_size: int
    sampling: Sampling = Sampling(temperature=1.0)
    samples: bool = True
    takes_images: bool = False
    template_variables: frozenset[str] | None = None
    tool_format: str = "auto"
    whitespace: Whitespace | None = None
    indent: int | None = None
    spelling: Spelling | None = None

    @classmethod
    def of(
        cls,
        options: ServeOptions,
        generation_config: Any,
        vocab_size: int,
        *,
        takes_images: bool = False,
        template_variables: frozenset[str] | None = None,
    ) -> Defaults:
        """The defaults of a server.

        Args:
            options: of the server.
            generation_config: of the model.
            vocab_size: the width of its logits.
            takes_images: whether it does.
            template_variables: see the class.
        """
        names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
        given: dict[str, Any] = {name: getattr(generation_config, name, None) for name in names}
        return cls(
            names=(options.public_name,),
            vocab_size=vocab_size,
            # 0 says nothing: not a temperature, and all tokens as top_k.
            sampling=replace(cls.sampling, **{name: value for name, value in given.items() if value}),
            samples=getattr(generation_config, "do_sample", None) is not False,
            takes_images=takes_images,
            template_variables=template_variables,
            tool_format=options.tool_format,
            whitespace=options.whitespace,
            indent=options.indent,
            spelling=options.spelling,
        )
