"""Push folders and files to the Hugging Face Hub."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from maskpolicy import hub
from maskpolicy.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def check_name(name: str) -> None:
    """Raise ConfigError unless a name is OWNER/NAME, as the Hub wants it."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"--push {name}: write OWNER/NAME, with your name on the Hub as OWNER")


def push(path: Path, name: str, kind: Literal["model", "dataset"], *, private: bool = False) -> str:
    """Upload a file or the files of a folder to a repository of the Hub, and return its address.

    A repository that does not exist is created, `private` or not; in one that does, files of the
    same names are replaced. The token is that of `hf auth login` or of $HF_TOKEN. Raises
    ConfigError if the Hub refuses it or cannot be reached.
    """
    from huggingface_hub import HfApi, constants, is_offline_mode

    if is_offline_mode():
        raise ConfigError(f"--push {name}: HF_HUB_OFFLINE is set: unset it")
    if not hub.is_reachable(constants.ENDPOINT):
        raise ConfigError(
            f"--push {name}: {constants.ENDPOINT} cannot be reached: check the network, and "
            "run the command again"
        )
    api, message = HfApi(), "Made with maskpolicy"
    refused: tuple[type[Exception], ...] = (OSError, ValueError, *hub.http_errors())
    try:
        address = api.create_repo(name, repo_type=kind, private=private, exist_ok=True)
        if path.is_dir():
            api.upload_folder(
                repo_id=name, folder_path=path, repo_type=kind, commit_message=message
            )
        else:
            api.upload_file(
                path_or_fileobj=path,
                path_in_repo=path.name,
                repo_id=name,
                repo_type=kind,
                commit_message=message,
            )
    except refused as error:
        raise ConfigError(
            f"--push {name}: {hub.reason(error)} (`hf auth login` or HF_TOKEN gives the token)"
        ) from error
    return str(address)
