"""The code of docs/adding.md runs and prints what the page says."""

import doctest
import re

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "adding.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, flags=re.DOTALL))
SESSION = "\n".join(re.findall(r"```pycon\n(.*?)```", PAGE, flags=re.DOTALL))


def failures(session: str) -> int:
    example = doctest.DocTestParser().get_doctest(session, {}, "docs/adding.md", None, None)
    return doctest.DocTestRunner(verbose=False).run(example).failed


@pytest.fixture
def written_files(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)


def test_the_code_of_the_page_gives_the_results_of_the_page(written_files):
    assert sorted(FILES) == ["my_estimators.py", "my_rewards.py"]
    assert SESSION.count(">>>") > 10
    assert failures(SESSION) == 0


def test_a_wrong_result_on_the_page_would_be_noticed(written_files):
    assert failures(SESSION.replace("[[1.0, 0.5]]", "[[1.0, 0.6]]")) == 1
