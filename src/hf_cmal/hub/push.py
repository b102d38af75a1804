"""Pushes a saved folder to the Hub: weights, tokenizer, code, recipe and card, without the training state.

A model that is only in memory needs no function of ours: `model.push_to_hub(repo_id)` carries its code as
well. It does not train, convert or evaluate, and writes nothing into the folder.
"""

import json
from pathlib import Path

from huggingface_hub import HfApi

# Of use for resuming only. The first two are pickles, which nobody should have to trust in order to
# translate; the n-grams of the last give away the sentences that were learnt from.
TRAINING_STATE = [
    "*training_args.bin",
    "*optimizer.*",
    "*scheduler.pt",
    "*scaler.pt",
    "*rng_state*.pth",
    "*trainer_state.json",
    "checkpoint-*",
    "runs/*",
    "*document_frequencies.safetensors",
]


def push_to_hub(
    folder: str | Path,
    repo_id: str,
    *,
    card: str | None = None,
    private: bool = False,
    token: str | None = None,
    commit_message: str = "Upload with hf_cmal",
) -> str:
    """Uploads a folder that `save_pretrained` wrote, and returns the address of the commit.

    Args:
        folder: holds config.json, weights, and for a translator its tokenizer.
        repo_id: "owner/name"; created if it does not exist.
        card: text of README.md, see [`model_card`]. `None` pushes the folder's own README.md, if it has one.
        private: whether a newly created repository is private.
        token: of the Hub; `None` takes the one that `hf auth login` stored, or `HF_TOKEN`.
        commit_message: first line of the commit.

    Raises:
        FileNotFoundError: the folder, its config.json or a code file that its config.json names is missing.

    Example:

    ```python
    >>> from hf_cmal import push_to_hub

    >>> push_to_hub("outputs/student", "me/nat-en-de", private=True)
    'https://huggingface.co/me/nat-en-de/commit/...'
    ```
    """
    folder = Path(folder)
    _check_complete(folder)
    api = HfApi(token=token)
    # The Hub may rename, e.g. by prefixing the user's name.
    repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
    ignored = TRAINING_STATE if card is None else [*TRAINING_STATE, "README.md"]
    commit = api.upload_folder(
        repo_id=repo_id, folder_path=folder, ignore_patterns=ignored, commit_message=commit_message
    )
    if card is not None:
        commit = api.upload_file(
            path_or_fileobj=card.encode(),
            path_in_repo="README.md",
            repo_id=repo_id,
            commit_message=f"{commit_message}: card",
        )
    return commit.commit_url


def _check_complete(folder: Path) -> None:
    config_path = folder / "config.json"
    if not config_path.is_file():
        raise FileNotFoundError(f"{config_path} does not exist; push a folder that save_pretrained wrote.")
    auto_map = json.loads(config_path.read_text()).get("auto_map", {})
    for reference in auto_map.values():
        code = folder / f"{reference.split('.')[0]}.py"
        if not code.is_file():
            raise FileNotFoundError(
                f"config.json names {code.name}, which {folder} lacks; save the model again."
            )
