"""Distillation on a tiny random Marian: what is written, and what happens when a run is killed or shared out.

Run as a script (`test_distillation.py DIR [BATCHES]`) this file distils into DIR, as rank of torchrun where
it is one, hanging after so many BATCHES. The tests that kill a run, or run two, start it so.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from datasets import Dataset, concatenate_datasets
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerFast

from hf_cmal.training import distillation, pseudo_targets
from hf_cmal.training.distillation import distill, load_pseudo_targets, weight_checksum

EOS, PAD = 0, 21
NUM_ROWS = 24
# A random teacher repeats itself; told not to, it writes different sentences of one to eight words.
NO_REPETITION = {"no_repeat_ngram_size": 1}
DECODING = {"batch_size": 4, "num_beams": 3, "max_length": 9, "generation_options": NO_REPETITION}

pytestmark = pytest.mark.filterwarnings("ignore:.* reach the decoding limit")


def make_tokenizer():
    words = ["</s>", "<unk>", *(f"w{i}" for i in range(2, PAD)), "<pad>"]
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = WhitespaceSplit()
    backend.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", EOS)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="</s>", unk_token="<unk>", pad_token="<pad>", model_max_length=16
    )


def make_teacher(seed=2, *, start=PAD):
    torch.manual_seed(seed)
    config = MarianConfig(
        vocab_size=PAD + 1, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=32,
        pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=start, forced_eos_token_id=None,
        # Wide enough weights that sentences differ from input to input.
        init_std=0.5,
    )  # fmt: skip
    teacher = MarianMTModel(config).eval()
    teacher.final_logits_bias[0, [EOS, 1, PAD]] = torch.tensor(
        [2.0, -1e4, -1e4]
    )  # ends early, no <unk>, <pad>
    return teacher


def make_rows(num_rows=NUM_ROWS, *, labeled=True):
    """Rows of 2 to 7 words, all different."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(2, 8, (num_rows,), generator=generator)
    words = [torch.randint(2, PAD, (int(length),), generator=generator).tolist() for length in lengths]
    sources = [" ".join(f"w{word}" for word in sentence) for sentence in words]
    references = [[f"reference {i}"] if labeled else [] for i in range(num_rows)]
    return Dataset.from_dict({"source": sources, "references": references})


class Collate:
    """Rows of text -> padded ids, as a training collator would: labels and strings come along."""

    def __init__(self, *, hang_after=None):
        self.tokenizer, self.hang_after, self.calls, self.rows = make_tokenizer(), hang_after, 0, []

    def __call__(self, rows):
        if self.calls == self.hang_after:
            time.sleep(600)
        self.calls += 1
        self.rows += [row["source"] for row in rows]
        encoded = self.tokenizer([row["source"] for row in rows], padding=True, return_tensors="pt")
        labels = torch.full((len(rows), 3), 5)
        return {
            "input_ids": encoded["input_ids"],
            "attention_mask": encoded["attention_mask"],
            "labels": labels,
            "decoder_input_ids": labels,
            "references": [row["references"] for row in rows],
        }


def run_distill(folder, *, teacher=None, dataset=None, collate=None, **options):
    return distill(
        teacher or make_teacher(),
        make_tokenizer(),
        make_rows() if dataset is None else dataset,
        collate=collate or Collate(),
        output_dir=folder,
        **{"progress": False, **DECODING, **options},
    )


def lines_of(folder):
    """How often every line stands in the shards of a folder."""
    return Counter(line for path in folder.glob("shard-*") for line in path.read_text("utf-8").splitlines())


def child(*arguments, launcher=()):
    """A process of this file, which imports the same hf_cmal as this one."""
    source = str(Path(distillation.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen([sys.executable, *launcher, __file__, *map(str, arguments)], env=environment)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    report = run_distill(folder)
    assert (report.rows, report.done_before, report.done_now) == (NUM_ROWS, 0, NUM_ROWS)
    return folder


# --- what is written ---------------------------------------------------------------------------------


def test_pseudo_targets_are_the_beam_search_of_the_teacher(tmp_path):
    rows, teacher, tokenizer = make_rows(), make_teacher(), make_tokenizer()
    # One batch holds all rows, so that padding is the same in both computations.
    run_distill(tmp_path, batch_size=NUM_ROWS)
    encoded = tokenizer(rows["source"][:], padding=True, return_tensors="pt")
    expected = {
        beams: tokenizer.batch_decode(
            teacher.generate(**encoded, num_beams=beams, max_length=9, **NO_REPETITION),
            skip_special_tokens=True,
        )
        for beams in (1, 3)
    }
    assert load_pseudo_targets(tmp_path, rows)["target"][:] == expected[3]
    assert expected[1] != expected[3], "greedy must differ from beam search, else this test proves nothing"
    assert len(set(expected[3])) > NUM_ROWS / 2, "sentences must depend on the input"
    assert len({len(sentence.split()) for sentence in expected[3]}) > 3, "and differ in length"


def test_training_mode_and_dropout_do_not_reach_the_targets(tmp_path, uninterrupted):
    teacher = make_teacher().train()
    run_distill(tmp_path, teacher=teacher)
    assert lines_of(tmp_path) == lines_of(uninterrupted)
    assert teacher.training, "the mode of the caller is restored"


def test_autocast_is_part_of_the_decoding(tmp_path):
    report = run_distill(tmp_path, dtype=torch.bfloat16)
    assert report.done_now == NUM_ROWS
    with pytest.raises(ValueError, match=r"decoding\.autocast = 'torch\.bfloat16', now it is 'None'"):
        run_distill(tmp_path)


def test_unlabeled_rows_are_distilled_like_all_others(tmp_path):
    labeled, unlabeled = make_rows().select(range(10)), make_rows(labeled=False).select(range(10, NUM_ROWS))
    mixed = concatenate_datasets([labeled, unlabeled])
    run_distill(tmp_path, dataset=mixed, batch_size=NUM_ROWS)
    loaded = load_pseudo_targets(tmp_path, mixed)
    assert loaded["references"][:] == [[f"reference {i}"] for i in range(10)] + [[]] * 14
    # The same sources with references everywhere: what is written does not depend on them.
    run_distill(tmp_path / "all_labeled", batch_size=NUM_ROWS)
    assert loaded["target"][:] == load_pseudo_targets(tmp_path / "all_labeled", make_rows())["target"][:]


def test_longest_inputs_come_first(tmp_path):
    collate = Collate()
    run_distill(tmp_path, collate=collate)
    lengths = [len(source) for source in collate.rows]
    assert lengths == sorted(lengths, reverse=True) and lengths[0] > lengths[-1]


def test_a_sentence_at_the_decoding_limit_is_counted_and_warned(tmp_path):
    teacher = make_teacher()
    teacher.final_logits_bias[0, EOS] = -1e4  # never ends by itself
    with pytest.warns(UserWarning, match="24 of 24 pseudo-targets .* probably cut"):
        report = run_distill(tmp_path, teacher=teacher)
    assert report.cut_outputs == NUM_ROWS
    teacher.final_logits_bias[0, EOS] = 1e4  # ends at once
    with pytest.warns(UserWarning, match="wrote nothing"):
        assert run_distill(tmp_path / "short", teacher=teacher).cut_outputs == 0


def test_the_start_token_is_neither_written_nor_counted(tmp_path):
    teacher = make_teacher(start=5)  # "w5", an ordinary word
    teacher.final_logits_bias[0, EOS] = 1e4
    with pytest.warns(UserWarning, match="wrote nothing for 24 of 24 rows"):
        report = run_distill(tmp_path, teacher=teacher, max_length=3)
    assert report.cut_outputs == 0  # eos is one of the two tokens that are allowed


# --- empty outputs -----------------------------------------------------------------------------------


@pytest.fixture
def silent_teacher():
    teacher = make_teacher()
    teacher.final_logits_bias[0, EOS] = 1e4
    return teacher


def test_empty_output_is_counted_kept_and_replaced_by_the_first_reference(tmp_path, silent_teacher):
    labeled, unlabeled = make_rows().select(range(10)), make_rows(labeled=False).select(range(10, NUM_ROWS))
    mixed = concatenate_datasets([labeled, unlabeled])
    with pytest.warns(UserWarning, match="wrote nothing for 24 of 24 rows"):
        report = run_distill(tmp_path, teacher=silent_teacher, dataset=mixed)
    assert report.empty_outputs == 24
    assert {json.loads(line)["target"] for line in lines_of(tmp_path)} == {""}
    with pytest.warns(UserWarning, match="10 train on their first reference, 14 are left out"):
        loaded = load_pseudo_targets(tmp_path, mixed)
    assert loaded["target"][:] == [f"reference {i}" for i in range(10)]
    with pytest.warns(UserWarning, match="0 train on their first reference, 24 are left out"):
        assert len(load_pseudo_targets(tmp_path, mixed, on_empty="drop")) == 0


# --- resuming ----------------------------------------------------------------------------------------


def test_a_run_killed_with_sigkill_resumes_without_loss_or_repetition(tmp_path, uninterrupted):
    process = child(tmp_path, 2)  # hangs after two batches of four
    shard = tmp_path / "shard-00000-of-00001.jsonl"
    deadline = time.monotonic() + 300
    while not (shard.exists() and shard.read_bytes().count(b"\n") == 8):
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    report = run_distill(tmp_path)
    assert (report.done_before, report.done_now) == (8, NUM_ROWS - 8)
    assert lines_of(tmp_path) == lines_of(uninterrupted)
    assert max(lines_of(tmp_path).values()) == 1


def test_a_torn_last_line_is_removed_and_done_again(tmp_path, uninterrupted):
    run_distill(tmp_path)
    shard = tmp_path / "shard-00000-of-00001.jsonl"
    content = shard.read_bytes()
    whole = content.rfind(b"\n", 0, -1) + 1
    shard.write_bytes(content[: whole + 7])  # the last line ends after seven bytes
    with pytest.raises(ValueError, match=r"1 of 24 rows .* no pseudo-target yet; run the distillation again"):
        load_pseudo_targets(tmp_path, make_rows())
    with pytest.warns(UserWarning, match=r"torn line \(7 bytes\)"):
        report = run_distill(tmp_path)
    assert report.done_now == 1
    assert shard.read_bytes()[:whole] == content[:whole]
    assert sorted(json.loads(line)["index"] for line in lines_of(tmp_path)) == list(range(NUM_ROWS))


def test_a_damaged_whole_line_is_an_error_naming_it(tmp_path):
    run_distill(tmp_path)
    shard = tmp_path / "shard-00000-of-00001.jsonl"
    lines = shard.read_text("utf-8").splitlines(keepends=True)
    shard.write_text("".join([*lines[:3], '{"index": 3\n', *lines[4:]]), encoding="utf-8")
    with pytest.raises(ValueError, match="line 4 is damaged"):
        run_distill(tmp_path)


def test_finished_run_does_nothing_again(tmp_path):
    run_distill(tmp_path)
    collate = Collate()
    report = run_distill(tmp_path, collate=collate)
    assert (report.done_before, report.done_now, collate.rows) == (NUM_ROWS, 0, [])


def test_number_of_processes_may_change_between_runs(tmp_path):
    first = run_distill(tmp_path, process_index=0, num_processes=2)
    assert first.done_now == NUM_ROWS / 2
    with pytest.raises(ValueError, match="12 of 24 rows"):
        load_pseudo_targets(tmp_path, make_rows())
    reports = [run_distill(tmp_path, process_index=i, num_processes=3) for i in range(3)]
    assert sum(report.done_before for report in reports) == NUM_ROWS / 2
    assert sum(report.done_now for report in reports) == NUM_ROWS / 2
    indices = [json.loads(line)["index"] for line in lines_of(tmp_path).elements()]
    assert sorted(indices) == list(range(NUM_ROWS))
    assert len(load_pseudo_targets(tmp_path, make_rows())) == NUM_ROWS


def test_a_second_run_on_the_same_rows_is_refused_while_the_first_lives(tmp_path):
    run_distill(tmp_path, process_index=0, num_processes=2)
    with pseudo_targets.ShardWriter(tmp_path, process_index=0, num_processes=2):
        for again in ({"process_index": 0, "num_processes": 2}, {"process_index": 0, "num_processes": 1}):
            with pytest.raises(BlockingIOError, match="still writing"):
                run_distill(tmp_path, **again)
        run_distill(tmp_path, process_index=1, num_processes=2)  # its neighbour is not disturbed


@pytest.mark.slow
def test_two_gloo_processes_and_one_write_the_same_set(tmp_path, uninterrupted):
    torchrun = ("-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone")
    process = child(tmp_path, launcher=torchrun)
    assert process.wait(timeout=300) == 0
    shards = sorted(path.name for path in tmp_path.glob("shard-*"))
    assert shards == ["shard-00000-of-00002.jsonl", "shard-00001-of-00002.jsonl"]
    assert lines_of(tmp_path) == lines_of(uninterrupted)


# --- what may not be mixed ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_beams": 1}, r"decoding\.num_beams = 3, now it is 1"),
        ({"generation_options": {}}, r"decoding\.no_repeat_ngram_size = 1, now it is None"),
        ({"max_length": None, "max_new_tokens": 8}, r"decoding\.max_length = 9, now it is None"),
        ({"teacher": make_teacher(seed=1)}, r"teacher\.weights = '\w+', now it is '\w+'"),
        ({"dataset": make_rows(NUM_ROWS - 1)}, r"dataset\.rows = 24, now it is 23"),
        ({"dataset": make_rows().select([1, 0, *range(2, 24)])}, r"dataset\.fingerprint"),
        (
            {"dataset": make_rows().rename_column("source", "text"), "source_column": "text"},
            r"dataset\.source_column = 'source', now it is 'text'",
        ),
    ],
)
def test_another_teacher_dataset_or_decoding_is_refused(uninterrupted, change, message):
    with pytest.raises(ValueError, match=message + ".*choose another output_dir, or delete"):
        run_distill(uninterrupted, **change)


def test_batch_size_and_references_may_change(uninterrupted):
    report = run_distill(uninterrupted, dataset=make_rows(labeled=False), batch_size=7)
    assert report.done_before == NUM_ROWS


def test_another_library_version_is_only_warned_of(tmp_path):
    run_distill(tmp_path, process_index=0, num_processes=2)
    manifest = json.loads((tmp_path / "manifest.json").read_text("utf-8"))
    manifest["versions"]["transformers"] = "5.23.0"
    (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.warns(UserWarning, match=r"begun with transformers 5\.23\.0"):
        run_distill(tmp_path, process_index=1, num_processes=2)


def test_loading_for_other_inputs_is_refused(uninterrupted):
    with pytest.raises(ValueError, match=r"dataset\.fingerprint"):
        load_pseudo_targets(uninterrupted, make_rows().select(range(23, -1, -1)))


def test_loading_a_folder_without_pseudo_targets_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="run distillation into this folder first"):
        load_pseudo_targets(tmp_path, make_rows())


def test_fingerprint_follows_the_content_not_the_history_of_a_dataset():
    rows = make_rows()
    mapped = rows.map(lambda row: {"extra": 1}).select_columns(["extra", "source"])
    assert mapped._fingerprint != rows._fingerprint
    fingerprint, lengths = pseudo_targets.fingerprint_inputs(rows, "source")
    assert pseudo_targets.fingerprint_inputs(mapped, "source") == (fingerprint, lengths)
    assert lengths == [len(source) for source in rows["source"]]
    moved_boundary = [Dataset.from_dict({"source": sources}) for sources in (["ab", "c"], ["a", "bc"])]
    assert len({pseudo_targets.fingerprint_inputs(d, "source")[0] for d in moved_boundary}) == 2


def test_fingerprint_of_feature_vectors_follows_their_values():
    features = [torch.arange(6.0).view(2, 3).tolist(), torch.ones(1, 3).tolist()]
    changed = [features[0], [[1.0, 1.0, 2.0]]]
    first, lengths = pseudo_targets.fingerprint_inputs(Dataset.from_dict({"features": features}), "features")
    assert lengths == [2, 1]
    assert pseudo_targets.fingerprint_inputs(Dataset.from_dict({"features": changed}), "features")[0] != first


def test_weight_checksum_sees_one_training_step_and_survives_saving(tmp_path):
    teacher = make_teacher()
    before = weight_checksum(teacher)
    teacher.save_pretrained(tmp_path)
    assert weight_checksum(MarianMTModel.from_pretrained(tmp_path)) == before
    optimizer = torch.optim.Adam(teacher.parameters(), lr=1e-5)
    ids = torch.tensor([[3, 4, EOS]])
    teacher(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    assert weight_checksum(teacher) != before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": None}, "give exactly one"),
        ({"max_new_tokens": 4}, "give exactly one"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"process_index": 2, "num_processes": 2}, "process_index is 2"),
        ({"source_column": "image_id"}, "source_column is 'image_id', but the dataset has"),
        ({"generation_options": {"beams": 4}}, "'beams', not a field of GenerationConfig"),
    ],
)
def test_a_bad_argument_is_named_before_anything_is_written(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        run_distill(tmp_path / "new", **options)
    assert not (tmp_path / "new").exists()


def main():
    from accelerate import PartialState

    state = PartialState(cpu=True)
    if "WORLD_SIZE" in os.environ:
        assert state.num_processes == int(os.environ["WORLD_SIZE"]) == 2
    run_distill(
        Path(sys.argv[1]),
        collate=Collate(hang_after=int(sys.argv[2]) if len(sys.argv) > 2 else None),
        process_index=state.process_index,
        num_processes=state.num_processes,
    )
    state.destroy_process_group()


if __name__ == "__main__":
    main()
