"""An epoch of a language model: the text in order, then its perplexity on the validation split."""

import math
import sys

from keras_highway.tasks import LANGUAGE
from keras_highway.training.language.program import LanguageProgram
from keras_highway.training.language.results import checked_perplexity
from keras_highway.training.language_recipe import rate_after
from keras_highway.training.runs.run import Run


class LanguageRun(Run):
    """A run of a `LanguageProgram`; see `Run`."""

    program: LanguageProgram

    def _prepare_epoch(self) -> None:
        self.program.set_rate(rate_after(self.program.recipe, [float(row["valid_perplexity"]) for row in self.rows]))

    def _test(self) -> dict[str, float]:
        perplexity = self.program.validation_perplexity(sys.stderr.isatty())
        return {"perplexity": checked_perplexity(perplexity, "validation")}

    def _measures(self, trained, tested) -> dict[str, float]:
        return {
            "train_loss": trained["loss"],
            "train_perplexity": math.exp(min(trained["loss"], 700.0)),
            "valid_perplexity": tested["perplexity"],
        }

    def _format_metrics(self, metrics: dict[str, float]) -> dict[str, str]:
        perplexity = LANGUAGE.metric.format(math.exp(min(metrics["loss"], 700.0)))
        return {"loss": f"{metrics['loss']:.4f}", "perplexity": perplexity}

    def _measures_line(self, row) -> str:
        train, valid = (LANGUAGE.metric.format(row[f"{split}_perplexity"]) for split in ("train", "valid"))
        return f"perplexity train {train} valid {valid}"
