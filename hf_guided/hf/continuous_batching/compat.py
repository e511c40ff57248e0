"""Names of transformers' continuous batching that we use, in one module (transformers 5.23).

Documented names: ``init_continuous_batching``, ``add_request``, ``get_result``, ``is_running``,
``start``, ``stop``, ``destroy``, ``ContinuousBatchingConfig``, ``WorkloadHints``, ``GenerationOutput``.

Undocumented names without an underscore:

- ``manager.logit_processor``: read when the batch processor is made, so it is replaced before that; its
  ``tensors_required`` counts the int32 rows reserved for processors' arguments, and its constructor counts only
  processors that it has itself converted for continuous batching;
- ``manager.continuous_batching_config``: resolved in the manager's constructor, completed when the cache is made;
- ``manager.batch_processor``: None until ``start`` or ``warmup`` has made it;
- ``RequestState``: its fields ``request_id``, ``initial_tokens``, ``generated_tokens``, ``max_new_tokens``,
  ``logit_processor_kwargs`` and ``error``, which is returned to the caller that waits for the request;
- ``ContinuousBatchingLogitsProcessor``: its methods are called on the generation thread: ``fill_defaults`` once for
  each set of input tensors, ``prepare_tensor_args`` for each batch before its forward pass, ``__call__`` after it, or
  in the graph that has captured it.

- ``batch_processor.inputs_and_outputs``: tensors of the batch that is being prepared or run; ``use_block_table`` says
  which of two ways the model takes. With asynchronous batching it has two pairs of them: while batch N runs, batch N+1
  is prepared in ``io_pairs[current_pair]``, and ``update_batch`` reads the tokens of N only after N+1 is queued. The
  other pair's ``host_io`` has the requests of N and, once ``d2h_over`` is done, ``output_ids``, its tokens.

Private names: ``RequestState._true_initial_tokens`` (a request that has lost its cache starts again with its output as
part of the prompt; this is the end of its original prompt), ``model._prepare_generation_config`` (generate()'s
function for its arguments), ``model._cached_continuous_batching_manager`` (a manager kept for another session).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from transformers import LogitsProcessorList
from transformers.generation.continuous_batching import cb_logits_processors
from transformers.generation.continuous_batching.input_outputs import ContinuousBatchingAsyncIOs

from ...errors import InvalidArgument

ContinuousBatchingLogitsProcessor = cb_logits_processors.ContinuousBatchingLogitsProcessor

# The default of ``max_memory_percent`` on a GPU; it is resolved before a manager can be attached.
_SHARE_WITHOUT_PROCESSORS, _SHARE_WITH_PROCESSORS = 0.9, 0.8


def has_begun(manager: Any) -> bool:
    """Whether the manager has made its tensors, so that its processors can no longer change."""
    return manager.batch_processor is not None or bool(manager.is_running())


def first_processor(manager: Any) -> Any:
    """The first of the manager's logits processors; None if there is none."""
    return next(iter(manager.logit_processor.logits_processor), None)


def put_first(manager: Any, processor: Any) -> None:
    """Insert a processor before the manager's others, as generate() inserts a caller's processors before warpers.

    The manager also keeps memory free for processors, as it does if it has some itself. It batches asynchronously if it
    would have done so, unless requests are forked: transformers 5.23 then fails, also for free requests.
    """
    theirs = manager.logit_processor
    ours = cb_logits_processors.ContinuousBatchingLogitsProcessorList(
        LogitsProcessorList([processor, *theirs.logits_processor]), drop_unsupported_processors=False
    )
    ours.tensors_required = theirs.tensors_required + 1
    manager.logit_processor = ours
    config = manager.continuous_batching_config
    if manager.model.device.type == "cpu" or (manager.generation_config.num_return_sequences or 1) > 1:
        config.use_async_batching = False
    if not theirs.do_processing and config.max_memory_percent == _SHARE_WITHOUT_PROCESSORS:
        config.max_memory_percent = _SHARE_WITH_PROCESSORS


def called_after_forward(manager: Any) -> bool:
    """Whether processors are called from Python, after the forward pass of the batch that is being prepared is queued.

    A CUDA graph that is replayed does not call them, and in compiled code they are only traced.
    """
    if manager.batch_processor is None:
        return False
    config, decode = manager.continuous_batching_config, manager.batch_processor.inputs_and_outputs.use_block_table
    compiled = config.decode_compile_config if decode else config.varlen_compile_config
    return compiled is None and not config.cuda_graph_booleans[1 if decode else 0]


def tokens_in_flight(manager: Any, states: Iterable[Any]) -> dict[int, int]:
    """The tokens of the batch that still runs, for those of these states that get one from it.

    Args:
        manager: prepares the next batch, or has just queued its forward pass.
        states: the states of requests.

    Returns:
        By the ``id`` of the state. Empty without asynchronous batching: then all tokens are in the states.

    Streams: waits for the running batch, unless no token is found.
    """
    tensors = None if manager.batch_processor is None else manager.batch_processor.inputs_and_outputs
    if not isinstance(tensors, ContinuousBatchingAsyncIOs):
        return {}
    running = tensors.io_pairs[1 - tensors.current_pair]
    with_token = [future.state for future in running.host_io.requests_in_batch if future.has_new_token]
    wanted = {id(state) for state in states}
    if wanted.isdisjoint(map(id, with_token)):
        return {}
    running.d2h_over.synchronize()
    tokens = running.host_io.output_ids[0, : len(with_token)].tolist()
    return {id(state): token for state, token in zip(with_token, tokens, strict=True) if id(state) in wanted}


def num_generated(state: Any) -> int:
    """How many tokens of output a request has, including those before it lost its cache."""
    return _num_in_prompt(state) + len(state.generated_tokens)


def new_tokens(state: Any, taken: int) -> list[int]:
    """A request's output after its first ``taken`` tokens."""
    in_prompt = _num_in_prompt(state)
    if taken >= in_prompt:
        return list(state.generated_tokens[taken - in_prompt :])
    return [*state.initial_tokens[state._true_initial_tokens + taken :], *state.generated_tokens]


def tokens_left(state: Any) -> int | None:
    """How many more tokens a request may get; None without a limit."""
    # A request that starts again is given the rest of its limit.
    return None if state.max_new_tokens is None else state.max_new_tokens - len(state.generated_tokens)


def effective_config(model: Any, generate_kwargs: dict[str, Any]) -> Any:
    """The generation config that generate() would make; raises InvalidArgument for arguments that belong in none."""
    config, others = model._prepare_generation_config(**{"generation_config": None, **generate_kwargs})
    dropped = sorted(name for name, value in others.items() if value is not None)
    if dropped:
        raise InvalidArgument(
            f"continuous batching takes only arguments of a generation config, got also {dropped}; leave them out, or "
            "generate without continuous_batching"
        )
    return config


def kept_manager(model: Any) -> Any:
    """The manager that the model keeps, and would return instead of a new one; None if there is none."""
    return getattr(model, "_cached_continuous_batching_manager", None)


def _num_in_prompt(state: Any) -> int:
    return len(state.initial_tokens) - state._true_initial_tokens if state._true_initial_tokens else 0
