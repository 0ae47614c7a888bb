"""Steps/s with `<mask>` kept out of the encoder against the same steps without exclusion."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks import comparison, training
from benchmarks.comparison import Setting
from benchmarks.measure import Once, Rate, interleaved
from maskpolicy.core.types import Denoising
from maskpolicy.experiment.budgets import resolve_auto
from maskpolicy.models.training.steps import MaskedSteps
from maskpolicy.plugins.discovery import instance

PLAIN, OURS = "all masks seen", "masks excluded (MAE-LM)"


@dataclass(frozen=True)
class Seen:
    """Non-padding tokens that the encoder is given, and how many of them are left."""

    whole: int
    left: int

    @property
    def fewer(self) -> float:
        """The share that is left out."""
        return 1 - self.left / self.whole


def settings(mini_steps: int, base_steps: int) -> list[Setting]:
    """Return mini and BART-base, 15% of the tokens masked one by one."""
    denoising = Denoising(corruption="token", mask_exclusion=1.0)
    made = comparison.settings(mini_steps, base_steps)
    return [
        replace(one, name=one.name.partition(" ")[0], denoising=denoising)
        for one in made
        if one.denoising.target == "spans"
    ]


def seen(setting: Setting) -> Seen:
    """Count the encoder's tokens over the steps of a setting."""
    spec = resolve_auto(setting.spec)
    policy = instance("policy", setting.policy, {})
    steps = MaskedSteps(setting.passages, policy, setting.denoising, setting.specials, spec)
    whole = left = 0
    for number in range(setting.steps):
        for batch in steps(number).batches:
            tokens = int(batch.seen.sum())
            whole += tokens
            left += tokens - (0 if batch.excluded is None else int(batch.excluded.sum()))
    return Seen(whole, left)


def compare(setting: Setting, repeats: int) -> list[Rate]:
    """Measure steps per second of both, in turn."""
    plain = replace(setting, denoising=replace(setting.denoising, mask_exclusion=0.0))
    ways = {PLAIN: _steps(plain), OURS: _steps(setting)}
    return interleaved(ways, repeats)


def _steps(setting: Setting) -> Once:
    once = training.ours(setting)
    timed = setting.steps - setting.skip - 1

    def steps() -> tuple[float, float, str]:
        _, seconds, note = once()
        return timed, seconds, note

    return steps
