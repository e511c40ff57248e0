"""A page as headless Chromium sees it, without a network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --enable-logging=stderr"
).split()
_NO_NETWORK = "--host-resolver-rules=MAP * ~NOTFOUND"
_LONG = 600  # seconds after which it hangs

# In front of the page's own script, so that nothing is missed.
_WATCH = """<script>
window.seen = {errors: [], violations: []};
window.addEventListener("error", (event) => window.seen.errors.push(event.message));
document.addEventListener("securitypolicyviolation", (event) => window.seen.violations.push(event.blockedURI));
</script>"""
_TELL = """<script>
(() => {
  const say = (found) => document.body.append(Object.assign(document.createElement("pre"), {id: "said",
    textContent: JSON.stringify({...window.seen, ...found,
      resources: performance.getEntriesByType("resource").map((one) => one.name)})}));
  say((() => { %s })());
})();
</script>"""


class Visit(NamedTuple):
    """What came of a visit.

    Args:
        said: what the script in the page returned; with "errors", "violations" (of the page's own policy) and
            "resources" (what it fetched).
        console: lines that the page, or Chromium about it, wrote to the console.
    """

    said: dict[str, Any]
    console: list[str]


MISSING = "no Chromium to show the page: install one, e.g. with `apt-get install chromium`"


def chromium() -> str | None:
    """The program; None where there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def visit(page: str, script: str, folder: Path, *, dark: bool = False, width: int = 1280) -> Visit:
    """Open a page and run a script in it; skips the test where there is no Chromium.

    Args:
        page: HTML with a head and a body.
        script: JavaScript, the body of a function that returns an object; runs when the page's own has.
        folder: an empty one, for the page and the profile.
        dark: whether dark colours are preferred.
        width: of the window, in pixels.
    """
    program = chromium()
    if program is None:
        pytest.skip(MISSING)
    file = folder / "page.html"
    assert page.count("<head>") == 1 and page.count("</body>") == 1
    watched = page.replace("<head>", "<head>" + _WATCH).replace("</body>", _TELL % script + "</body>")
    file.write_text(watched, encoding="utf-8")
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [program, *FLAGS, _NO_NETWORK, scheme, profile, f"--window-size={width},900", "--dump-dom"]
    done = subprocess.run([*command, file.as_uri()], capture_output=True, timeout=_LONG, check=False)
    dom, log = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    found = re.search(r'<pre id="said">(.*?)</pre>', dom, re.DOTALL)
    assert found, f"the page said nothing:\n{log}"
    return Visit(json.loads(unescape(found[1])), [line for line in log.splitlines() if "CONSOLE" in line])
