"""The header of a model card: what the Hub's search and its leaderboards read."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from keras_highway.hub.client import client

RESULT = "result.json"


class CardMetric(NamedTuple):
    """A number beside the one that a card is about.

    Attributes:
        name: In words, e.g. `"top-5 accuracy"`.
        metric: The Hub's name, e.g. `"accuracy"`.
        value: The number.
        split: Of the data set. Defaults to `"test"`.
        std: Its standard deviation over seeds, `None` if there is none.
    """

    name: str
    metric: str
    value: float
    split: str = "test"
    std: float | None = None


class ModelFacts(NamedTuple):
    """The contents of a model card's header.

    Attributes:
        name: Of the weights.
        licence: SPDX-like, e.g. `"apache-2.0"`.
        task: The Hub's name of the task, e.g. `"image-classification"`.
        data: The Hub's name of the data set, e.g. `"ylecun/mnist"`.
        metric: Of the measurement, e.g. `"accuracy"`.
        value: The number measured; None if nothing was.
        conditions: Of the measurement: n, seeds, ...
        tags: Words to find it by.
        task_name: The task in words. Defaults to none.
        data_name: The data set in words. Defaults to `data`.
        language: Of the text, e.g. `"en"`. Defaults to none.
        metric_name: The metric in words. Defaults to none.
        more: What else was measured, under the same conditions but for the
            standard deviation.
        split: The part of the data set that was measured on. Defaults to
            `"test"`.
        repository: `org/name` where the card will lie, whose `result.json` is
            the source of the numbers; `""` if that is not known.
        licence_name: Of a licence that is `"other"` to the Hub. Defaults to
            none.
    """

    name: str
    licence: str
    task: str
    data: str
    metric: str
    value: float | None
    conditions: Mapping[str, Any]
    tags: Sequence[str]
    task_name: str | None = None
    data_name: str | None = None
    language: str | None = None
    metric_name: str | None = None
    more: Sequence[CardMetric] = ()
    split: str = "test"
    repository: str = ""
    licence_name: str | None = None


def card_header(facts: ModelFacts) -> str:
    """Return the YAML header of a model card, with its `model-index` where something was measured.

    Args:
        facts: Its contents.
    """
    hub = client()
    results = None
    if facts.value is not None and (facts.data or facts.data_name):
        first = CardMetric(facts.metric_name or "", facts.metric, facts.value, facts.split)
        results = [_result(hub, facts, first, facts.conditions)]
        alike = {name: value for name, value in facts.conditions.items() if name not in ("published", "std")}
        for measured in facts.more:
            own = {} if measured.std is None else {"std": measured.std}
            results.append(_result(hub, facts, measured, alike | own))
    data = hub.ModelCardData(
        library_name="keras",
        pipeline_tag=facts.task,
        license=facts.licence or None,
        license_name=facts.licence_name,
        language=facts.language,
        datasets=[facts.data] if facts.data else None,
        metrics=[facts.metric] if results else None,
        tags=list(facts.tags),
        model_name=facts.name,
        eval_results=results,
    )
    return f"---\n{data.to_yaml()}\n---\n"


def _result(hub, facts: ModelFacts, measured: CardMetric, conditions: Mapping[str, Any]):
    """Return a line of the `model-index`: task, data set, split, metric, value, and where it is recorded."""
    page = f"https://huggingface.co/{facts.repository}/blob/main/{RESULT}"
    return hub.EvalResult(
        task_type=facts.task,
        task_name=facts.task_name,
        dataset_type=facts.data or facts.data_name,
        dataset_name=facts.data_name or facts.data,
        dataset_split=measured.split,
        metric_type=measured.metric,
        metric_name=measured.name or None,
        metric_value=measured.value,
        metric_args=dict(conditions) or None,
        source_name=RESULT if facts.repository else None,
        source_url=page if facts.repository else None,
    )
