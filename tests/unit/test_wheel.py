"""The wheel has all that runs, also what is no Python: the source of the kernels, and the page of a trace."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from hf_guided.display.trace import Trace
from hf_guided.recorded import RowRecord
from tests.kernel_harness import HEADER, ROOT


def test_an_installed_wheel_has_what_is_no_python(tmp_path: Path) -> None:
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    with zipfile.ZipFile(tmp_path / done.stdout.strip().splitlines()[-1]) as wheel:
        wheel.extractall(site)
    look = (
        "import hf_guided, hashlib; from hf_guided.device.nvrtc import device_source;"
        "from hf_guided.recorded import RowRecord; from hf_guided.display.trace import Trace;"
        "page = Trace(RowRecord((), (), 1), {}, 'anything', 10).html();"
        "print(hf_guided.__file__, hashlib.sha256(device_source().encode()).hexdigest(),"
        "hashlib.sha256(page.encode()).hexdigest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", look],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    where, digest, page = done.stdout.split()
    assert Path(where).is_relative_to(site)
    assert digest == hashlib.sha256(HEADER.read_bytes()).hexdigest()
    here = Trace(RowRecord((), (), 1), {}, "anything", 10).html()
    assert page == hashlib.sha256(here.encode()).hexdigest()
