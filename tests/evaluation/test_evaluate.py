"""Evaluation of tiny real models on rows of the toy world."""

import json
from dataclasses import replace

import pytest
import torch

from hf_cmal.data.columns import REFERENCES, SOURCE
from hf_cmal.evaluation.evaluate import EvaluationOptions, System, evaluate_systems
from hf_cmal.evaluation.loading import load_model, load_tokenizer
from hf_cmal.evaluation.source_length import source_lengths
from hf_cmal.tasks import get_task
from hf_cmal.training.recipe import parse_recipe
from hf_cmal.training.stages import run_stage
from tests.evaluation.tiny_ladder import CAPTIONING_DATA, TRANSLATION_DATA, save_translators

TRANSLATION, CAPTIONING = get_task("translation"), get_task("captioning")
OWN = ("a red star lies here", "we see a big purple circle")
BOUNDS = (24, 30)  # of the ten sources 2, 3 and 5 have at most 24, 25 to 30, and more subwords


def split_rows(task=TRANSLATION, data=TRANSLATION_DATA):
    return task.load(data)["test"]


def evaluated(systems, *, task=TRANSLATION, data=TRANSLATION_DATA, rows=None, **options):
    rows = split_rows(task, data) if rows is None else rows
    options = {"batch_size": 4, "examples": len(rows), **options}
    return evaluate_systems(
        EvaluationOptions(systems=systems, **options), task=task, data=data, rows=rows,
        device=torch.device("cpu"),
    )  # fmt: skip


def sentences(examples, name):
    return [example["systems"][name] for example in examples]


@pytest.fixture(scope="module")
def run(translators):
    """All kinds of systems of a translation, timed."""
    systems = {
        "teacher_greedy": System(f"{translators}/teacher"),
        "teacher_beam2": System(f"{translators}/teacher", num_beams=2),
        "student": System(f"{translators}/student"),
        "student_postprocess": System(f"{translators}/student", remove_consecutive_duplicates=True),
    }
    return evaluated(systems, rival="teacher_beam2", latency_rows=2, length_bounds=BOUNDS)


def decode_one_by_one(translators, sources, role, **settings):
    """What the model itself makes of each source, without the package's batches, collators and options."""
    folder = f"{translators}/{role}"
    model, tokenizer = load_model(folder).eval(), load_tokenizer(folder)
    ids = [tokenizer(source, return_tensors="pt") for source in sources]
    tokens = [model.generate(**row, **settings, max_length=49)[0] for row in ids]
    return [tokenizer.decode(one, skip_special_tokens=True) for one in tokens]


@pytest.mark.parametrize(
    ("name", "role", "beams"), [("student", "student", {}), ("teacher_beam2", "teacher", {"num_beams": 2})]
)
def test_sentences_are_those_of_decoding_one_by_one_in_the_order_of_the_input(
    run, translators, name, role, beams
):
    sources = split_rows()[SOURCE]
    lengths = source_lengths(load_tokenizer(f"{translators}/{role}"), sources)
    one_by_one = decode_one_by_one(translators, sources, role, **beams)
    by_length = sorted(range(len(lengths)), key=lengths.__getitem__)
    assert [
        one_by_one[index] for index in by_length
    ] != one_by_one  # decoded in another order than the input's
    assert sentences(run[1], name) == one_by_one


def test_examples_hold_source_and_references_of_their_row(run):
    _, examples = run
    assert [example["source"] for example in examples] == list(split_rows()[SOURCE])
    assert [example["references"] for example in examples] == list(split_rows()[REFERENCES])


def test_scores_belong_to_the_systems_sentences(run):
    result, examples = run
    for name in ("teacher_greedy", "student_postprocess"):
        expected = TRANSLATION.scores(sentences(examples, name), split_rows()[REFERENCES])
        assert result["systems"][name].items() >= expected.items()
    assert result["systems"]["student"]["chrf"] != result["systems"]["teacher_greedy"]["chrf"]


def test_a_system_that_postprocesses_reports_the_repetition_before_it(run):
    plain, postprocessed = (run[0]["systems"][name] for name in ("student", "student_postprocess"))
    assert postprocessed["mean_length"] < plain["mean_length"]  # repetitions were there, and are gone
    assert postprocessed["repetition_rate"] == plain["repetition_rate"] > 0


def test_a_result_holds_no_sentence(run, translators):
    result, examples = run
    text = json.dumps(result, ensure_ascii=False)
    written = [
        s
        for example in examples
        for s in (example["source"], *example["references"], *example["systems"].values())
    ]
    assert len(written) >= 10 * 10
    assert [sentence for sentence in written if len(sentence) > 3 and sentence in text] == []
    assert str(translators) not in text


def test_a_result_says_what_it_depends_on(run):
    result, _ = run
    assert {"python", "torch", "transformers", "sacrebleu", "hf-cmal"} <= result["versions"].keys()
    assert torch.__version__.startswith(result["versions"]["torch"])
    assert {"processor", "cpus", "threads", "accelerator"} <= result["hardware"].keys()
    assert "commit" in result
    assert {name: result[name] for name in ("task", "split", "rows", "main_score")} == {
        "task": "translation", "split": "test", "rows": 10, "main_score": "bleu",
    }  # fmt: skip
    for system in result["systems"].values():
        assert {"bleu_signature", "bleu_tokenised_signature", "chrf_signature"} <= system.keys()


def test_a_result_says_what_each_system_is(run):
    kinds = {
        name: (s["kind"], s["num_beams"], s["remove_consecutive_duplicates"])
        for name, s in run[0]["systems"].items()
    }
    assert kinds == {
        "teacher_greedy": ("teacher", 1, False), "teacher_beam2": ("teacher", 2, False),
        "student": ("student", 1, False), "student_postprocess": ("student", 1, True),
    }  # fmt: skip


def test_speedups_are_latencies_of_the_rival_over_those_of_the_systems(run):
    systems, latency = run[0]["systems"], run[0]["latency"]
    assert (latency["rival"], latency["inputs"], latency["dtype"]) == ("teacher_beam2", 2, "float32")
    for system in systems.values():
        ratio = systems["teacher_beam2"]["latency_ms"] / system["latency_ms"]
        assert system["speedup"] == pytest.approx(ratio)


def test_without_a_rival_nothing_is_timed(translators):
    result, _ = evaluated({"student": System(f"{translators}/student")})
    assert "latency" not in result
    assert "latency_ms" not in result["systems"]["student"]


def test_no_system_sees_the_references(translators):
    rows = split_rows().select(range(4))
    turned = rows.remove_columns(REFERENCES).add_column(
        REFERENCES, [*rows[REFERENCES][1:], rows[REFERENCES][0]]
    )
    systems = {"student": System(f"{translators}/student"), "teacher": System(f"{translators}/teacher")}
    (_, before), (_, after) = evaluated(systems, rows=rows), evaluated(systems, rows=turned)
    assert before[0]["references"] != after[0]["references"]
    assert [example["systems"] for example in before] == [example["systems"] for example in after]


def test_captioning_systems_get_their_scores(captioners):
    systems = {
        "teacher": System(f"{captioners}/teacher", num_beams=2),
        "student": System(f"{captioners}/student"),
    }
    result, examples = evaluated(
        systems, task=CAPTIONING, data=CAPTIONING_DATA, rival="teacher", latency_rows=1
    )
    assert result["main_score"] == "cider"
    for name, system in result["systems"].items():
        assert {
            "cider",
            "cider_signature",
            "bleu_4",
            "rouge_l",
            "repetition_rate",
            "latency_ms",
        } <= system.keys()
        assert len(set(sentences(examples, name))) > 1
    assert examples[0]["source"] is None


# --- by source length (CMAL Sec. 6.5)


def test_each_bucket_is_scored_as_a_corpus_of_its_own_rows(translators):
    """By chrF, which tells apart what so small models write."""
    systems = {role: System(f"{translators}/{role}") for role in ("teacher", "student")}
    task = replace(TRANSLATION, main_score="chrf")
    result, examples = evaluated(systems, task=task, length_bounds=BOUNDS)
    part = result["by_source_length"]
    assert (part["bounds"], part["rows"]) == ([24, 30], [2, 3, 5])
    lengths = source_lengths(load_tokenizer(f"{translators}/teacher"), split_rows()[SOURCE])
    assert lengths == [24, 32, 34, 27, 28, 27, 34, 31, 31, 21]
    for bucket, rows in enumerate(([0, 9], [3, 4, 5], [1, 2, 6, 7, 8])):
        for name in systems:
            hypotheses = [sentences(examples, name)[row] for row in rows]
            references = [split_rows()[REFERENCES][row] for row in rows]
            score = TRANSLATION.scores(hypotheses, references)["chrf"]
            assert part["systems"][name][bucket] == score != result["systems"][name]["chrf"]


def test_every_system_is_scored_by_length_in_the_order_of_the_table(run):
    systems = run[0]["by_source_length"]["systems"]
    assert list(systems) == list(run[0]["systems"])
    assert {len(scores) for scores in systems.values()} == {3}


def test_the_first_systems_subwords_decide_the_buckets_of_all_systems(translators, tmp_path):
    """With 400 entries instead of 450 all ten sources have more than 30 subwords."""
    coarse = save_translators(tmp_path, vocab_size=400)
    systems = {"coarse": System(f"{coarse}/student"), "fine": System(f"{translators}/student")}
    first, turned = (
        evaluated({name: systems[name] for name in order}, length_bounds=BOUNDS)[0]["by_source_length"]
        for order in (("fine", "coarse"), ("coarse", "fine"))
    )
    assert (first["rows"], turned["rows"]) == ([2, 3, 5], [0, 0, 10])
    assert turned["systems"]["fine"][0] is None


def test_a_bucket_without_rows_has_no_score(translators):
    result, _ = evaluated({"student": System(f"{translators}/student")}, length_bounds=(1, 100))
    (scores,) = result["by_source_length"]["systems"].values()
    assert scores == [None, result["systems"]["student"]["bleu"], None]


def test_without_bounds_or_without_text_there_are_no_buckets(translators, captioners):
    result, _ = evaluated({"student": System(f"{translators}/student")}, length_bounds=())
    assert "by_source_length" not in result
    result, _ = evaluated({"student": System(f"{captioners}/student")}, task=CAPTIONING, data=CAPTIONING_DATA)
    assert "by_source_length" not in result


# --- one's own sentences (CMAL Table VII)


@pytest.fixture(scope="module")
def own_sentences(translators):
    systems = {
        "teacher_beam2": System(f"{translators}/teacher", num_beams=2),
        "student": System(f"{translators}/student"),
        "student_postprocess": System(f"{translators}/student", remove_consecutive_duplicates=True),
    }
    return evaluated(systems, rows=split_rows().select([0]), own_sources=OWN)[0]["own_sources"]


@pytest.mark.parametrize(
    ("name", "role", "settings"),
    [
        ("teacher_beam2", "teacher", {"num_beams": 2}),
        ("student", "student", {}),
        ("student_postprocess", "student", {"remove_consecutive_duplicates": True}),
    ],
)
def test_own_sentences_are_translated_as_each_system_decodes(
    own_sentences, translators, name, role, settings
):
    assert [sentence["source"] for sentence in own_sentences] == list(OWN)
    written = [sentence["systems"][name] for sentence in own_sentences]
    assert written == decode_one_by_one(translators, OWN, role, **settings)
    assert len(set(written)) == 2


def test_a_postprocessed_translation_of_an_own_sentence_is_shorter(own_sentences):
    plain, postprocessed = (
        [sentence["systems"][name] for sentence in own_sentences]
        for name in ("student", "student_postprocess")
    )
    assert sum(map(len, postprocessed)) < sum(map(len, plain))


def test_without_own_sentences_or_curves_a_result_has_none(translators):
    result, _ = evaluated({"student": System(f"{translators}/student")})
    assert not {"own_sources", "curves"} & result.keys()


# --- training curves (CMAL Fig. 7)


def test_the_curve_of_a_trained_stage_stands_in_the_result(translators, tmp_path):
    log = [{"step": 10, "loss": 0.25, "reward": 0.5}, {"step": 20, "eval_bleu": 30.0}]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": log}), encoding="utf-8")
    result, _ = evaluated({"student": System(f"{translators}/student")}, curves={"cmal": str(tmp_path)})
    assert result["curves"] == {
        "cmal": {
            "train": [{"step": 10, "loss": 0.25, "reward": 0.5}],
            "validation": [{"step": 20, "bleu": 30.0}],
        }
    }


# --- bad input


def test_no_systems_are_an_error():
    with pytest.raises(ValueError, match=r"evaluation\.systems is empty; name at least one"):
        evaluated({})


def test_an_unknown_rival_is_an_error_that_names_the_systems_before_a_model_is_opened():
    systems = {"teacher": System("not/there"), "student": System("not/there/either")}
    with pytest.raises(ValueError, match=r"evaluation\.rival is 'beam'; legal values: teacher, student"):
        evaluated(systems, rival="beam")


@pytest.mark.parametrize("name", ["batch_size", "latency_rows"])
def test_a_number_below_one_is_an_error_that_names_it(name):
    with pytest.raises(ValueError, match=rf"evaluation\.{name} is 0; give 1 or more"):
        evaluated({"teacher": System("not/there")}, **{name: 0})


def test_no_beam_at_all_is_an_error_that_names_the_system():
    with pytest.raises(ValueError, match=r"evaluation\.systems\.teacher\.num_beams is 0"):
        evaluated({"teacher": System("not/there", num_beams=0)})


def test_a_curve_of_a_folder_without_a_trainers_state_is_an_error_before_a_model_is_opened(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"evaluation\.curves\.cmal: there is no .*trainer_state"):
        evaluated({"student": System("not/there")}, curves={"cmal": str(tmp_path)})


def test_bounds_that_do_not_rise_are_an_error_before_a_model_is_opened():
    with pytest.raises(ValueError, match=r"evaluation\.length_bounds is \[20, 10\]; give whole numbers"):
        evaluated({"student": System("not/there")}, length_bounds=(20, 10))


def test_own_sentences_of_a_task_that_reads_none_are_an_error_before_a_model_is_opened():
    with pytest.raises(ValueError, match=r"own_sources has 2 sentences, but the task captioning reads no"):
        evaluated({"student": System("not/there")}, task=CAPTIONING, data=CAPTIONING_DATA, own_sources=OWN)


def test_an_empty_own_sentence_is_an_error_that_gives_its_number():
    with pytest.raises(ValueError, match=r"sentence 2 of evaluation\.own_sources is empty; remove it"):
        evaluated({"student": System("not/there")}, own_sources=("a dog", " "))


@pytest.mark.filterwarnings("ignore::hf_cmal.data.skipped.SkippedDataWarning")
def test_an_own_sentence_that_would_be_cut_is_an_error_that_gives_its_number(translators):
    """The second of `OWN` has 16 subwords, with the eos 17."""
    system = {"student": System(f"{translators}/student")}
    rows = split_rows().select([0])
    evaluated(system, data=replace(TRANSLATION_DATA, max_source_length=17), rows=rows, own_sources=OWN)
    with pytest.raises(ValueError, match=r"sentence 2 of .* has 16 subwords .* leaves room for 15; shorten"):
        evaluated(system, data=replace(TRANSLATION_DATA, max_source_length=16), rows=rows, own_sources=OWN)


def test_a_student_with_beams_is_an_error(translators):
    with pytest.raises(ValueError, match="is a student: it has no beams; set num_beams to 1"):
        evaluated({"student": System(f"{translators}/student", num_beams=4)})


def test_a_teacher_that_postprocesses_is_an_error(translators):
    with pytest.raises(ValueError, match="is a teacher: only a student removes consecutive duplicates"):
        evaluated({"teacher": System(f"{translators}/teacher", remove_consecutive_duplicates=True)})


def test_a_model_of_the_other_task_is_an_error(translators, captioners):
    with pytest.raises(
        ValueError, match="a captioning model, which reads features, but the task is translation"
    ):
        evaluated({"student": System(f"{captioners}/student")})
    with pytest.raises(ValueError, match="a model that reads text but the task is captioning"):
        evaluated({"teacher": System(f"{translators}/teacher")}, task=CAPTIONING, data=CAPTIONING_DATA)


def test_longer_sequences_than_a_model_has_positions_are_an_error_before_it_decodes(translators):
    """The models have 49 positions."""
    long_row = split_rows().select([0]).map(lambda row: {SOURCE: row[SOURCE] + " very" * 100})
    long_sources = replace(TRANSLATION_DATA, max_source_length=60)
    for role in ("student", "teacher"):
        with pytest.raises(ValueError, match=f"{role} knows 49 positions, .* 60 tokens; .*at most 48"):
            evaluated({role: System(f"{translators}/{role}")}, data=long_sources, rows=long_row)
    with pytest.raises(ValueError, match="teacher knows 49 positions, .* 50 tokens"):
        evaluated(
            {"teacher": System(f"{translators}/teacher")},
            data=replace(TRANSLATION_DATA, max_target_length=50),
        )
    # a limit that no sentence reaches is none
    evaluated({"student": System(f"{translators}/student")}, data=long_sources, rows=split_rows().select([0]))


def test_a_missing_folder_is_an_error_of_one_line_that_names_it(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        evaluated({"student": System(str(tmp_path / "gone"))})
    assert str(tmp_path / "gone") in str(error.value)
    assert "\n" not in str(error.value)


# --- the stage


def evaluate_recipe(translators, folder, **evaluation):
    systems = {"student": {"model": f"{translators}/student"}}
    return parse_recipe(
        {
            "stage": "evaluate", "task": "translation", "seed": 7, "output_dir": str(folder),
            "data": {"toy_rows": [2, 2, 3, 1], "vocab_size": 450, "max_target_length": 48},
            "evaluation": {"systems": systems, "examples": 2, **evaluation},
        },
        where="recipe",
    )  # fmt: skip


def test_the_stage_writes_the_result_with_its_seed_and_the_examples_apart(translators, tmp_path):
    run_stage(evaluate_recipe(translators, tmp_path, split="validation"))
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    examples = json.loads((tmp_path / "examples.json").read_text(encoding="utf-8"))
    assert (result["seed"], result["split"], result["rows"]) == (7, "validation", 2)
    assert [example["systems"].keys() for example in examples] == [{"student"}, {"student"}]
    assert (tmp_path / "recipe.yaml").is_file()


@pytest.mark.parametrize("split", ["dev", "unlabeled"])
def test_a_split_without_references_is_an_error_that_names_the_legal_ones(translators, tmp_path, split):
    with pytest.raises(
        ValueError, match=f"evaluation.split is '{split}'; legal values: train, validation, test$"
    ):
        run_stage(evaluate_recipe(translators, tmp_path, split=split))
