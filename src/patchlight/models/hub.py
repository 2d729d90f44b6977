"""Whether a host that keeps weights answers: without a network the libraries retry for up to 45 s, so it is asked first."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from pathlib import Path, PurePosixPath


def answers(url: str, *, timeout: float = 5.0) -> bool:
    """Whether anything at all comes back from a URL, through the proxies of the environment."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=timeout):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return True
    except (OSError, ValueError) as error:
        return isinstance(getattr(error, "reason", error), ssl.SSLError)  # it is there; the library may know its certificate


def hub_answers() -> bool:
    """Whether the Hugging Face hub may be asked."""
    from huggingface_hub import constants

    return not constants.HF_HUB_OFFLINE and answers(constants.ENDPOINT)


def hub_folder(repository: str) -> Path | None:
    """The folder of a hub repository (`owner/name`, `owner/name@revision`) in the local cache."""
    from huggingface_hub import snapshot_download

    identity, _, revision = repository.partition("@")
    try:
        return Path(snapshot_download(identity, revision=revision or None, local_files_only=True))
    except (OSError, ValueError):
        return None


def torch_cached(url: str) -> bool:
    """Whether torch.hub has the file of a URL."""
    import torch

    return (Path(torch.hub.get_dir()) / "checkpoints" / PurePosixPath(url).name).is_file()
