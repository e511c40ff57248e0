"""A local cache of the Hugging Face Hub with the demo model in it, and a small Hub that serves the same over HTTP."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from hf_guided import demo

NAME = "owner/tiny-model"
COMMIT = hashlib.sha1(b"a commit of the demo model").hexdigest()


def save_demo(folder: Path) -> Path:
    """The demo model and its tokenizer in one folder, as repositories have them."""
    package = Path(demo.__file__).parent
    for part in demo.MODEL_FOLDER, demo.TOKENIZER_FOLDER:
        shutil.copytree(package / part, folder, dirs_exist_ok=True)
    return folder


def fill_cache(cache: Path, revision: str = "main") -> Path:
    """The demo model in a Hub cache, as ``hf download`` leaves it.

    Args:
        cache: the folder that HF_HUB_CACHE names.
        revision: which names the commit.

    Returns:
        The folder of the snapshot.
    """
    repository = cache / f"models--{NAME.replace('/', '--')}"
    snapshot = repository / "snapshots" / COMMIT
    for folder in repository / "refs", repository / "blobs", snapshot:
        folder.mkdir(parents=True)
    (repository / "refs" / revision).write_text(COMMIT)
    for file in save_demo(cache.parent / "saved").iterdir():
        blob = repository / "blobs" / etag(file)
        blob.write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(Path("..", "..", "blobs", blob.name))
    return snapshot


def etag(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@contextmanager
def serving_hub(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """A Hub with one model.

    Args:
        folder: the files of its repository.

    Yields:
        Its URL, and the list of requested paths, which grows.
    """
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(with_body=True)

        def do_HEAD(self) -> None:
            self.answer(with_body=False)

        def answer(self, *, with_body: bool) -> None:
            requests.append(f"{self.command} {self.path}")
            path, headers, body = self.path.partition("?")[0], {"X-Repo-Commit": COMMIT}, b""
            name = path.rpartition("/")[2]
            if path in (f"/api/models/{NAME}", f"/api/models/{NAME}/revision/main"):
                siblings = [{"rfilename": file.name} for file in folder.iterdir()]
                body = json.dumps({"id": NAME, "sha": COMMIT, "siblings": siblings}).encode()
                headers["Content-Type"] = "application/json"
            elif path == f"/{NAME}/resolve/{COMMIT}/{name}" and (folder / name).is_file():
                body = (folder / name).read_bytes()
                headers["ETag"] = f'"{etag(folder / name)}"'
            elif path.startswith((f"/{NAME}/resolve/", f"/api/models/{NAME}/tree/")):
                headers["X-Error-Code"] = "EntryNotFound"
            else:
                headers["X-Error-Code"] = "RepoNotFound"
            self.send_response(404 if "X-Error-Code" in headers else 200)
            for header, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(header, value)
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
