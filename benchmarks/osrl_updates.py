"""The reference library's own trainers, one update after the other, for ``benchmarks/baselines.py``.

Runs in an environment of its own that has the reference library (PyPI ``osrl-lib``) and torch, and answers requests on
standard input: a line ``method count`` is answered with the milliseconds an update took, over ``count`` of them. Its
logger is replaced by one that does nothing, its batches lie ready, so that what is timed is the update alone.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

Update = Callable[[], None]


class SilentLogger:
    def store(self, **_: Any) -> None:
        pass


def stub_packages() -> None:
    """What the library imports and an update does not need: environments, data sets, its logger."""

    def stand_in(name: str, **attributes: Any) -> None:
        module = types.ModuleType(name)
        vars(module).update(attributes)
        sys.modules[name] = module

    stand_in("fsrl")
    stand_in("fsrl.utils", DummyLogger=SilentLogger, WandbLogger=SilentLogger)
    for name, attributes in (("gymnasium", {"Env": object}), ("tqdm", {}), ("tqdm.auto", {"trange": range})):
        if importlib.util.find_spec(name.split(".")[0]) is None:
            stand_in(name, **attributes)
    home = next(Path(p) for p in sys.path if (Path(p) / "osrl" / "algorithms").is_dir())
    for name in ("osrl.common", "osrl.algorithms"):  # their own __init__ import everything
        stand_in(name, __path__=[str(home / name.replace(".", "/"))])


class Updates:
    """One update of each method on made-up batches, each method built when first asked for."""

    def __init__(self, observation: int, action: int, batch: int, sequences: int, device: str):
        self.sizes, self.device = (observation, action, 1.0), device
        self.sequences = sequences
        self.states, self.following = self.normal(batch, observation), self.normal(batch, observation)
        self.actions, self.rewards = self.uniform(batch, action) * 2 - 1, self.normal(batch)
        self.costs, self.zeros = self.binary(0.3, batch), torch.zeros(batch, device=device)
        self.built: dict[str, Update] = {}

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=self.device)

    def uniform(self, *shape: int) -> torch.Tensor:
        return torch.rand(*shape, device=self.device)

    def binary(self, share: float, *shape: int) -> torch.Tensor:
        return (self.uniform(*shape) < share).float()

    def trained(self, module: str, name: str, model: dict[str, Any], trainer: dict[str, Any], *more: Any) -> Any:
        """The library's trainer of one of its models."""
        home = importlib.import_module(f"osrl.algorithms.{module}")
        network = getattr(home, name)(*self.sizes, *more, **model).to(self.device)
        if hasattr(network, "log_temperature"):  # CDT's is a plain tensor, which .to does not move
            network.log_temperature = network.log_temperature.detach().to(self.device).requires_grad_(True)
        return getattr(home, f"{name}Trainer")(network, None, SilentLogger(), device=self.device, **trainer)

    def update(self, method: str) -> Update:
        if method not in self.built:
            self.built[method] = self.build(method)
        return self.built[method]

    def build(self, method: str) -> Update:
        plain: dict[str, Any] = {"a_hidden_sizes": [256, 256], "device": self.device, "episode_len": 200}
        critics = {**plain, "c_hidden_sizes": [256, 256]}
        with_vae = {**critics, "vae_hidden_sizes": 400, "sample_action_num": 10, "num_q": 2, "num_qc": 2}
        if method in ("bc-all", "bc-safe"):
            trainer = self.trained("bc", "BC", plain, {})
            return lambda: trainer.train_one_step(self.states, self.actions)
        if method == "coptidice":
            stds = [np.ones((1, n), np.float32) for n in self.sizes[:2]]
            trainer = self.trained("coptidice", "COptiDICE", {**critics, "num_nu": 2, "num_chi": 2}, {}, "softchi",
                                   0.005, *stds)  # fmt: skip
            batch = (self.states, self.following, self.actions, self.rewards, self.costs, self.zeros,
                     self.binary(0.005, len(self.zeros)))  # fmt: skip
            return lambda: trainer.train_one_step(batch)
        if method == "cdt":
            return self.build_cdt()
        module, name = {"bcq-lag": ("bcql", "BCQL"), "bear-lag": ("bearl", "BEARL"), "cpq": ("cpq", "CPQ")}[method]
        if method == "bear-lag":
            with_vae["start_update_policy_step"] = 0
        trainer = self.trained(module, name, with_vae, {})
        batch = (self.states, self.following, self.actions, self.rewards, self.costs, self.zeros)
        return lambda: trainer.train_one_step(*batch)

    def build_cdt(self) -> Update:
        model = {"seq_len": 10, "episode_len": 200, "embedding_dim": 128, "num_layers": 3, "num_heads": 8,
                 "attention_dropout": 0.1, "residual_dropout": 0.1, "embedding_dropout": 0.1, "use_rew": True,
                 "use_cost": True, "cost_transform": True, "stochastic": True,
                 "target_entropy": -self.sizes[1]}  # fmt: skip
        trainer = self.trained("cdt", "CDT", model, {"lr_warmup_steps": 500, "loss_cost_weight": 0.02})
        shape = (self.sequences, 10)
        sequence = (
            self.normal(*shape, int(self.sizes[0])),
            self.uniform(*shape, int(self.sizes[1])),
            self.normal(*shape),
            self.normal(*shape),
            torch.arange(10, device=self.device).expand(*shape),
            torch.ones(*shape, device=self.device),
            self.normal(self.sequences),
            self.binary(0.3, *shape),
        )
        return lambda: trainer.train_one_step(*sequence)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs=4, required=True, help="observation, action, batch, sequences")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clock", default="wall", choices=("wall", "cpu"))
    options = parser.parse_args()
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    stub_packages()
    updates = Updates(*options.sizes, options.device)
    print("ready", flush=True)
    for line in sys.stdin:
        method, count = line.split()
        update = updates.update(method)
        began = clock()
        for _ in range(int(count)):
            update()
        if options.device == "cuda":
            torch.cuda.synchronize()
        print((clock() - began) / int(count) * 1e3, flush=True)


if __name__ == "__main__":
    main()
