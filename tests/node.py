"""What JavaScript says of patterns: the oracle for ECMA-262, where Node.js is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence

NODE = shutil.which("node")
_SCRIPT = """
const asked = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(asked.map(([pattern, flags, text]) => {
  try { return new RegExp(pattern, flags).test(text) } catch { return null }
})));
"""


def searches(asked: Sequence[tuple[str, str, str]]) -> list[bool | None]:
    """Whether each pattern, with its flags, matches somewhere in its text; None where it does not compile."""
    assert NODE is not None
    finished = subprocess.run(
        [NODE, "-e", _SCRIPT], input=json.dumps(asked), capture_output=True, text=True, check=True, timeout=120
    )
    answers: list[bool | None] = json.loads(finished.stdout)
    return answers
