"""Microseconds per sentence and per edit of each n-gram reward, against the libraries that define them.

The rivals score one hypothesis after another with prepared references. Ours scores the same sentences
(`score`), and edits of them (`score_edits`), batch by batch of 50 images with 5 samples each, as a training
step does. All take turns in one run. Ends by printing one JSON object; `cider_d_edit_speedup` and
`gleu_edit_speedup` are the rival's time per sentence over our time per edit, both on one thread.

    python benchmarks/reward_throughput.py [--data FOLDER] [--quick] [--output FOLDER]
"""

import argparse
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from parts import rivals
from parts.report import add_options, finish
from parts.sentences import Batch, Corpus, make_batches, make_corpus, read_corpus
from parts.turns import all_threads, median_seconds

from hf_cmal.evaluation.environment import describe_environment
from hf_cmal.rewards import BoundReward, DocumentFrequencies, Reward, get_reward
from hf_cmal.sampling import write_out_edits

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCH_SIZE, NUM_SAMPLES = 50, 5
NUM_CHECKED = 50  # edits of each sample that the rival scores as well, written out
RIVALS = {
    "cider_d": "pycocoevalcap CIDEr-D, references prepared",
    "gleu": "nltk sentence_gleu, which takes no prepared references",
    "bleu": "sacrebleu BLEU, references cached",
    "rouge_l": "pycocoevalcap ROUGE-L",
}
Score = Callable[[int, str], float]


def our_rewards(corpus: Corpus) -> dict[str, Reward]:
    """Ours on whole sentences without eos, as the rivals see them."""
    frequencies = DocumentFrequencies.from_references(corpus.references, eos_token_id=None, name="all")
    return {
        "cider_d": get_reward("cider-d", document_frequencies=frequencies),
        "gleu": get_reward("gleu"),
        "bleu": get_reward("bleu"),
        "rouge_l": get_reward("rouge-l"),
    }


def their_scores(corpus: Corpus) -> dict[str, Score]:
    """The rivals, and `gleu_prepared`."""
    references = [[corpus.text(reference) for reference in group] for group in corpus.references]
    num_inputs = len(corpus.hypotheses)
    first = references[:num_inputs]
    return {
        "cider_d": rivals.cider_d(references, num_inputs=num_inputs),
        "gleu": rivals.gleu(first),
        "gleu_prepared": rivals.gleu_prepared(first),
        "bleu": rivals.bleu(first),
        "rouge_l": rivals.rouge_l(first),
    }


def bind(reward: Reward, batch: Batch) -> BoundReward:
    return reward.bind(batch.references, batch.agent_mask, eos_token_id=None)


def difference(corpus: Corpus, batches: list[Batch], ours: list[BoundReward], theirs: Score) -> float:
    """The largest difference to the rival's score, over all sentences."""
    worst, first = 0.0, 0
    for batch, bound in zip(batches, ours, strict=True):
        rewards = bound.score(batch.actions)
        for b, rows in enumerate(batch.sentences()):
            for s, row in enumerate(rows):
                worst = max(worst, abs(float(rewards[b, s]) - theirs(first + b, corpus.text(row))))
        first += len(batch.references)
    return worst


def edit_difference(corpus: Corpus, batch: Batch, bound: BoundReward, theirs: Score) -> float:
    """The same over edits of the first batch, which the rival is given written out."""
    rewards = bound.score_edits(batch.actions, batch.edits)
    written = write_out_edits(batch.actions, batch.edits)
    lengths = batch.agent_mask.sum(-1).tolist()
    worst = 0.0
    for b, s, m in batch.edits.mask.nonzero().tolist():
        if m % max(1, batch.edits.mask.shape[-1] // NUM_CHECKED) == 0:
            text = corpus.text(written[b, s, m, : lengths[b]].tolist())
            worst = max(worst, abs(float(rewards[b, s, m]) - theirs(b, text)))
    return worst


def unchanged_share(batch: Batch) -> float:
    """The share of edits that write what stands there already, which cost nearly nothing."""
    written = write_out_edits(batch.actions, batch.edits)
    same = (written == batch.actions[:, :, None]).all(-1) & batch.edits.mask
    return float(same.sum() / batch.edits.mask.sum())


def timed_calls(
    corpus: Corpus, batches: list[Batch], bounds: dict[str, list[BoundReward]], scores: dict[str, Score]
) -> dict[str, Callable[[], None]]:
    """What takes turns; a call goes through all sentences, or all edits."""
    texts = [[corpus.text(row) for row in rows] for batch in batches for rows in batch.sentences()]

    def rival(score: Score) -> None:
        for b, rows in enumerate(texts):
            for text in rows:
                score(b, text)

    def full(bound: list[BoundReward], threads: int) -> None:
        torch.set_num_threads(threads)
        for batch, one in zip(batches, bound, strict=True):
            one.score(batch.actions)

    def edit(bound: list[BoundReward], threads: int) -> None:
        torch.set_num_threads(threads)
        for batch, one in zip(batches, bound, strict=True):
            one.score_edits(batch.actions, batch.edits)

    calls: dict[str, Callable[[], None]] = {}
    for kind, bound in bounds.items():
        calls[f"{kind} rival"] = lambda score=scores[kind]: rival(score)
        for label, threads in (("1", 1), ("all", all_threads())):
            calls[f"{kind} sentence {label}"] = lambda bound=bound, threads=threads: full(bound, threads)
            calls[f"{kind} edit {label}"] = lambda bound=bound, threads=threads: edit(bound, threads)
    calls["gleu_prepared rival"] = lambda: rival(scores["gleu_prepared"])
    return calls


def measure(corpus: Corpus, *, rounds: int) -> dict[str, Any]:
    """Everything that the JSON says of the rewards."""
    batches = make_batches(corpus, batch_size=BATCH_SIZE, num_samples=NUM_SAMPLES)
    rewards, scores = our_rewards(corpus), their_scores(corpus)
    bounds = {kind: [bind(reward, batch) for batch in batches] for kind, reward in rewards.items()}
    seconds = median_seconds(timed_calls(corpus, batches, bounds, scores), rounds=rounds)
    binding = median_seconds(
        {
            kind: lambda reward=reward: [bind(reward, batch) for batch in batches]
            for kind, reward in rewards.items()
        },
        rounds=rounds,
    )
    num_sentences = sum(batch.actions.shape[0] * batch.actions.shape[1] for batch in batches)
    num_edits = sum(int(batch.edits.mask.sum()) for batch in batches)
    kinds = {
        kind: {
            "signature": reward.signature,
            "rival": RIVALS[kind],
            "rival_us_per_sentence": 1e6 * seconds[f"{kind} rival"] / num_sentences,
            "us_per_sentence": {
                label: 1e6 * seconds[f"{kind} sentence {label}"] / num_sentences for label in ("1", "all")
            },
            "us_per_edit": {
                label: 1e6 * seconds[f"{kind} edit {label}"] / num_edits for label in ("1", "all")
            },
            "bind_ms_per_batch": 1e3 * binding[kind] / len(batches),
            "max_difference_sentences": difference(corpus, batches, bounds[kind], scores[kind]),
            "max_difference_edits": edit_difference(corpus, batches[0], bounds[kind][0], scores[kind]),
        }
        for kind, reward in rewards.items()
    }
    prepared = 1e6 * seconds["gleu_prepared rival"] / num_sentences
    kinds["gleu"]["rival_prepared"] = "nltk's n-grams, references counted in advance"
    kinds["gleu"]["rival_prepared_us_per_sentence"] = prepared
    return {
        "cider_d_edit_speedup": edit_speedup(kinds["cider_d"], "rival_us_per_sentence"),
        "gleu_edit_speedup": edit_speedup(kinds["gleu"], "rival_us_per_sentence"),
        "gleu_edit_speedup_prepared": edit_speedup(kinds["gleu"], "rival_prepared_us_per_sentence"),
        "rewards": kinds,
        "setting": {
            "sentences": corpus.source,
            "document_frequencies_images": len(corpus.references),
            "inputs": len(corpus.hypotheses),
            "batch_size": BATCH_SIZE,
            "samples_per_input": NUM_SAMPLES,
            "edits": num_edits,
            "edits_per_input": num_edits / len(corpus.hypotheses),
            "unchanged_share_of_edits": unchanged_share(batches[0]),
            "references_per_input": statistics.fmean(len(group) for b in batches for group in b.references),
            "mean_length": statistics.fmean(map(len, corpus.hypotheses)),
            "mean_reference_length": statistics.fmean(
                len(reference) for b in batches for group in b.references for reference in group
            ),
            "rounds": rounds,
            "threads_all": all_threads(),
            "rivals_threads": 1,
        },
    }  # fmt: skip


def edit_speedup(kind: dict[str, Any], rival: str) -> float:
    """The rival's time per sentence over our time per edit, on one thread."""
    return float(kind[rival] / kind["us_per_edit"]["1"])


def draw(figure: "Figure", result: dict[str, Any]) -> None:
    """Bars of microseconds on one thread, rival, sentence and edit, on a logarithmic scale."""
    axes = figure.add_subplot()
    kinds = result["rewards"]
    series = {
        "rival, a sentence": [kind["rival_us_per_sentence"] for kind in kinds.values()],
        "hf_cmal, a sentence": [kind["us_per_sentence"]["1"] for kind in kinds.values()],
        "hf_cmal, an edit": [kind["us_per_edit"]["1"] for kind in kinds.values()],
    }
    for number, (label, values) in enumerate(series.items()):
        places = [place + 0.27 * (number - 1) for place in range(len(kinds))]
        bars = axes.bar(places, values, width=0.25, label=label)
        axes.bar_label(bars, labels=[f"{value:.3g}" for value in values], fontsize=7)
    labels = [f"{name}\nagainst {kind['rival'].split(',')[0]}" for name, kind in kinds.items()]
    axes.set_xticks(range(len(kinds)), labels)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_yscale("log")
    axes.set_ylabel("microseconds, one thread")
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, frameon=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time per reward, against other libraries.")
    add_options(parser)
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("HF_CMAL_DATA"),
        help="folder with coco/ and peers/ (default: HF_CMAL_DATA; without it sentences are made up)",
    )  # fmt: skip
    options = parser.parse_args()
    num_inputs = BATCH_SIZE if options.quick else 10 * BATCH_SIZE
    if options.data is None:
        corpus = make_corpus(num_images=200 if options.quick else 5_000, num_inputs=num_inputs)
    else:
        corpus = read_corpus(options.data, num_inputs=num_inputs)
    result = measure(corpus, rounds=2 if options.quick else 9)
    torch.set_num_threads(all_threads())
    size = "quick" if options.quick else "full"
    finish("reward_throughput", {"size": size, **result, **describe_environment()}, options, draw)


if __name__ == "__main__":
    main()
