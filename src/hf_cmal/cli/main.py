"""`hf-cmal`: the package's jobs as commands.

`translate` turns sentences into another language; `train`, `distill` and `evaluate` run a recipe, `run` all
recipes of a ladder; `document-frequencies` counts what the reward CIDEr-D weighs n-grams by; `publish` lays a
model out for the Hub; `demo` shows what there is on small things. A mistake of the user ends in one line on
stderr and exit code 2, never in a traceback. The work itself is done by the rooms below; training is imported
only by the commands that need it.
"""

import argparse
import sys
from collections.abc import Sequence


def main(words: Sequence[str] | None = None) -> None:
    """Entry point of the `hf-cmal` script; `words` stand in for `sys.argv[1:]`."""
    options = _parser().parse_args(words)
    try:
        options.run(options)
    # what the user can mend; anything else is a bug and shows its traceback
    except (ValueError, OSError, FloatingPointError) as error:
        if options.traceback:
            raise
        print(f"hf-cmal: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from error
    except KeyboardInterrupt:
        print("hf-cmal: interrupted; start the same command again to go on", file=sys.stderr)
        raise SystemExit(130) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hf-cmal", description=__doc__.partition("\n\n")[2])
    parser.add_argument("--traceback", action="store_true", help="show where an error came from")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    translate = commands.add_parser("translate", help="translate sentences, a file, or standard input")
    translate.add_argument(
        "text", nargs="*", help="sentences; none: --input or standard input, a sentence a line"
    )
    translate.add_argument(
        "--model",
        help="folder or Hub id of a translator; default: $HF_CMAL_MODEL, then that of a clone",
    )
    translate.add_argument(
        "--compare",
        metavar="TEACHER",
        help="folder or Hub id of a second translator: each sentence one by one through both, with times",
    )
    translate.add_argument("--input", metavar="FILE", help="a sentence a line")
    translate.add_argument(
        "--output", metavar="FILE", help="where the translations go; default: standard output"
    )
    translate.add_argument(
        "--batch-size", type=int, default=64, metavar="N", help="sentences decoded together"
    )
    translate.add_argument(
        "--keep-duplicates",
        action="store_true",
        help="do not remove consecutive equal tokens (the postprocessing)",
    )
    translate.set_defaults(run=_translate)

    for name, what in (
        ("train", "run a training stage of a recipe"),
        ("distill", "run a distillation stage of a recipe"),
        ("evaluate", "run an evaluation stage of a recipe"),
    ):
        stage = commands.add_parser(name, help=what)
        stage.add_argument("recipe", help="a YAML file, see recipes/")
        stage.add_argument(
            "overrides", nargs="*", metavar="key=value", help="values that replace the recipe's"
        )
        stage.set_defaults(run=_run_recipe, command=name)

    ladder = commands.add_parser("run", help="run all stages of a ladder, one after the other")
    ladder.add_argument("ladder", metavar="FOLDER", help="numbered recipes, e.g. recipes/own_teacher")
    ladder.add_argument(
        "overrides", nargs="*", metavar="key=value", help="values that replace those of every recipe"
    )
    ladder.set_defaults(run=_run_ladder)

    frequencies = commands.add_parser(
        "document-frequencies", help="count the document frequencies of the reward cider-d"
    )
    frequencies.add_argument("recipe", help="of stage cmal; its student's vocabulary and training references")
    frequencies.add_argument(
        "overrides", nargs="*", metavar="key=value", help="values that replace the recipe's"
    )
    frequencies.add_argument(
        "--output",
        metavar="FILE",
        help="default: training.document_frequencies of the recipe, else a file in its root",
    )
    frequencies.set_defaults(run=_document_frequencies)

    publish = commands.add_parser("publish", help="lay a trained folder out as the Hub repository it becomes")
    publish.add_argument("folder", help="a trained model, e.g. outputs/multi30k/06_cmal_ca_seed1")
    publish.add_argument("output", help="folder to write; its name is the model's")
    publish.add_argument("--result", required=True, metavar="FILE", help="result.json of its evaluation")
    publish.add_argument("--system", required=True, help="its name in the result")
    publish.add_argument("--dataset", required=True, help="what it learned from, e.g. bentrevett/multi30k")
    publish.add_argument("--languages", required=True, nargs="+", help="codes, the source's first")
    publish.add_argument("--license", required=True, help="apache-2.0 or non-commercial-research")
    publish.add_argument("--domain", required=True, help="kind of text, e.g. 'image descriptions'")
    publish.add_argument("--base-model", help="Hub id of the teacher, if it is there")
    publish.set_defaults(run=_publish)

    demo = commands.add_parser(
        "demo", help="translate a few sentences, then train and measure the toy ladder of both tasks"
    )
    demo.add_argument(
        "--recipes", default="recipes/toy", metavar="DIR", help="default: %(default)s of a clone"
    )
    demo.add_argument(
        "--root", default="outputs/demo", metavar="DIR", help="where it writes; default: %(default)s"
    )
    demo.add_argument("--seed", type=int, default=1)
    demo.set_defaults(run=_demo)
    return parser


def _translate(options: argparse.Namespace) -> None:
    from hf_cmal.cli.translate import translate

    translate(
        options.text,
        model=options.model,
        input_file=options.input,
        output_file=options.output,
        batch_size=options.batch_size,
        remove_consecutive_duplicates=not options.keep_duplicates,
        compare_with=options.compare,
    )


def _run_recipe(options: argparse.Namespace) -> None:
    from hf_cmal.training.recipe import TRAINING_ARGUMENTS, load_recipe
    from hf_cmal.training.stages import run_stage

    recipe = load_recipe(options.recipe, options.overrides)
    command = "train" if recipe.stage in TRAINING_ARGUMENTS else recipe.stage
    if command != options.command:
        raise ValueError(
            f"{options.recipe} is a stage {recipe.stage!r}: run `hf-cmal {command} {options.recipe}`"
        )
    run_stage(recipe)


def _run_ladder(options: argparse.Namespace) -> None:
    from hf_cmal.cli.run import run

    run(options.ladder, options.overrides)


def _document_frequencies(options: argparse.Namespace) -> None:
    from hf_cmal.cli.document_frequencies import document_frequencies

    document_frequencies(options.recipe, options.overrides, output=options.output)


def _publish(options: argparse.Namespace) -> None:
    from hf_cmal.cli.publish import publish

    publish(
        options.folder,
        options.output,
        result=options.result,
        system=options.system,
        dataset=options.dataset,
        languages=options.languages,
        license=options.license,
        domain=options.domain,
        base_model=options.base_model,
    )


def _demo(options: argparse.Namespace) -> None:
    from hf_cmal.cli.demo import demo

    demo(recipes=options.recipes, root=options.root, seed=options.seed)
