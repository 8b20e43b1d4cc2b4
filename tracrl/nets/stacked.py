"""Layers with a leading dimension of runs: ``R`` networks of one shape, trained side by side in one product.

A network of the stack sees only its own slice of weights, so each of them is exactly what it would be alone.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, cast

import torch
from torch import Tensor, nn

from tracrl.nets import fusing, random
from tracrl.nets.blocks import Masks, blocked_mlp
from tracrl.nets.dropout import compiled_kernel, kept_weight, relu_dropout

Initialiser = Literal["orthogonal", "uniform"]
DROPOUT_STREAM = 1000  # layer i draws its masks from stream DROPOUT_STREAM + i
Fused = Callable[[Tensor, Sequence[tuple[Tensor, Tensor]], Sequence[Tensor], int, Tensor, tuple[int, int]], Tensor]
PRODUCTS, ROWS_OF_A_PART = 32, 1024
"""of gradients of weights on a GPU: enough products for its processors, of at least so many rows each"""
TRIED_ROWS, TRIED_FIRST, FUSED_TOLERANCE = 300, 8, 0.1
"""of what fused kernels are tried on: rows, the last block of them not full; the number of the first; and how far their
results may be from the plain form's in each run, relative to these, as vectors. Both round to the eight bits of
bfloat16, in different places, and a unit near 0 may be above it in one of them alone. Right ones are up to 0.05 apart,
those with the masks of other rows more than 0.5."""
FUSED_KERNELS = "the fused kernels of the network are"
ANOTHER = "Another assembler may make right ones: TRITON_PTXAS_PATH, see docs/performance.md"


class StackedLinear(nn.Module):
    """x ↦ scale · x W + b for each run: weight (R, in, out), bias (R, 1, out), input (R, rows, in).

    With ``members`` each run has an ensemble of K such layers: weight (R, K, in, out), bias (R, K, 1, out), input
    (R · K, rows, in).
    """

    def __init__(
        self,
        generators: Sequence[torch.Generator],
        inputs: int,
        outputs: int,
        init: Initialiser,
        gain: float,
        members: int | None = None,
    ):
        super().__init__()
        drawn = [_initial(g, inputs, outputs, init, gain) for g in generators for _ in range(members or 1)]
        lead = (len(generators),) if members is None else (len(generators), members)
        self.weight = nn.Parameter(torch.stack([w for w, _ in drawn]).view(*lead, inputs, outputs))
        self.bias = nn.Parameter(torch.stack([b for _, b in drawn]).view(*lead, 1, outputs))

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        # Scaling the weights costs nothing; baddbmm's own alpha would cost a pass over x in the backward direction.
        weight = self.weight if scale == 1.0 else self.weight * scale
        weight, bias = weight.flatten(0, -3), self.bias.flatten(0, -3)
        return gpu_product(x, weight) + bias if x.is_cuda else torch.baddbmm(bias, x, weight)


class StackedMLP(nn.Module):
    """Hidden layers of ReLU (or tanh), dropout after each, and ``output`` on the last (R, rows, in) → (R, rows, out).

    ``generators`` has one per run: each run's first weights depend on its own generator alone. With ``members`` each
    run has an ensemble of K networks that see the same rows: (R, rows, in) → (R, K, rows, out).
    """

    def __init__(
        self,
        generators: Sequence[torch.Generator],
        sizes: Sequence[int],
        *,
        output: Callable[[Tensor], Tensor] | None = None,
        dropout: float = 0.0,
        init: Initialiser = "uniform",
        hidden: Literal["relu", "tanh"] = "relu",
        members: int | None = None,
    ):
        super().__init__()
        hidden_gain = 2.0**0.5
        last = len(sizes) - 2
        layers = [
            StackedLinear(generators, a, b, init, 1.0 if i == last else hidden_gain, members)
            for i, (a, b) in enumerate(itertools.pairwise(sizes))
        ]
        self.layers: Sequence[StackedLinear] = nn.ModuleList(layers)  # type: ignore[assignment]
        self.hidden = hidden
        self.output = output
        self.members = members
        self.threads: int | None = None
        """that share its rows out on a CPU; None: as many as torch would use"""
        self.dropped = round(dropout * 256)
        self.fused: Fused | None = None
        """the whole network with dropout in one kernel each way, where that is fast or asked for (:meth:`fuse`)"""
        self.forms = (0, 0)
        """of these kernels, forward and back"""

    def fuse(self) -> None:
        """On a GPU with products in bfloat16: kernels of our own, where the sizes fit, in a fast form unless others are
        asked for (:mod:`tracrl.nets.fusing`).

        Before they are used they are tried, each way in one form after the other: the first that computes what the
        plain form does is taken. Where there is none, or no Triton, that is said and the plain form stays.
        """
        if not fusing.wanted():
            return
        try:
            from tracrl.nets.fused import FORMS, fits, fused_mlp
        except ImportError as error:
            return fusing.left_out(FUSED_KERNELS, error)
        sizes = [self.layers[0].weight.shape[-2], *(layer.weight.shape[-1] for layer in self.layers)]
        if self.members is not None or self.hidden != "relu" or self.dropped == 0 or not fits(sizes):
            return
        trial = copy.deepcopy(self)
        with torch.no_grad():
            for layer in trial.layers:  # first biases may be 0, and a wrong use of them would not be seen
                layer.bias.add_(torch.linspace(-0.2, 0.2, layer.bias.shape[-1], device=layer.bias.device))
        expected = trial.tried()
        trial.fused = fused_mlp
        usable = range(len(FORMS) if fusing.asked_for() else len(FORMS) - 1)
        problems: list[object] = []
        forward = next((f for f in usable if trial._is_right((f, f), expected[:1], problems)), None)
        if forward is not None:
            back = next((b for b in usable if trial._is_right((forward, b), expected, problems)), None)
            if back is not None:
                self.fused, self.forms = fused_mlp, (forward, back)
                return
        fusing.left_out(FUSED_KERNELS, problems[-1])

    def _is_right(self, forms: tuple[int, int], expected: Sequence[Tensor], problems: list[object]) -> bool:
        """Whether the kernels in these forms compute what is expected of :meth:`tried`; else ``problems`` says why."""
        self.forms = forms
        try:
            off = difference(self.tried(slopes=len(expected) > 1), expected)
        except Exception as error:  # whatever a compiler says
            problems.append(error)
            return False
        if off < FUSED_TOLERANCE:  # NaN is not
            return True
        problems.append(f"their results differ by {off:.2g}. {ANOTHER}")
        return False

    def tried(self, rows: int = TRIED_ROWS, slopes: bool = True) -> list[Tensor]:
        """The network's result on a few made-up rows with dropout and, with ``slopes``, its parameters' gradients."""
        weight = self.layers[0].weight
        runs, inputs, device = len(weight), weight.shape[1], weight.device
        x = torch.randn(runs, rows, inputs, generator=torch.Generator().manual_seed(0)).to(device)
        seeds = torch.arange(runs, device=device)
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            result = self(x.bfloat16(), lambda stream: random.keys(seeds, seeds[0], stream), first_row=TRIED_FIRST)
        if not slopes:
            return [result.detach()]
        # Its slope in tanh is above 0: no bias has a gradient that is the small rest of a sum of large ones.
        loss = (result + result.square() / 2).sum()
        return [result.detach(), *torch.autograd.grad(loss, list(self.parameters()))]

    def forward(
        self,
        x: Tensor,
        mask_key: Callable[[int], Tensor] | None = None,
        *,
        first_row: random.Position = 0,
        frozen: bool = False,
    ) -> Tensor:
        """``mask_key(stream)`` gives the keys (R,) of the dropout masks; without it nothing is dropped.

        ``first_row`` is where x begins in a larger x that is taken in parts: its masks are those of these rows there.
        Times the units of each hidden layer it is a multiple of 8. ``frozen`` spares the gradients of the weights,
        where only those of x are asked for.
        """
        dropping = mask_key is not None and self.dropped > 0
        if x.device.type == "cpu" and x.dtype == torch.float32:
            kernel = compiled_kernel() if dropping else None
            if mask_key is None or not dropping:
                return self._in_blocks(x, frozen, None)
            if kernel is not None and self.members is None:
                keys = [mask_key(DROPOUT_STREAM + i) for i in range(len(self.layers) - 1)]
                return self._in_blocks(x, frozen, Masks(keys, self.dropped, kernel, int(first_row)))
        if self.fused is not None and mask_key is not None and not frozen and torch.is_autocast_enabled(x.device.type):
            keys = [mask_key(DROPOUT_STREAM + i) for i in range(len(self.layers) - 1)]
            first = first_row if isinstance(first_row, Tensor) else torch.full((), first_row, device=x.device)
            layers = [(layer.weight, layer.bias) for layer in self.layers]
            result = self.fused(x.bfloat16(), layers, keys, self.dropped, first, self.forms)
            return result if self.output is None else self.output(result)
        scale = 1.0
        if self.members is not None:
            x = x[:, None].expand(-1, self.members, -1, -1).flatten(0, 1)
        for i, layer in enumerate(self.layers[:-1]):
            x = layer(x, scale)
            if x.is_cuda and torch.is_autocast_enabled("cuda"):  # what the next product would round is rounded at once
                x = x.bfloat16()
            if dropping:
                assert mask_key is not None
                x = relu_dropout(x, mask_key(DROPOUT_STREAM + i), self.dropped, first_row * x.shape[-1] // 8)
                scale = kept_weight(self.dropped)
            else:
                x = torch.relu_(x) if self.hidden == "relu" else torch.tanh_(x)
        x = self.layers[-1](x, scale)
        if self.members is not None:
            x = x.view(-1, self.members, *x.shape[1:])
        x = x if self.output is None else self.output(x)
        return x.float() if x.dtype == torch.bfloat16 else x  # products may be rounded, what is made of them not

    def _in_blocks(self, x: Tensor, frozen: bool, masks: Masks | None) -> Tensor:
        layers = self.weights() if frozen else [(layer.weight, layer.bias) for layer in self.layers]
        if masks is not None:  # what is kept weighs the more, from the second layer on
            scale = kept_weight(masks.threshold)
            layers = [layers[0], *((weight * scale, bias) for weight, bias in layers[1:])]
        flat = [(weight.flatten(0, -3), bias.flatten(0, -3)) for weight, bias in layers]
        bf16 = torch.is_autocast_enabled("cpu")
        result = blocked_mlp(x, flat, self.members or 1, self.hidden == "tanh", masks, bf16, self.threads)
        if self.members is not None:
            result = result.view(-1, self.members, *result.shape[1:])
        return result if self.output is None else self.output(result)

    def weights(self) -> list[tuple[Tensor, Tensor]]:
        """(weight, bias) of each layer, detached."""
        return [(layer.weight.detach(), layer.bias.detach()) for layer in self.layers]


class StackedAdam(nn.Module):
    """Adam (Kingma and Ba 2015) over stacked parameters; its moments are buffers, so they are saved like weights.

    Adam is elementwise: a run's parameters move as they would alone. ``count`` has one entry per run for the same
    reason that everything has: a stack can be cut and joined along its first dimension.
    """

    count: Tensor

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ):
        super().__init__()
        self._parameters_of = list(parameters)
        self.betas, self.eps = betas, eps
        for i, parameter in enumerate(self._parameters_of):
            self.register_buffer(f"m{i}", torch.zeros_like(parameter))
            self.register_buffer(f"v{i}", torch.zeros_like(parameter))
        first = self._parameters_of[0]
        self.register_buffer("count", torch.zeros(len(first), dtype=torch.float64, device=first.device))

    def moments(self) -> tuple[list[Tensor], list[Tensor]]:
        """Running means of the gradient of each parameter and of its square."""
        first, second = ([self._buffers[f"{name}{i}"] for i in range(len(self._parameters_of))] for name in "mv")
        return cast("list[Tensor]", first), cast("list[Tensor]", second)

    def restart(self) -> None:
        """Forget all moments."""
        for buffer in self.buffers():
            buffer.zero_()

    def step(self, loss: Tensor, lr: float | Tensor) -> None:
        """Differentiate the summed loss of all runs (R,) and move each run's parameters."""
        self.step_in_parts([loss], lr)

    def step_in_parts(self, losses: Iterable[Tensor], lr: float | Tensor) -> Tensor:
        """A step along the sum of these losses (R,), each differentiated before the next is asked for; the sum."""
        gradients: tuple[Tensor, ...] = ()
        total: Tensor | None = None
        for loss in losses:
            more = torch.autograd.grad(loss.sum(), self._parameters_of)
            if total is None:
                gradients, total = more, loss.detach()
            else:
                torch._foreach_add_(gradients, more)
                total = total + loss.detach()
        assert total is not None
        self.move(gradients, lr)
        return total

    @torch.no_grad()
    def move(self, gradients: Sequence[Tensor], lr: float | Tensor) -> None:
        """PyTorch's fused kernel: all that happens to a number happens while it is in a register."""
        self.count += 1
        if isinstance(lr, Tensor):  # the kernel of a GPU reads it where it lies, that of a CPU wants a number
            lr = lr.float() if lr.is_cuda else float(lr)
        moments, squares = self.moments()
        steps = [self.count[0].float()] * len(moments)  # the runs of a stack move together
        first, second = self.betas
        torch._fused_adam_(
            list[Tensor](self._parameters_of),
            [gradient.contiguous() for gradient in gradients],
            moments,
            squares,
            [],
            steps,
            lr=lr,
            beta1=first,
            beta2=second,
            weight_decay=0.0,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
        )


def difference(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """How far these are from those at most, in one of them and one run (the first dimension), relative, as vectors."""
    pairs = [(a.flatten(1), b.flatten(1)) for a, b in zip(found, expected, strict=True)]
    return float(torch.stack([(a - b).norm(dim=1) / b.norm(dim=1) for a, b in pairs]).max())  # NaN stays NaN


def gpu_product(x: Tensor, weight: Tensor) -> Tensor:
    """x W as a GPU does it best: (R, rows, in), (R, in, out) → (R, rows, out).

    Both sides of W are filled up to multiples of 8, which its matrix units want. Many rows are cut into parts, each
    with a copy of W: the gradient of W, a sum over all rows, is then computed by many processors and not by the few
    that a result of its size would be given to. The bias is left to whatever is fused behind the product: baddbmm
    would write it out first.
    """
    runs, rows, inputs = x.shape
    outputs = weight.shape[2]
    more_in, more_out = -inputs % 8, -outputs % 8
    if more_in:
        x = torch.nn.functional.pad(x, (0, more_in))
    if more_in or more_out:
        weight = torch.nn.functional.pad(weight, (0, more_out, 0, more_in))
    parts = parts_of(rows, runs) if torch.is_grad_enabled() and weight.requires_grad else 1
    if parts > 1:
        weight = weight[:, None].expand(-1, parts, -1, -1).flatten(0, 1)
        x = x.reshape(runs * parts, rows // parts, -1)
    return torch.bmm(x, weight).view(runs, rows, -1)[..., :outputs]


def parts_of(rows: int, networks: int) -> int:
    """Into how many parts the rows of a product are cut on a GPU."""
    parts = 1
    while networks * parts < PRODUCTS and rows % (2 * parts) == 0 and rows // (2 * parts) >= ROWS_OF_A_PART:
        parts *= 2
    return parts


def generators(seeds: Sequence[int], purpose: int = 0) -> list[torch.Generator]:
    """One generator per run for first weights; ``purpose`` keeps a method's networks apart."""
    key = random.keys(torch.tensor(list(seeds)), torch.tensor(-1), purpose)
    return [torch.Generator().manual_seed(int(k) & (2**63 - 1)) for k in key]


def _initial(
    generator: torch.Generator, inputs: int, outputs: int, init: Initialiser, gain: float
) -> tuple[Tensor, Tensor]:
    weight = torch.empty(inputs, outputs)
    if init == "orthogonal":
        return nn.init.orthogonal_(weight, gain, generator=generator), torch.zeros(outputs)
    bound = inputs**-0.5  # PyTorch's own default for nn.Linear
    return weight.uniform_(-bound, bound, generator=generator), torch.empty(outputs).uniform_(
        -bound, bound, generator=generator
    )
