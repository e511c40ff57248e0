"""The settings that a generate() call will use, and their conflicts with constraints, read before it starts."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from transformers.generation.configuration_utils import GenerationConfig, GenerationMode

from ..backends.base import CompiledConstraint
from ..constraints.argument_checks import SETTINGS, WARPERS, Rule, check, check_each, check_settings
from ..constraints.values import Choice
from ..errors import EmptyIntersection, StopTokenError, UnsupportedConstraint, UnsupportedModel, warn
from .compat import token_id_tuple

_CONFIG = Rule(
    "a transformers.GenerationConfig",
    lambda value: isinstance(value, GenerationConfig),
    "pass GenerationConfig(**settings), or the settings themselves as keyword arguments",
)

# Settings that only sampling reads, each with the values that leave greedy decoding as it is meant: 0 as temperature
# asks for it, and the others filter nothing (50 is transformers' own top_k).
_FILTERS = ("top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff")
_ONLY_FOR_SAMPLES = {"temperature": (0,), "top_k": (0, 50), **{name: WARPERS[name] for name in _FILTERS}}


def sampling_at(temperature: float | None, top_p: float | None = None) -> dict[str, Any]:
    """The arguments of generate() for a caller that has a temperature and no ``do_sample``.

    The temperature 0 is greedy. None leaves a value to the model's generation config.
    """
    if temperature == 0:
        return {"do_sample": False}
    sampling = {} if temperature is None else {"do_sample": True, "temperature": temperature}
    return sampling if top_p is None else {**sampling, "top_p": top_p}


class GenerationSettings:
    """The settings of one call: arguments of ``model.generate``, then its generation config, then the model's own."""

    def __init__(self, model: Any, generate_kwargs: Mapping[str, Any]):
        self._kwargs = dict(generate_kwargs)
        self._config = self._kwargs.get("generation_config")
        self._defaults = model.generation_config
        configs = [getattr(config, "__dict__", {}) for config in (self._defaults, self._config)]
        self._values = {
            name: value for given in (*configs, self._kwargs) for name, value in given.items() if value is not None
        }

    def get(self, name: str) -> Any:
        """The value that generate() will use; None if there is none."""
        return self._values.get(name)

    def check_values(self) -> None:
        """Raise InvalidArgument for a value that generate() cannot use, before anything runs."""
        if self._config is not None:
            check("generation_config", self._config, _CONFIG)
        check_settings(self._values.get)

    def warn_of_ignored(self) -> None:
        """Warn of settings of this call that only sampling reads, where the call does not sample."""
        if self.get("do_sample") or self._kwargs.get("custom_generate") is not None:  # such a loop reads what it likes
            return
        ignored = {name: value for name in _ONLY_FOR_SAMPLES if (value := self._ignored(name)) is not None}
        if self.get("penalty_alpha"):  # contrastive search
            ignored.pop("top_k", None)
        if not ignored:
            return
        given = ", ".join(f"{name}={value}" for name, value in ignored.items())
        warn(
            f"{given}: ignored, because this call does not sample; pass do_sample=True to sample, or leave out "
            f"{', '.join(ignored)}"
        )

    def warn_of_warpers(self) -> None:
        """Warn of settings of the model's generation config that a call without warpers does not apply."""
        values = {name: getattr(self._defaults, name, None) for name in WARPERS}
        given = [f"{name}={value}" for name, value in values.items() if value not in (None, *WARPERS[name])]
        if given:
            warn(
                f"{', '.join(given)} of the model's generation config: not applied, because this call weights texts by "
                "the model's own distribution; remove them there, or sample with hg.generate"
            )

    def _ignored(self, name: str) -> Any:
        """The value of a setting that only sampling reads; None if the call leaves it out, or it changes nothing."""
        value = self._kwargs.get(name)
        if value is None:
            value = getattr(self._config, name, None)
            if value == getattr(self._defaults, name, None):  # as in a copy of the model's generation config
                return None
        is_greedy = self._kwargs.get("do_sample") is False or getattr(self._config, "do_sample", None) is False
        neutral = _ONLY_FOR_SAMPLES[name]
        if value in neutral or (name == "temperature" and value == 1 and is_greedy):
            return None
        return value

    @staticmethod
    def over(generate_kwargs: Mapping[str, Any], **values: Any) -> dict[str, Any]:
        """Arguments of generate() with these values; inside the generation config if there is one, as it requires."""
        config = copy.deepcopy(generate_kwargs.get("generation_config"))
        if config is not None:
            config.update(**values)
            others = {name: value for name, value in generate_kwargs.items() if name not in values}
            return {**others, "generation_config": config}
        return {**generate_kwargs, **values}

    @property
    def samples(self) -> bool:
        """Whether rows are sampled independently."""
        return bool(self.get("do_sample")) and (self.get("num_beams") or 1) == 1

    @property
    def sampled(self) -> bool | None:
        """Whether each token of a row is drawn; None where rows change places (beams), or in loops of other code."""
        modes = (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE, GenerationMode.ASSISTED_GENERATION)
        if self._kwargs.get("custom_generate") is not None or self.generation_mode not in modes:
            return None
        return bool(self.get("do_sample"))

    @property
    def one_at_a_time(self) -> bool:
        """Whether transformers runs this mode only with batches of one row."""
        return self._kwargs.get("assistant_model") is not None or bool(self.get("prompt_lookup_num_tokens"))

    @property
    def generation_mode(self) -> GenerationMode:
        """The method that generate() will use."""
        config = copy.copy(self._defaults)
        for name in vars(config).keys() & self._values.keys():
            setattr(config, name, self._values[name])
        return config.get_generation_mode(self._kwargs.get("assistant_model"))

    @property
    def takes_decoder(self) -> bool:
        """Whether our decode loop may run this call: greedy or sampling, without features that only generate() has."""
        unsupported = {"assistant_model", "custom_generate", "streamer", "synced_gpus", "prefix_allowed_tokens_fn"}
        unsupported.add("stopping_criteria")  # may keep a state for each row; our loop calls it with one row at a time
        return (
            self.generation_mode in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE)
            and not unsupported & {name for name, value in self._kwargs.items() if value is not None}
            and not self.needs_tokenizer
        )

    @property
    def needs_tokenizer(self) -> bool:
        """Whether generate() needs the tokenizer too."""
        return bool(
            self.get("stop_strings") or self.get("token_healing") or self._kwargs.get("assistant_tokenizer") is not None
        )

    def check_custom_loop(self) -> None:
        """Raise UnsupportedModel for settings that need the tokenizer, which generate() gives to no custom loop."""
        given = [name for name in ("stop_strings", "token_healing") if self.get(name)]
        if given:
            raise UnsupportedModel(
                f"{', '.join(given)} of the model's generation config: not supported by this call; set "
                f"{' = '.join(f'model.generation_config.{name}' for name in given)} = None"
            )

    def max_new_tokens(self, input_length: int) -> int | None:
        """How many tokens generate() will add to a batch, if a setting says so; transformers' default 20 is ignored.

        Args:
            input_length: tokens of a decoder's longest prompt, 1 for an encoder-decoder's start.
        """
        given = self.given_max_new_tokens
        if given is None and (longest := self.get("max_length")) is not None:
            given = longest - input_length
        return None if given is None else int(given)

    @property
    def given_max_new_tokens(self) -> int | None:
        """``max_new_tokens`` alone; raises InvalidArgument where it is not an int of 1 or more."""
        given = self.get("max_new_tokens")
        check_each({"max_new_tokens": given}, SETTINGS)
        return None if given is None else int(given)

    def stop_token_ids(self) -> tuple[int, ...]:
        """The tokens that end a row; raises StopTokenError if there are none."""
        stops = token_id_tuple(self.get("eos_token_id"))
        if not stops:
            raise StopTokenError(
                "generate() knows no eos_token_id, so no row would ever end; pass eos_token_id, or set "
                "model.generation_config.eos_token_id"
            )
        return tuple(sorted(set(stops)))

    def check_against(self, compiled: Sequence[CompiledConstraint | None]) -> None:
        """Find settings that leave a constraint no token to choose.

        Raises:
            EmptyIntersection: names the setting and how to change it.
            UnsupportedConstraint: generate() would not call a logits processor at all.
        """
        governed = [constraint for constraint in compiled if constraint is not None]
        if governed and self.get("cache_implementation") == "paged":
            raise UnsupportedConstraint(
                'cache_implementation="paged" ignores logits processors, so nothing would be enforced; leave it out, '
                "or use hg.generate(..., continuous_batching=True)"
            )
        stops = self.stop_token_ids()
        if governed:
            stops = governed[0].vocabulary.stops_with_logits(stops)
        if governed and set(stops) <= set(self.get("suppress_tokens") or ()):
            raise EmptyIntersection(
                f"suppress_tokens forbids every stop token {list(stops)}, so no guided row could end; remove them"
            )
        if governed and self.get("forced_eos_token_id") is not None:
            raise EmptyIntersection(
                "forced_eos_token_id ends rows in the middle of their constraint when max_length is reached; "
                "set model.generation_config.forced_eos_token_id = None"
            )
        forced_bos = self.get("forced_bos_token_id")
        min_new_tokens = self.get("min_new_tokens") or 0
        for constraint in governed:
            if forced_bos is not None and not constraint.matcher(stops).validate_tokens([forced_bos]):
                raise EmptyIntersection(
                    f"forced_bos_token_id forces {constraint.vocabulary.token_text(forced_bos)}, but no text of "
                    f"{constraint.constraint} begins with it; set model.generation_config.forced_bos_token_id = None"
                )
            if isinstance(constraint.constraint, Choice):
                longest = max(len(option.encode()) for option in constraint.constraint.options)
                if longest < min_new_tokens:
                    raise EmptyIntersection(
                        f"min_new_tokens={min_new_tokens}, but the longest option has only {longest} bytes; lower it"
                    )
