"""`hf-cmal publish`: a trained folder becomes the one that goes to the Hub (`hf_cmal.hub.release`).

For data sets whose authors and terms the package knows. Whoever has other data calls `write_release` with a
`TrainingData` of their own.
"""

from collections.abc import Sequence

from hf_cmal.hub.licences import APACHE_2, NON_COMMERCIAL_RESEARCH
from hf_cmal.hub.release import write_release

LICENSES = {"apache-2.0": APACHE_2, "non-commercial-research": NON_COMMERCIAL_RESEARCH}


def publish(
    folder: str,
    output: str,
    *,
    result: str,
    system: str,
    dataset: str,
    languages: Sequence[str],
    license: str,
    domain: str,
    base_model: str | None = None,
) -> None:
    """Writes the release and says what to do with it; arguments and errors are those of `write_release`.

    Raises:
        ValueError: an unknown licence; the message names the known ones.
    """
    if license not in LICENSES:
        raise ValueError(f"--license is {license!r}; legal values: {', '.join(LICENSES)}")
    path = write_release(
        folder,
        output,
        result=result,
        system=system,
        dataset=dataset,
        languages=languages,
        license=LICENSES[license],
        domain=domain,
        base_model=base_model,
    )
    print(f"{path} is ready: read its README.md, then hf_cmal.push_to_hub({str(path)!r}, 'owner/name')")
