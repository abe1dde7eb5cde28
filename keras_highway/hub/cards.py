"""The header of a model card: what the Hub's search and its leaderboards read."""

from collections.abc import Sequence
from typing import NamedTuple

from keras_highway.hub.client import client


class ModelFacts(NamedTuple):
    """What a model card's header says.

    Attributes:
        name: Of the weights.
        licence: SPDX-like, e.g. `"apache-2.0"`.
        data: Of the data set, e.g. `"mnist"`.
        metric: Of the measurement, e.g. `"accuracy"`.
        value: The number measured; None if nothing was.
        tags: Words to find it by.
    """

    name: str
    licence: str
    data: str
    metric: str
    value: float | None
    tags: Sequence[str]


def card_header(facts: ModelFacts) -> str:
    """Returns the YAML header of a model card, with its `model-index` where something was measured.

    Args:
        facts: What it says.
    """
    hub = client()
    results = None
    if facts.value is not None:
        results = [
            hub.EvalResult(
                task_type="image-classification",
                dataset_type=facts.data,
                dataset_name=facts.data,
                dataset_split="test",
                metric_type=facts.metric,
                metric_value=facts.value,
            )
        ]
    data = hub.ModelCardData(
        library_name="keras",
        pipeline_tag="image-classification",
        license=facts.licence,
        datasets=[facts.data],
        metrics=[facts.metric],
        tags=list(facts.tags),
        model_name=facts.name,
        eval_results=results,
    )
    return f"---\n{data.to_yaml()}\n---\n"
