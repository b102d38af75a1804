"""One-pass decoding against beam search of a same-size teacher: milliseconds at batch 1, random weights.

The student is made from the teacher's weights, both are float32 and take turns on the same inputs in one
run; the rival is the teacher's beam search with its KV cache. Ends by printing one JSON object, whose
`speedup` of `student` is the ratio. It says nothing about quality.

    python benchmarks/latency.py [--quick]
"""

import argparse
import json

import torch
from transformers import GenerationConfig, MarianConfig, MarianMTModel

from hf_cmal.evaluation.environment import describe_environment
from hf_cmal.evaluation.latency import assert_float32, describe_latency, measure_latency
from hf_cmal.training.weight_init import init_student_from_teacher

SOURCE_LENGTH = TARGET_LENGTH = 16
PAD, EOS = 9_486, 0
SIZES = {"quick": (128, 2, 512), "transformer_base": (512, 6, 2048)}


def build_teacher(d_model: int, layers: int, ffn_dim: int) -> MarianMTModel:
    """A MarianMTModel that writes exactly TARGET_LENGTH words: random weights end nowhere."""
    teacher = MarianMTModel(
        MarianConfig(
            vocab_size=PAD + 1, d_model=d_model, encoder_layers=layers, decoder_layers=layers,
            encoder_attention_heads=8, decoder_attention_heads=8,
            encoder_ffn_dim=ffn_dim, decoder_ffn_dim=ffn_dim,
            activation_function="relu", max_position_embeddings=64, pad_token_id=PAD, eos_token_id=EOS,
            bos_token_id=None, decoder_start_token_id=PAD, forced_eos_token_id=None,
        )
    )  # fmt: skip
    teacher.generation_config = GenerationConfig(
        min_new_tokens=TARGET_LENGTH, max_new_tokens=TARGET_LENGTH, bad_words_ids=[[PAD]],
        pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=PAD,
    )  # fmt: skip
    return teacher.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description="Latency of the student against its teacher.")
    parser.add_argument("--quick", action="store_true", help="a small model and few inputs: seconds")
    parser.add_argument("--beams", type=int, default=4)
    options = parser.parse_args()
    size = "quick" if options.quick else "transformer_base"
    torch.manual_seed(0)
    teacher = build_teacher(*SIZES[size])
    student = init_student_from_teacher(
        teacher, max_target_length=TARGET_LENGTH, max_length_offset=TARGET_LENGTH
    )
    with (
        torch.no_grad()
    ):  # random weights ask for a random length: make the student write TARGET_LENGTH words
        student.model.length_predictor.weight.zero_()
        student.model.length_predictor.bias.zero_()
        student.model.length_predictor.bias[TARGET_LENGTH] = 1.0  # the class of offset 0
    inputs = [
        {"input_ids": torch.randint(1, PAD, (1, SOURCE_LENGTH))} for _ in range(5 if options.quick else 30)
    ]
    for name, model in (("teacher", teacher), ("student", student)):
        assert_float32(name, model)
    rival = f"teacher_beam{options.beams}"
    systems = {
        rival: lambda row: teacher.generate(**row, num_beams=options.beams),
        "teacher_greedy": lambda row: teacher.generate(**row, num_beams=1),
        "student": lambda row: student.generate(**row),
    }
    with torch.inference_mode():
        times = measure_latency(systems, inputs, rival=rival)
    latency = describe_latency(inputs, rival=rival, device=student.device)
    print(json.dumps({"size": size, **latency, "systems": times, **describe_environment()}))


if __name__ == "__main__":
    main()
