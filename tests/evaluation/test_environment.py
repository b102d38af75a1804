"""What a result says about the commit of the code, in repositories made here."""

import subprocess

import pytest

from hf_cmal.evaluation import environment
from hf_cmal.evaluation.environment import describe_environment


@pytest.fixture
def git(tmp_path, monkeypatch):
    """A repository with one commit, in which package/evaluation/environment.py lies untracked."""

    def git(*words):
        author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        done = subprocess.run(
            ["git", "-C", tmp_path, *author, *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init", "--quiet")
    (tmp_path / "other.txt").write_text("another project")
    git("add", "other.txt")
    git("commit", "--quiet", "-m", "first")
    module = tmp_path / "package" / "evaluation" / "environment.py"
    module.parent.mkdir(parents=True)
    module.write_text("# the code")
    monkeypatch.setattr(environment, "__file__", str(module))
    return git


def commit():
    return describe_environment()["commit"]


def test_the_commit_of_a_clone_is_named_and_edited_code_is_marked(git, tmp_path):
    git("add", "package")
    git("commit", "--quiet", "-m", "second")
    head = git("rev-parse", "--short", "HEAD")
    assert commit() == head
    (tmp_path / "other.txt").write_text("no code of the package")
    assert commit() == head
    (tmp_path / "package" / "evaluation" / "environment.py").write_text("# edited")
    assert commit() == f"{head}+changes"


def test_the_commit_of_another_project_that_holds_the_environment_is_not_named(git):
    assert git("rev-parse", "HEAD")
    assert commit() is None


def test_outside_of_a_repository_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "environment.py"))
    assert commit() is None
