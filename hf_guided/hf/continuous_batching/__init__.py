"""Constraints inside transformers' continuous batching."""
