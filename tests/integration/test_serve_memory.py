"""What a server must not keep for a client that has left."""

from __future__ import annotations

from types import SimpleNamespace

from transformers import GenerationConfig

import hf_guided as hg
from hf_guided import demo
from hf_guided.serve.batching import BatchingManager
from hf_guided.serve.metrics import Metrics


def test_outputs_that_come_after_their_client_has_left_are_dropped() -> None:
    """Its handler is gone, and the forward pass that was under way still makes an output for it."""
    model, tokenizer = demo.load()
    guide = hg.Guide(tokenizer, model)
    manager = BatchingManager(lambda _: guide, Metrics())
    manager.init_cb(model, GenerationConfig())
    try:
        router = manager._cb.output_router
        for number in range(3):
            output = SimpleNamespace(request_id=f"left {number}")
            router.deliver(output)
            router.deliver_batch([output])
        assert router.output_queue.qsize() == 0
        assert manager._cb.get_result(timeout=0.01) is None
    finally:
        manager.stop()
