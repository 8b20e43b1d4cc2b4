"""Gradients of a small tanh network by hand, and the steps along them.

A minibatch of the behaviour learner takes autograd and torch's optimiser twice as long, for the keeping of books and
for a tanh that is seven times as slow as NumPy's. What is left here are the products of matrices.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Floats = NDArray[np.float32]


class Backprop:
    """A network of linear layers with tanh between them: its outputs, and then the gradient of its parameters."""

    def __init__(self, network: nn.Sequential):
        self.layers = [layer for layer in network if isinstance(layer, nn.Linear)]
        self._inputs: list[Tensor] = []
        """of each layer, at the last call of :meth:`outputs`"""

    @torch.no_grad()
    def outputs(self, inputs: Tensor) -> Floats:
        x, self._inputs = inputs, []
        for layer in self.layers:
            if self._inputs:
                array = x.numpy()
                np.tanh(array, out=array)
            self._inputs.append(x)
            x = torch.addmm(layer.bias, x, layer.weight.t())
        return x.numpy()

    @torch.no_grad()
    def backward(self, slope: Floats) -> None:
        """Fill ``grad`` of the parameters; ``slope`` is that of the loss with respect to the last outputs."""
        down = torch.from_numpy(slope)
        for number in range(len(self.layers) - 1, -1, -1):
            layer, x = self.layers[number], self._inputs[number]
            torch.mm(down.t(), x, out=layer.weight.grad)
            torch.sum(down, 0, out=layer.bias.grad)
            if number:
                down = torch.ops.aten.tanh_backward(down @ layer.weight, x)


class Descent:
    """Adam (Kingma and Ba 2015) on modules whose parameters and gradients become parts of one vector each.

    Gradients are cut to a greatest length before.
    """

    def __init__(self, modules: Sequence[nn.Module], largest: float, *, epsilon: float = 1e-5):
        self.parameters = [parameter for module in modules for parameter in module.parameters()]
        self.largest, self.epsilon, self.steps = largest, epsilon, 0
        size = sum(parameter.numel() for parameter in self.parameters)
        self._point, self._gradient, self._mean, self._square = (np.zeros(size, np.float32) for _ in range(4))
        for parameter, part, gradient in zip(
            self.parameters, self._parts(self._point), self._parts(self._gradient), strict=True
        ):
            part.copy_(parameter.data)
            parameter.data, parameter.grad = part, gradient

    def step(self, rate: float) -> None:
        """Down the gradient that lies in the parameters' ``grad``."""
        first, second = 0.9, 0.999
        self.steps += 1
        length = float(np.sqrt(np.square(self._gradient, dtype=np.float64).sum()))
        gradient = self._gradient * np.float32(min(1.0, self.largest / (length + 1e-6)))
        self._mean += np.float32(1 - first) * (gradient - self._mean)
        self._square *= np.float32(second)
        self._square += np.float32(1 - second) * np.square(gradient)
        deviation = np.sqrt(self._square) * np.float32((1 - second**self.steps) ** -0.5) + np.float32(self.epsilon)
        self._point -= np.float32(rate / (1 - first**self.steps)) * self._mean / deviation

    def state(self) -> list[dict[str, Tensor]]:
        """Of each parameter, by the names that torch's optimiser has for it."""
        if not self.steps:
            return [{} for _ in self.parameters]
        return [
            {"step": torch.tensor(float(self.steps)), "exp_avg": mean.clone(), "exp_avg_sq": square.clone()}
            for mean, square in zip(self._parts(self._mean), self._parts(self._square), strict=True)
        ]

    def restore(self, state: Sequence[dict[str, Tensor]]) -> None:
        for of_one, mean, square in zip(state, self._parts(self._mean), self._parts(self._square), strict=True):
            if of_one:
                self.steps = int(of_one["step"])
                mean.copy_(of_one["exp_avg"])
                square.copy_(of_one["exp_avg_sq"])

    def _parts(self, vector: Floats) -> list[Tensor]:
        """The part of each parameter, in its shape."""
        ends = list(itertools.accumulate((parameter.numel() for parameter in self.parameters), initial=0))
        return [
            torch.from_numpy(vector[start:end]).view(parameter.shape)
            for parameter, (start, end) in zip(self.parameters, itertools.pairwise(ends), strict=True)
        ]
