"""Random batches for rewards: references, joint actions, edits and options, with all that may happen in them.

Hypothesis draws sizes and kinds; what stands at each place follows from a seed, because a hundred words in
forty references are too many to draw one by one. Nothing is scored here.
"""

import random
from collections import Counter
from dataclasses import dataclass
from itertools import chain, pairwise

import torch
from hypothesis import strategies as st

from hf_cmal.sampling import OTHER, Edits, write_out_edits
from tests.rewards.plain import NARROW_WORDS, WIDE_WORDS, close, ngrams, read

Sentence = list[int]

VOCABULARIES = [(7,), (7, 2**31 - 1), NARROW_WORDS, WIDE_WORDS, tuple(range(1, 300)), tuple(range(1, 70_000))]
# No reference has these; the last two are no words at all.
STRANGERS = (2**31 - 3, 2**31 - 4, 70_001, OTHER, -7)
PLAIN_WORD = 3
LENGTHS = st.one_of(st.integers(1, 8), st.integers(0, 100), st.integers(91, 100))


@dataclass(frozen=True)
class Problem:
    """One batch, what is asked about it, and the options of the reward that answers."""

    references: list[list[Sentence]]
    documents: list[list[Sentence]]
    mask: torch.Tensor  # bool [B, N]
    actions: torch.Tensor  # long [B, R, N]
    edits: Edits  # [B, S, M]
    eos: int | None
    count_eos: bool
    max_order: int
    sigma: float
    beta: float

    def bind(self, reward):
        return reward.bind(self.references, self.mask, eos_token_id=self.eos)

    def read(self, row: torch.Tensor, b: int) -> Sentence:
        """The sentence of one joint action of input b, as `plain.read` does."""
        return read(row.tolist(), self.mask[b].tolist(), self.eos, self.count_eos)

    def closed(self, group: list[Sentence]) -> list[Sentence]:
        """References, as `plain.close` does."""
        return [close(reference, self.eos, self.count_eos) for reference in group]


@st.composite
def problems(draw) -> Problem:
    num_inputs, num_samples = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    num_agents = draw(LENGTHS)
    num_edits = draw(st.integers(1, 30)) if num_agents else 0
    num_rows = num_samples + draw(st.integers(0, 2))
    most_references = draw(st.sampled_from([1, 3, 40]))
    longest_reference = max(1, draw(LENGTHS))
    vocabulary = draw(st.sampled_from(VOCABULARIES))
    mask_kind = draw(st.sampled_from(["all", "all", "padded", "holes", "none"]))
    eos_kind = draw(st.sampled_from(["no eos", "nowhere", "anywhere", "first", "last"]))
    share_of_strangers = draw(st.sampled_from([0.0, 0.1, 0.5]))
    rng = random.Random(draw(st.integers(0, 2**32 - 1)))

    eos = None if eos_kind == "no eos" else rng.choice([0, 2, 2**31 - 2])
    words = [word for word in vocabulary if word != eos]
    references = [
        random_references(rng, count, longest_reference, words, eos)
        for count in rng.choices([1, most_references, rng.randint(1, most_references)], k=num_inputs)
    ]
    documents = random_documents(rng, words, eos) + references[: rng.randint(0, num_inputs)]
    if rng.random() < 0.2:  # an input that shares no word with its references
        references[0] = [[2**31 - 10 - i for i in range(len(reference))] for reference in references[0]]
    rows = []
    for group in references:
        models = [[word for word in reference if word != eos] for reference in group]
        said = [random_sentence(rng, num_agents, words, models) for _ in range(num_rows)]
        strangers = [[rng.random() < share_of_strangers for _ in row] for row in said]
        said = [
            [rng.choice(STRANGERS) if strange else word for word, strange in zip(*pair, strict=True)]
            for pair in zip(said, strangers, strict=True)
        ]
        rows.append([write_eos(rng, row, eos, eos_kind) for row in said])
    every_edit = [
        [random_edits(rng, num_edits, row, references[b], eos) for row in rows[b][:num_samples]]
        for b in range(num_inputs)
    ]
    position, width, new_words, is_edit = (
        torch.tensor([[[edit[field] for edit in edits] for edits in samples] for samples in every_edit])
        for field in range(4)
    )
    shape = (num_inputs, num_samples, num_edits)
    return Problem(
        references=references,
        documents=documents,
        mask=torch.tensor([random_mask(rng, mask_kind, num_agents) for _ in range(num_inputs)]).bool(),
        actions=torch.tensor(rows).long(),
        edits=Edits(
            position=position.long().reshape(shape),
            width=width.long().reshape(shape),
            words=new_words.long().reshape(*shape, 2),
            mask=is_edit.bool().reshape(shape),
        ),
        eos=eos,
        count_eos=draw(st.booleans()),
        max_order=draw(st.sampled_from([4, 4, 4, 1, 2, 3, 6])),
        sigma=draw(st.sampled_from([6.0, 1.0])),
        beta=draw(st.sampled_from([1.2, 1.0, 3.0])),
    )


def random_sentence(rng, length: int, words, models: list[Sentence]) -> Sentence:
    """Runs of the models, repeats, and words: long n-grams that match, and n-grams that come again."""
    sentence: Sentence = []
    while len(sentence) < length:
        kind = rng.random()
        if models and kind < 0.5:
            model = rng.choice(models)
            start = rng.randrange(len(model))
            sentence += model[start : start + rng.randint(1, 8)]
        elif sentence and kind < 0.7:
            sentence.append(rng.choice(sentence[-3:]))
        else:
            sentence.append(rng.choice(words or [PLAIN_WORD]))
    return sentence[:length]


def random_references(rng, count: int, longest: int, words, eos: int | None) -> list[Sentence]:
    """Some hold an eos, though not at their start, and words behind it."""
    references: list[Sentence] = []
    for _ in range(count):
        references.append(random_sentence(rng, rng.randint(1, longest), words, references))
    for reference in references:
        if eos is not None and rng.random() < 0.1:
            reference.insert(rng.randint(1, len(reference)), eos)
    return references


def random_documents(rng, words, eos: int | None) -> list[list[Sentence]]:
    """Two to five images, or a thousand and some. An n-gram that all have weighs nothing; one that a thousand
    have, next to nothing, beside others that weigh a thousand times as much.
    """
    in_all = random_references(rng, 1, 3, words, eos) if rng.random() < 0.5 else []
    images = [
        [*random_references(rng, rng.randint(1, 2), 12, words, eos), *in_all]
        for _ in range(rng.randint(2, 5))
    ]
    alike = random_references(rng, 1, 3, words, eos)
    return images + [alike] * rng.choice([0, 0, 1_000])


def write_eos(rng, row: Sentence, eos: int | None, kind: str) -> Sentence:
    if eos is None:
        return row
    last = len(row) - 1
    ends = {
        "nowhere": [],
        "anywhere": [i for i in range(len(row)) if rng.random() < 2 / len(row)],
        "first": [0],
        "last": [last],
    }[kind]
    return [eos if i in ends else word for i, word in enumerate(row)]


def random_mask(rng, kind: str, num_agents: int) -> list[bool]:
    end = rng.randint(0, num_agents)
    return {
        "all": [True] * num_agents,
        "padded": [i < end for i in range(num_agents)],
        "holes": [rng.random() < 0.7 for _ in range(num_agents)],
        "none": [False] * num_agents,
    }[kind]


def random_edits(
    rng, count: int, row: Sentence, references: list[Sentence], eos: int | None
) -> list[tuple[int, int, list[int], bool]]:
    """Position, width, words, and whether it is an edit; in any order, some of the same agents in a row."""
    edits = []
    position = width = 0
    for _ in range(count):
        if rng.random() < 0.1:  # what is no edit may hold anything
            edits.append(
                (rng.choice([-3, 0, len(row) + 5]), rng.randint(0, 3), [rng.randint(-9, 9), -5], False)
            )
            continue
        if width == 0 or rng.random() < 0.6:
            width = rng.randint(1, min(2, len(row)))
            position = rng.randint(0, len(row) - width)
        neighbours = row[max(0, position - 1) : position + 3]
        sources = [rng.choice(references), rng.choice(references), row, neighbours, STRANGERS, [OTHER]]
        sources += [[eos]] if eos is not None else []
        words = [rng.choice(rng.choice(sources)) for _ in range(2)]
        if rng.random() < 0.1:  # changes nothing, or only the second word
            words[0] = row[position]
        edits.append((position, width, words, True))
    return edits


def cases(problem: Problem) -> dict[str, bool]:
    """Which of the cases that may go wrong a problem holds."""
    found = {
        "no agent": problem.actions.numel() == 0,
        "the largest word id": bool((problem.actions == 2**31 - 1).any()),
        "auxiliary rows": problem.actions.shape[1] > problem.edits.position.shape[1],
        "a thousand documents": len(problem.documents) > 1_000,
        "a slot without an edit": not bool(problem.edits.mask.all()),
    }
    parts = [cases_of_references(problem, b) for b in range(len(problem.references))]
    parts += [cases_of_edit(problem, *edit) for edit in problem.edits.mask.nonzero().tolist()]
    for part in parts:
        found |= {case: holds or found.get(case, False) for case, holds in part.items()}
    return found


def cases_of_references(problem: Problem, b: int) -> dict[str, bool]:
    lengths = [len(reference) for reference in problem.references[b]]
    return {
        "1 reference": len(lengths) == 1,
        "40 references": len(lengths) == 40,
        "a reference of 1 word": min(lengths) == 1,
        "a reference of more than 90 words": max(lengths) > 90,
        "an eos inside a reference": any(problem.eos in r[:-1] for r in problem.references[b]),
    }


def cases_of_edit(problem: Problem, b: int, s: int, m: int) -> dict[str, bool]:
    edits, eos, agents = problem.edits, problem.eos, problem.mask[b].tolist()
    sample, edited = problem.actions[b, s], write_out_edits(problem.actions, edits)[b, s, m]
    row, new = sample.tolist(), edited.tolist()
    before, after = problem.read(sample, b), problem.read(edited, b)
    start, before_start = int(edits.position[b, s, m]), int(edits.position[b, s, m - 1])
    changed = [i for i, (old, word) in enumerate(zip(row, new, strict=True)) if old != word]
    ends = [i for i, word in enumerate(row) if word == eos and agents[i]]
    return {
        "no eos": eos is None,
        "eos counts": eos is not None and problem.count_eos,
        "eos is no word": eos is not None and not problem.count_eos,
        "nothing changes": not changed,
        "only the second word changes": changed == [start + 1],
        "both words change": len(changed) == 2,
        "an agent outside the mask is edited": any(not agents[i] for i in changed),
        "a hole in the mask": any(later and not earlier for earlier, later in pairwise(agents)),
        "a word behind the eos is edited": bool(ends and changed) and changed[0] > ends[0],
        "the eos goes, and the words behind it come back": bool(ends) and len(after) > len(before),
        "an eos is written": eos in after and eos not in before,
        "the sentence becomes empty": bool(before) and not after,
        "the sentence was empty": not before and bool(after),
        "a sentence of more than 90 words": len(after) > 90,
        "OTHER": OTHER in after and OTHER not in before,
        "a repeated word": any(x == y for x, y in pairwise(after)),
        "four words that come twice": max(Counter(ngrams(after, 4)).values(), default=0) > 1,
        "no word of any reference": bool(after) and not set(after) & set(chain(*problem.references[b])),
        "an edit left of the one before it": m > 0 and start < before_start,
        "the same agents again": m > 0 and start == before_start and bool(edits.mask[b, s, m - 1]),
    }
