"""A plugin of pytest that writes how long each passed test took: ``pytest -p tests.mutation.durations``.

The file, ``.durations.json``, maps a test's id to the seconds of its set-up, its call and its end together.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

FILE = ".durations.json"
_seconds: dict[str, float] = defaultdict(float)
_failed: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration
    if not report.passed:
        _failed.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # with xdist the main process sees all reports
        passed = {test: round(seconds, 3) for test, seconds in _seconds.items() if test not in _failed}
        Path(session.config.rootpath, FILE).write_text(json.dumps(passed, indent=0), "utf-8")
