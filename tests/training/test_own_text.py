"""recipes/own_text: two text files in, a teacher and its student out, by one command."""

import json

import pytest

from hf_cmal.cli.main import main
from tests.training.miniature import RECIPES, miniature, write_pairs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*decoding limit", "ignore:.*held out", "ignore:.*wrote nothing"),
]


def test_two_files_become_a_teacher_and_a_student_that_translates(tmp_path, capsys):
    write_pairs(tmp_path, 60)
    root = tmp_path / "made"
    files = f"data.train=[{tmp_path}/train.en,{tmp_path}/train.de]"
    small = ["model.d_model=16", "model.ffn_dim=16", "data.vocab_size=300"]
    main(["run", str(miniature("own_text", tmp_path / "recipes")), f"root={root}", files, *small])
    result = json.loads((root / "07_evaluate" / "result.json").read_text())
    assert list(result["systems"]) == ["teacher_beam4", "nat_xe", "nat_cmal", "nat_cmal_postprocess"]
    assert "nat_cmal_postprocess" in capsys.readouterr().out
    dropout = {
        stage: json.loads((root / stage / "config.json").read_text())["dropout"]
        for stage in ("01_teacher_xe", "04_student_xe", "05_cmal")
    }
    assert dropout == {"01_teacher_xe": 0.1, "04_student_xe": 0.2, "05_cmal": 0.2}
    main(
        [
            "translate",
            "--model",
            str(root / "05_cmal"),
            "--compare",
            str(root / "01_teacher_xe"),
            "a red circle",
        ]
    )
    shown = capsys.readouterr().out
    assert "a red circle" in shown and "ms" in shown


def test_without_text_the_command_asks_for_it(capsys):
    with pytest.raises(SystemExit):
        main(["run", str(RECIPES / "own_text")])
    assert "add data.train=..." in capsys.readouterr().err
