"""``hg.generate`` and what stands on the same path: prompts, plan, run, streams, the pipeline, scores."""
