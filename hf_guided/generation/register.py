"""The pipeline task ``guided-generation``, put into transformers' registry by ``hg.register()``."""

from __future__ import annotations

TASK = "guided-generation"


def register() -> None:
    """Make ``transformers.pipeline("guided-generation", ...)`` work. Safe to call any number of times."""
    # transformers.pipelines takes seconds to import, so only programs that use the pipeline import it.
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.pipelines import PIPELINE_REGISTRY

    from .pipeline import GuidedGenerationPipeline

    known = PIPELINE_REGISTRY.supported_tasks.get(TASK)
    if known is None or known["impl"] is not GuidedGenerationPipeline:
        PIPELINE_REGISTRY.register_pipeline(
            TASK,
            pipeline_class=GuidedGenerationPipeline,
            pt_model=(AutoModelForCausalLM, AutoModelForImageTextToText),
            type="text",
        )
