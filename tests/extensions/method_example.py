"""A method of one's own: pairs are drawn with probability proportional to exp(sharpness · similarity)."""

import numpy as np

from opera.core.rng import generator
from opera.core.settings import Settings, setting
from opera.methods import Draw, Method, Probabilities, register


class SoftmaxSettings(Settings):
    sharpness: float = setting(5.0, "how strongly similar pairs are preferred", "our own", ge=0)


@register
class SoftmaxSampling(Method[SoftmaxSettings]):
    name, title, settings_class = "softmax", "Softmax sampling", SoftmaxSettings

    @classmethod
    def needs_scores(cls, settings: SoftmaxSettings) -> bool:
        return True

    def probabilities(self, step: int) -> Probabilities:
        weight = np.exp(self.settings.sharpness * self.scores.similarity.astype(np.float64))
        return Probabilities.of_pairs(self.pairs, weight / weight.sum())

    def draw(self, step: int) -> Draw:
        rng = generator(self.plan.seed, "softmax.pairs", step)
        return Draw.unweighted(rng.choice(self.pairs.n_pairs, self.plan.batch_size, p=self.probabilities(step).pair))
