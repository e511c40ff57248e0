"""The README as a package index shows it: there, links and pictures need the address of the repository.

Hatchling calls this while it builds (``[tool.hatch.metadata.hooks.custom]`` in pyproject.toml).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

BRANCH = "main"
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>(?!\w+:|#)[^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, metadata["urls"]["Source"])}


def absolute(markdown: str, source: str) -> str:
    """Markdown whose relative links point into a repository.

    Args:
        markdown: with links relative to the repository's root.
        source: the repository's address.
    """
    files = source.replace("https://github.com/", "https://raw.githubusercontent.com/")

    def link(match: re.Match[str]) -> str:
        base = f"{files}/{BRANCH}" if match["image"] else f"{source}/blob/{BRANCH}"
        return f"{match['image']}[{match['text']}]({base}/{match['target']})"

    return _LINK.sub(link, markdown)
