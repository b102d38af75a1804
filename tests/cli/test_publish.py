"""`hf-cmal publish`: the command line's way to a release, and from there to `hf-cmal translate`."""

import json

import pytest

from hf_cmal.cli.main import main
from tests.hub.trained import EXAMPLE, save_trained


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    data = tmp_path_factory.mktemp("data")
    (folder / "result.json").write_text(json.dumps(save_trained(folder, data=data)))
    return folder, data


@pytest.fixture
def publish(trained, tmp_path, monkeypatch):
    folder, data = trained
    monkeypatch.setenv("HF_CMAL_DATA", str(data))

    def publish(**changed: str) -> str:
        options = {
            "result": f"{folder}/result.json", "system": "nat_postprocess", "dataset": "bentrevett/multi30k",
            "license": "non-commercial-research", "domain": "coloured shapes", **changed,
        }  # fmt: skip
        flags = [word for name, value in options.items() for word in (f"--{name}", value)]
        output = str(tmp_path / "my-nag")
        main(["publish", f"{folder}/student", output, *flags, "--languages", "en", "de"])
        return output

    return publish


def test_what_is_published_translates_and_is_named_with_domain_and_licence(publish, capsys):
    output = publish()
    assert f"{output} is ready" in capsys.readouterr().out
    main(["translate", "--model", output, EXAMPLE])
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 1 and captured.out.strip()
    assert captured.err == "hf-cmal: my-nag, for coloured shapes; licence: non-commercial-research\n"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"license": "mit"}, "--license is 'mit'; legal values: apache-2.0, non-commercial-research"),
        ({"system": "nobody"}, "nobody"),
        ({"dataset": "wmt"}, "dataset is 'wmt'"),
        ({"result": "/nowhere.json"}, "/nowhere.json"),
    ],
)
def test_a_mistake_ends_in_one_line_that_names_it(changed, message, publish, capsys):
    with pytest.raises(SystemExit) as stop:
        publish(**changed)
    captured = capsys.readouterr()
    assert stop.value.code == 2
    assert message in captured.err and captured.err.count("\n") == 1
