"""A page for a browser, built with Gradio: a prompt and a format in, the answer as it is written and its trace out.

from hf_guided.integrations.gradio import ui

ui(model, tokenizer, types=[Person]).launch()

The page executes no text: Python types come from the program that starts it, and the page only names them.
"""

try:
    import gradio as _gradio  # noqa: F401
except ImportError as error:
    raise ImportError(f"the page needs Gradio ({error}); pip install 'hf-guided[ui]'") from error

from .form import UiLimits
from .page import Example, Page, demo_examples, ui

__all__ = ["Example", "Page", "UiLimits", "demo_examples", "ui"]
