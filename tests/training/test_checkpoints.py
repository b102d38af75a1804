"""Which checkpoint counts as the last one."""

import json
from pathlib import Path

import pytest

from hf_cmal.training.checkpoints import last_complete_checkpoint


def checkpoint(folder: Path, step: int, *, state: str | None = '{"global_step": 1}') -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    (path / "model.safetensors").write_bytes(b"weights")
    if state is not None:
        (path / "trainer_state.json").write_text(state)
    return path


def test_the_newest_is_the_one_of_the_most_steps_not_of_the_last_name(tmp_path):
    for step in (9, 100, 20):
        checkpoint(tmp_path, step)
    assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-100")


def test_there_is_none_in_a_folder_without_checkpoints_or_without_existence(tmp_path):
    assert last_complete_checkpoint(tmp_path) is None
    assert last_complete_checkpoint(tmp_path / "nothing") is None


@pytest.mark.parametrize("state", [None, "", '{"global_st'])
def test_a_checkpoint_without_a_whole_trainer_state_is_passed_over_and_removed_on_request(state, tmp_path):
    whole, torn = checkpoint(tmp_path, 5), checkpoint(tmp_path, 10, state=state)
    assert last_complete_checkpoint(tmp_path) == str(whole)
    assert torn.is_dir()
    with pytest.warns(UserWarning, match=r"checkpoint-10 was being written.*goes on from checkpoint-5"):
        assert last_complete_checkpoint(tmp_path, remove_torn=True) == str(whole)
    assert not torn.exists()
    assert json.loads((whole / "trainer_state.json").read_text()) == {"global_step": 1}


def test_where_the_only_checkpoint_is_torn_the_run_begins_anew(tmp_path):
    checkpoint(tmp_path, 3, state=None)
    with pytest.warns(UserWarning, match="goes on from its beginning"):
        assert last_complete_checkpoint(tmp_path, remove_torn=True) is None
