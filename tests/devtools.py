"""A page of a server in headless Chromium, used through its DevTools protocol over a pipe; needs no other package."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.browser import FLAGS, MISSING, chromium

_LONG = 120.0  # seconds after which something hangs
# Sandboxed frames stay in the page's process, so that their scripts are seen here.
_IN_ONE_PROCESS = "--disable-features=IsolateSandboxedIframes,IsolateOrigins,site-per-process"
_ONLY_THIS_MACHINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


class Tab:
    """One tab.

    Args:
        to_browser: file descriptor that takes commands.
        from_browser: file descriptor that gives answers and events.
    """

    def __init__(self, to_browser: int, from_browser: int):
        self._to, self._from = to_browser, from_browser
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._contexts: dict[str, int] = {}  # of each frame
        self.errors: list[str] = []
        """Exceptions of scripts, in the page and in its frames, and errors on the console."""
        self.requested: list[str] = []
        """URLs that the page asked for."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def open(self, url: str) -> None:
        """Go to a page; does not wait for its scripts."""
        self._call("Page.navigate", url=url)

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size of the window, in pixels, and the preferred colours."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[feature])

    def run(self, script: str, *, frame: str | None = None) -> Any:
        """The JSON value of an expression, or of a promise, in the page or in one of its frames."""
        where = {} if frame is None else {"contextId": self._contexts[frame]}
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, **where)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, script: str, *, frame: str | None = None) -> Any:
        """The value of an expression once it is true."""
        end = time.monotonic() + _LONG
        while not (value := self.run(script, frame=frame)):
            assert time.monotonic() < end, f"never true: {script}\n{self.run('document.body.innerText')}\n{self.errors}"
            time.sleep(0.05)
        return value

    def frames(self) -> list[str]:
        """The ids of the frames inside the page."""
        tree = self._call("Page.getFrameTree")["frameTree"]
        return [child["frame"]["id"] for child in tree.get("childFrames", ())]

    def write(self, selector: str, text: str) -> None:
        """Replace the text of a field, as a user does."""
        self.run(f"(() => {{ const field = document.querySelector({selector!r}); field.focus(); field.select(); }})()")
        self._call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click an element."""
        self.run(f"document.querySelector({selector!r}).click()")

    def picture(self, file: Path) -> None:
        """Save what the window shows, as PNG."""
        file.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))

    def outside(self) -> list[str]:
        """URLs that the page asked for and that are not on this machine."""
        return [
            url
            for url in self.requested
            if urlsplit(url).scheme in ("http", "https", "ws", "wss") and urlsplit(url).hostname != "127.0.0.1"
        ]

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._from, 2**20)
            assert data, "Chromium has ended"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self._note(message["method"], message["params"])
        return message

    def _note(self, event: str, about: dict[str, Any]) -> None:
        if event == "Runtime.executionContextCreated":
            context = about["context"]
            if context["auxData"].get("isDefault"):
                self._contexts[context["auxData"]["frameId"]] = context["id"]
        elif event == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif event == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.errors.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")
        elif event == "Network.requestWillBeSent":
            self.requested.append(about["request"]["url"])


@contextmanager
def tab(folder: Path) -> Iterator[Tab]:
    """A tab of a new Chromium, which has no network but this machine; skips the test where there is no Chromium.

    Args:
        folder: an empty one, for the profile.
    """
    program = chromium()
    if program is None:
        pytest.skip(MISSING)
    commands, to_browser = os.pipe()
    from_browser, answers = os.pipe()

    # Chromium reads its commands at descriptor 3, and writes at descriptor 4.
    command = f'exec 3<&{commands} 4>&{answers}; exec "$@"'
    flags = [*FLAGS, _ONLY_THIS_MACHINE, _IN_ONE_PROCESS, "--remote-debugging-pipe", f"--user-data-dir={folder}"]
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", command, "bash", program, *flags], pass_fds=(commands, answers), stdout=log, stderr=log
        )
    os.close(commands)
    os.close(answers)
    try:
        yield Tab(to_browser, from_browser)
    finally:
        process.terminate()
        process.wait(30)
        os.close(to_browser)
        os.close(from_browser)
