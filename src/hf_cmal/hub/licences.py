"""The licences that a published model can carry: what the Hub calls them, and the text of the LICENSE file.

The text is ours and short; which data it speaks of is filled in. It is no legal advice.
"""

import textwrap
from dataclasses import dataclass

from hf_cmal.hub.training_data import TrainingData


@dataclass(frozen=True)
class License:
    """How a model may be used.

    Attributes:
        identifier: of the Hub; "other" where it knows none, and then `name` says what it is.
        name: `license_name` in the front matter, or None.
        use: what it is meant for, a sentence for the card.
        text: of the LICENSE file, with `{data}` where it names the data and its terms.
    """

    identifier: str
    name: str | None
    use: str
    text: str


APACHE_2 = License(
    identifier="apache-2.0",
    name=None,
    use="For any use, under the Apache License 2.0.",
    text="""\
Code and weights

The code in this folder (*.py) is part of hf_cmal. It and the weights (model.safetensors) are licensed
under the Apache License, Version 2.0: https://www.apache.org/licenses/LICENSE-2.0

The weights were trained on

{data}

No warranty

Unless required by applicable law or agreed to in writing, everything in this folder is distributed on an
"AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
""",
)

NON_COMMERCIAL_RESEARCH = License(
    identifier="other",
    name="non-commercial-research",
    use="For non-commercial research only, with attribution.",
    text="""\
Code

The code in this folder (*.py), if there is any, is part of hf_cmal and licensed under the Apache License,
Version 2.0: https://www.apache.org/licenses/LICENSE-2.0

Weights

The weights (model.safetensors) and the vocabulary (tokenizer.json) are derived from

{data}

They may therefore be used, copied, changed and passed on for non-commercial research only, and only if

1. the data set named above is attributed to its authors (README.md says how to cite them), and
2. this notice stays with every copy and with everything that is derived from the weights.

Every other use needs the permission of those who hold the rights in the data.

No warranty

Everything in this folder is provided "AS IS", without warranty of any kind, express or implied. Nobody is
liable for any claim or damage that comes of its use.
""",
)


def license_text(license: License, data: TrainingData) -> str:
    """The LICENSE file of a model that was trained on `data`."""
    paragraph = textwrap.fill(
        f"{data.name}: {data.attribution}. {data.terms}",
        width=100, initial_indent="    ", subsequent_indent="    ",
    )  # fmt: skip
    return license.text.format(data=paragraph)
