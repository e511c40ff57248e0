"""Where a model's files are: a folder, this package, or a repository of the Hub at one commit.

A Hub id is resolved to a commit before anything is loaded: all files come from the same commit, and those in the local
cache are loaded without the network. Where the Hub cannot be reached, the cached snapshot is loaded as a folder.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UsageError

BUILT_IN = "demo"  # the name of the model that comes with the package
WHERE = f"a folder with a saved model, an id on the Hugging Face Hub, or '{BUILT_IN}'"

# The rule of `huggingface_hub.utils.validate_repo_id`, whose import would take a second.
_HUB_ID = re.compile(r"(?!.*(?:--|\.\.|\.git$))(?:\b[\w\-.]{1,96}\b/)?\b[\w\-.]{1,96}\b", re.ASCII)
_CACHED = ("config.json", "tokenizer_config.json", "tokenizer.json")  # one of them is in every repository of a model
_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Location:
    """The arguments of ``from_pretrained``.

    Args:
        name: as the user wrote it.
        path: a folder, or an id on the Hub.
        revision: of the id; None for a folder.
        commit: of a snapshot in the local cache too; None for a folder of the user's own.
    """

    name: str
    path: str
    revision: str | None = None
    commit: str | None = None

    @contextmanager
    def loading(self, what: str) -> Iterator[None]:
        """Around ``from_pretrained``: its errors become a UsageError that names the model.

        Args:
            what: "model", "tokenizer" or "processor".
        """
        try:
            yield
        except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
            hint = ""
            if self.commit is not None and self.path != self.name:
                hint = f" (from the local Hub cache, {self.path}, which may be incomplete; {_offline()})"
            elif "trust_remote_code" in str(error):
                hint = " (on the command line: --trust-remote-code)"
            raise UsageError(f"cannot load a {what} from {self.name!r}: {error}{hint}") from error


def is_built_in(name: str) -> bool:
    """Whether it is the model that comes with the package; a folder of its name comes first."""
    return name == BUILT_IN and not os.path.isdir(name)


def is_on_hub(name: str) -> bool:
    """Whether it is an id on the Hub, and no folder.

    Raises:
        UsageError: it is nothing at all.
    """
    if os.path.isdir(name) or name == BUILT_IN:
        return False
    if _HUB_ID.fullmatch(name):
        return True
    raise UsageError(f"the folder {name!r} does not exist, and an id on the Hub looks otherwise; give {WHERE}")


def locate(name: str, revision: str | None, *, of_tokenizer: bool = False) -> Location:
    """Find the files of a model.

    Args:
        name: a folder, an id on the Hub, or "demo".
        revision: of the Hub repository: a branch, a tag or a commit; None is its main branch.
        of_tokenizer: which of the files that come with this package.

    Raises:
        UsageError: there is no such model, or the Hub cannot be reached and it is not in the local cache.
    """
    if is_on_hub(name):
        return _locate_on_hub(name, revision)
    if revision is not None:
        raise UsageError(f"revision {revision!r}: only a Hub repository has revisions, and {name!r} is none")
    if not is_built_in(name):
        return Location(name, name)
    from .. import demo

    folder = demo.TOKENIZER_FOLDER if of_tokenizer else demo.MODEL_FOLDER
    return Location(name, str(Path(demo.__file__).parent / folder))


def _locate_on_hub(name: str, revision: str | None) -> Location:
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError

    unreachable: Any = None
    if not constants.is_offline_mode():
        try:
            api = HfApi()
            commit = api.model_info(name, revision=revision, timeout=_TIMEOUT_S).sha
            if hasattr(api, "resolve_revision"):  # writes the commit into the cache, for later offline use
                api.resolve_revision(name, revision=revision)
            # The commit, not the branch, which may move between the files that are loaded one after another.
            return Location(name, name, commit or revision, commit)
        except HfHubHTTPError as error:
            if error.response.status_code < 500:
                raise UsageError(_not_on_hub(name, revision, error)) from error
            unreachable = error
        except Exception as error:  # errors of the network, in one HTTP library or another
            unreachable = error
    snapshot = _snapshot(name, revision)
    if snapshot is None:
        why = "" if unreachable is None else f", and the Hub ({constants.ENDPOINT}) cannot be reached ({unreachable})"
        at = "" if revision is None else f" --revision {revision}"
        raise UsageError(
            f"{name!r}{at} is not a folder here, and not in the local Hub cache {constants.HF_HUB_CACHE}{why}; "
            f"{_offline()}; `hf download {name}{at}` puts it into the cache"
        )
    if unreachable is not None:
        logging.getLogger("hf_guided").warning(
            "the Hub cannot be reached (%s): loading %s from the local cache, %s", unreachable, name, snapshot
        )
    return Location(name, str(snapshot), commit=snapshot.name)


def _snapshot(name: str, revision: str | None) -> Path | None:
    """The folder of a revision in the local cache, if it is there."""
    from huggingface_hub import try_to_load_from_cache

    for file in _CACHED:
        cached = try_to_load_from_cache(name, file, revision=revision)
        if isinstance(cached, str):
            return Path(cached).parent
    return None


def _offline() -> str:
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return "HF_HUB_OFFLINE is set, which forbids a download: unset it to allow one"
    return "with HF_HUB_OFFLINE=1 only the cache is used, and the Hub is not contacted"


def _not_on_hub(name: str, revision: str | None, error: Exception) -> str:
    from huggingface_hub.errors import GatedRepoError, RevisionNotFoundError

    if isinstance(error, RevisionNotFoundError):
        return f"--revision {revision}: the Hub repository {name!r} has no such branch, tag or commit"
    if isinstance(error, GatedRepoError):
        return f"the Hub repository {name!r} is gated: ask for access on its page, then run `hf auth login`"
    return (
        f"{name!r} is not a folder here, and the Hub has no such model, or does not show it to you ({error}); check "
        "the name, or run `hf auth login`"
    )
