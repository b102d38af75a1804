"""Trained folders, made once for each module of tests, and the variable that says where their data lie."""

from pathlib import Path
from typing import Any

import pytest

from tests.hub.trained import save_trained


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data) -> tuple[Path, dict[str, Any]]:
    """The folder that holds teacher/ and student/, and the result of measuring them."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, save_trained(folder, data=data)


@pytest.fixture
def data_variable(monkeypatch, data):
    monkeypatch.setenv("HF_CMAL_DATA", str(data))
