"""`hf-cmal demo` on recipes/toy with everything made small: the road of both tasks, walked to its tables."""

import json
from pathlib import Path

import pytest
import yaml

from hf_cmal.cli.main import main
from hf_cmal.evaluation.report import result_table
from hf_cmal.tasks import TASKS

TOY = Path(__file__).resolve().parents[2] / "recipes" / "toy"
SMALL = {
    "data": {"toy_rows": [12, 2, 2], "max_target_length": 16},
    "model": {
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "attention_heads": 2,
        "ffn_dim": 16,
        "num_agents": 16,
    },
    "validation_rows": 1,
}
SHORT = {"max_steps": 1, "logging_steps": 1}
EVERY_STEP = {"eval_steps": 1, "save_steps": 1, "per_device_train_batch_size": 4, "num_samples": 2}


def miniature(folder: Path) -> None:
    """A copy of the toy ladders that takes one step of each training."""
    for source in TOY.rglob("*.yaml"):
        recipe = yaml.safe_load(source.read_text(encoding="utf-8"))
        for part, values in SMALL.items() if source.name == "base.yaml" else ():
            recipe[part] = {**recipe[part], **values} if isinstance(values, dict) else values
        if "training" in recipe:
            recipe["training"].update(SHORT, **(EVERY_STEP if recipe["stage"] == "cmal" else {}))
        if "evaluation" in recipe:
            recipe["evaluation"].update(latency_rows=1, examples=1)
        target = folder / source.relative_to(TOY)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(yaml.safe_dump(recipe), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what is so small is cut, and so on
def test_the_demo_trains_both_ladders_and_prints_their_tables_and_sentences(tmp_path, capsys):
    miniature(tmp_path / "recipes")
    root = tmp_path / "demo"
    main(["demo", "--recipes", str(tmp_path / "recipes"), "--root", str(root), "--seed", "3"])
    out = capsys.readouterr().out
    for task in TASKS:
        folder = root / task / "07_evaluate"
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        assert (result["task"], result["seed"], result["rows"]) == (task, 3, 2)
        assert len(result["systems"]) == 6
        assert all(
            {"latency_ms", "speedup", "repetition_rate"} <= s.keys() for s in result["systems"].values()
        )
        assert result_table(result) in out
        (example,) = json.loads((folder / "examples.json").read_text(encoding="utf-8"))
        assert all(f"{name}: {text}" in out for name, text in example["systems"].items())
        assert sorted(p.name for p in (root / task).iterdir()) == sorted(
            p.stem for p in (TOY / task).glob("0*.yaml")
        )


def test_a_folder_without_the_ladders_is_named_with_the_option_that_names_another(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--recipes", str(tmp_path)])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert f"no recipes at {tmp_path}" in error
    assert "--recipes DIR" in error
    assert error.count("\n") == 1
