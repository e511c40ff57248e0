"""The values of ``--quantization``: names for the methods by which transformers quantizes weights as it loads them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from ..errors import UsageError


@dataclass(frozen=True)
class Method:
    """One quantization method.

    Args:
        config: the class of transformers that configures it.
        settings: the class's arguments.
        module: the package it imports.
        package: what to install for that.
    """

    config: str
    settings: dict[str, Any]
    module: str
    package: str


def _torchao(scheme: str) -> Method:
    return Method("TorchAoConfig", {"quant_type": scheme}, "torchao", "torchao")


_BITS_4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
METHODS = {
    "bitsandbytes-4bit": Method("BitsAndBytesConfig", _BITS_4, "bitsandbytes", "bitsandbytes"),
    "bitsandbytes-8bit": Method("BitsAndBytesConfig", {"load_in_8bit": True}, "bitsandbytes", "bitsandbytes"),
    "quanto-int4": Method("QuantoConfig", {"weights": "int4"}, "optimum.quanto", "optimum-quanto"),
    "quanto-int8": Method("QuantoConfig", {"weights": "int8"}, "optimum.quanto", "optimum-quanto"),
    "quanto-float8": Method("QuantoConfig", {"weights": "float8"}, "optimum.quanto", "optimum-quanto"),
    "torchao-int8": _torchao("Int8WeightOnlyConfig"),
    "torchao-float8": _torchao("Float8WeightOnlyConfig"),
}


def check_quantization(name: str) -> None:
    """See that a method can be used here, without importing it.

    Raises:
        UsageError: there is no such method, or its package is not installed.
    """
    method = METHODS.get(name)
    if method is None:
        raise UsageError(f"--quantization {name}: expected one of {', '.join(METHODS)}")
    try:
        spec = find_spec(method.module)
    except ModuleNotFoundError:  # the package around it is missing
        spec = None
    if spec is None:
        raise UsageError(
            f"--quantization {name} needs the package {method.package}, which is not installed; "
            f"pip install {method.package}"
        )


def quantization_config(name: str) -> Any:
    """The ``quantization_config`` of ``from_pretrained``; errors as ``check_quantization``."""
    check_quantization(name)
    import transformers

    method = METHODS[name]
    settings = dict(method.settings)
    if method.module == "torchao":
        import torchao.quantization  # type: ignore[import-not-found]  # an optional package

        settings["quant_type"] = getattr(torchao.quantization, settings["quant_type"])()
    try:
        return getattr(transformers, method.config)(**settings)
    except (ImportError, ValueError) as error:  # installed, but not in the version transformers needs
        raise UsageError(f"--quantization {name}: {error}") from error
