"""An epoch of a language model: the text in order, then its perplexity on the validation split."""

import math

from training.language.program import LanguageProgram
from training.language.recipe import rate_after
from training.run import Run


class LanguageRun(Run):
    """A run of a `LanguageProgram`; see `Run`."""

    program: LanguageProgram

    def _prepare_epoch(self) -> None:
        self.program.set_rate(rate_after(self.program.recipe, [float(row["valid_perplexity"]) for row in self.rows]))
        if self.place.step == 0:  # else the state came back with the checkpoint
            self.program.begin_text()

    def _test(self) -> dict[str, float]:
        return {"perplexity": self.program.validation_perplexity()}

    def _row(self, trained, tested, meter) -> dict:
        epoch = self.place.epoch + 1
        return {
            "epoch": epoch,
            "step": epoch * self.program.steps_per_epoch,
            "learning_rate": self.program.rate(epoch * self.program.steps_per_epoch - 1),
            "train_loss": trained["loss"],
            "train_perplexity": math.exp(min(trained["loss"], 700.0)),
            "valid_perplexity": tested["perplexity"],
            "seconds": round(meter.seconds, 2),
            "tokens_per_second": round(meter.step * self.program.batch_tokens / meter.seconds, 1),
            "waiting": round(meter.waited / meter.seconds, 4),
        }

    def line(self, row: dict) -> str:
        """Returns what a person wants to know of an epoch, in one line."""
        epochs = self.program.recipe.epochs
        left = row["seconds"] * (epochs - row["epoch"]) / 60
        return (
            f"epoch {row['epoch']:3d}/{epochs}  loss {row['train_loss']:.4f}  "
            f"perplexity train {row['train_perplexity']:.2f} valid {row['valid_perplexity']:.2f}  "
            f"rate {row['learning_rate']:.2g}  {row['tokens_per_second']:.0f} tokens/s  "
            f"waiting {100 * row['waiting']:.1f} %  {left:.0f} min left"
        )
