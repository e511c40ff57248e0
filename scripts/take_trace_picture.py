"""Takes docs/trace.png: the trace of the README's demo example, as Chromium shows it.

Run `python -m scripts.take_trace_picture` in the root of a clone, and look at the picture.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

from tests.browser import FLAGS, MISSING, chromium
from tests.unit.test_readme import BLOCK, README, ROOT

PICTURE = ROOT / "docs" / "trace.png"
WIDTH, HEIGHT = 1200, 1285  # ends above the automaton, which is too large to be drawn in this example
COLOURS = 64
PLAIN, TRACED = "do_sample=False)", "do_sample=False, trace=True)"


def traced_example() -> Any:
    """The result of the README's demo example with `trace=True`."""
    [block] = BLOCK.finditer(README.read_text(encoding="utf-8"))
    assert block["code"].count(PLAIN) == 1, f"the README's example has no {PLAIN!r}"
    names: dict[str, Any] = {"__name__": "__main__"}
    code = compile(block["code"].replace(PLAIN, TRACED), README.name, "exec", dont_inherit=True)
    for _ in range(2):  # the first run warms up
        exec(code, names)
    return names["result"]


def main() -> None:
    program = chromium()
    if program is None:
        raise SystemExit(MISSING)
    with TemporaryDirectory() as name:
        page, shot = Path(name, "trace.html"), Path(name, "trace.png")
        traced_example().trace.save(page)
        options = [f"--user-data-dir={name}/profile", f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={shot}"]
        subprocess.run([program, *FLAGS, *options, page.as_uri()], check=True, capture_output=True, timeout=120)
        Image.open(shot).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
