"""Inputs and outputs on other machines, by their URLs: fsspec reads and writes them as a whole."""

from __future__ import annotations

import hashlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path, PurePath, PurePosixPath

from ...errors import UsageError, cause

_SCHEME = "://"


class Place(ABC):
    """A file or a folder, which is read or written as a whole."""

    @property
    @abstractmethod
    def path(self) -> PurePath:
        """Its path, on the machine where it is."""

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.name

    @abstractmethod
    def with_name(self, name: str) -> Place:
        """The place beside this one."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether something is there."""

    @abstractmethod
    def names(self) -> list[str] | None:
        """What is in the folder that is there; None if it is none."""

    @abstractmethod
    def is_same(self, other: Place) -> bool:
        """Whether both are the same file or folder, which is there."""

    @abstractmethod
    def fetch(self, folder: Path) -> Path:
        """What is there, on this machine.

        Args:
            folder: for a copy, if one is needed.

        Raises:
            UsageError: it cannot be read.
        """

    @abstractmethod
    def replace(self, made: Path) -> None:
        """Put a file or a folder from this machine there, in place of what is there."""

    @abstractmethod
    def remove(self) -> None:
        """Delete what is there."""


class LocalPlace(Place):
    """One on this machine's disks.

    Args:
        path: of it.
    """

    def __init__(self, path: Path):
        self._local_path = path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def path(self) -> Path:
        """See ``Place.path``."""
        return self._local_path

    def with_name(self, name: str) -> LocalPlace:
        """See ``Place.with_name``."""
        return LocalPlace(self.path.with_name(name))

    def exists(self) -> bool:
        """See ``Place.exists``."""
        return self.path.exists()

    def names(self) -> list[str] | None:
        """See ``Place.names``."""
        return [file.name for file in self.path.iterdir()] if self.path.is_dir() else None

    def is_same(self, other: Place) -> bool:
        """See ``Place.is_same``."""
        if not (isinstance(other, LocalPlace) and self.exists() and other.exists()):
            return False
        return self.path.samefile(other.path)

    def fetch(self, folder: Path) -> Path:
        """See ``Place.fetch``: nothing is copied."""
        return self.path

    def replace(self, made: Path) -> None:
        """See ``Place.replace``."""
        if self.path.is_dir():
            self.remove()
        made.replace(self.path)

    def remove(self) -> None:
        """See ``Place.remove``."""
        remove(self.path)


class RemotePlace(Place):
    """One that fsspec reaches.

    Args:
        url: such as ``s3://bucket/rows.jsonl``.

    Raises:
        UsageError: nothing that is installed reads such URLs.
    """

    def __init__(self, url: str):
        self.url = url
        with _reaching(url):
            from fsspec.core import url_to_fs

            self._files, self._path = url_to_fs(url)

    def __str__(self) -> str:
        return self.url

    @property
    def path(self) -> PurePosixPath:
        """See ``Place.path``."""
        return PurePosixPath(self._path)

    @property
    def on_this_machine(self) -> LocalPlace | None:
        """The same place by its path, for a URL such as ``file:///folder/rows.jsonl``."""
        from fsspec.implementations.local import LocalFileSystem

        return LocalPlace(Path(self._path)) if isinstance(self._files, LocalFileSystem) else None

    @property
    def local_name(self) -> str:
        """A name that no other URL has, for what belongs to this one on this machine's disks."""
        return f"{self.name}.{hashlib.blake2b(self.url.encode(), digest_size=4).hexdigest()}"

    def with_name(self, name: str) -> RemotePlace:
        """See ``Place.with_name``."""
        url = self.url.rstrip("/")
        if not url.endswith(self.name):
            raise UsageError(f"{self.url}: expected a URL that ends with the name of the answers; give another")
        return RemotePlace(url.removesuffix(self.name) + name)

    def exists(self) -> bool:
        """See ``Place.exists``."""
        with _reaching(self.url):
            self._files.invalidate_cache()  # another machine may have written it
            return bool(self._files.exists(self._path))

    def names(self) -> list[str] | None:
        """See ``Place.names``."""
        with _reaching(self.url):
            self._files.invalidate_cache()
            if not self._files.isdir(self._path):
                return None
            return [PurePosixPath(path).name for path in self._files.ls(self._path, detail=False)]

    def is_same(self, other: Place) -> bool:
        """See ``Place.is_same``."""
        return isinstance(other, RemotePlace) and (other._files, other._path) == (self._files, self._path)

    def fetch(self, folder: Path) -> Path:
        """See ``Place.fetch``."""
        target = folder / self.name
        with _reaching(self.url):
            self._files.get(self._path, str(target), recursive=self._files.isdir(self._path))
        return target

    def replace(self, made: Path) -> None:
        """See ``Place.replace``: the copy on this machine stays."""
        with _reaching(self.url, OSError):  # the job can go on when the storage is back
            if not made.is_dir():
                self._files.put_file(str(made), self._path)
                return
            if self._files.exists(self._path):
                self._files.rm(self._path, recursive=True)
            self._files.put(f"{made}/", f"{self._path}/", recursive=True)

    def remove(self) -> None:
        """See ``Place.remove``."""
        if self.exists():
            with _reaching(self.url):
                self._files.rm(self._path, recursive=True)


def place_of(text: str) -> Place:
    """The place that a path or a URL names.

    Raises:
        UsageError: nothing that is installed reads such URLs.
    """
    if _SCHEME not in text:
        return LocalPlace(Path(text))
    place = RemotePlace(text)
    return place.on_this_machine or place


def remove(path: Path) -> None:
    """Delete a file, or a folder that was made here; if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _reaching(url: str, kind: type[Exception] = UsageError) -> Generator[None]:
    try:
        yield
    except ImportError as error:
        raise UsageError(f"{url}: {error}") from error
    except Exception as error:  # each kind of storage has errors of its own
        raise kind(f"cannot reach {url}: {cause(error)}") from error
