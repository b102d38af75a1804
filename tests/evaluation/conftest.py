"""The tiny models, made once for all tests of this room."""

from pathlib import Path

import pytest

from tests.evaluation.tiny_ladder import save_captioners, save_translators


@pytest.fixture(scope="session")
def translators(tmp_path_factory) -> Path:
    return save_translators(tmp_path_factory.mktemp("translators"))


@pytest.fixture(scope="session")
def captioners(tmp_path_factory) -> Path:
    return save_captioners(tmp_path_factory.mktemp("captioners"))
