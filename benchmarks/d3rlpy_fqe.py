"""d3rlpy's own fitted Q evaluation of one policy, for ``benchmarks.estimates_speed``.

Runs in an environment of its own that has d3rlpy (PyPI) and torch: ``python d3rlpy_fqe.py ARRAYS.npz UPDATES THREADS``.
The arrays hold the log with one signal, and the layers of the policy. It prints a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time

import d3rlpy
import numpy as np
import torch


def main(path: str, updates: int, threads: int) -> None:
    torch.set_num_threads(threads)
    arrays = np.load(path)
    log = d3rlpy.dataset.MDPDataset(
        arrays["observations"], arrays["actions"], arrays["signal"], arrays["terminals"], arrays["timeouts"]
    )
    policy = d3rlpy.algos.BCConfig().create(device="cpu:0")
    policy.build_with_dataset(log)
    layers = [(torch.from_numpy(arrays[f"weight{i}"]), torch.from_numpy(arrays[f"bias{i}"])) for i in range(3)]

    def act(x: torch.Tensor) -> torch.Tensor:
        for i, (weight, bias) in enumerate(layers):
            x = x @ weight + bias
            x = torch.relu(x) if i < 2 else torch.tanh(x)
        return x

    policy.impl.inner_predict_best_action = act
    fqe = d3rlpy.ope.FQE(algo=policy, config=d3rlpy.ope.FQEConfig(gamma=float(arrays["gamma"])), device="cpu:0")
    started, busy = time.monotonic(), time.process_time()
    fqe.fit(
        log,
        n_steps=updates,
        n_steps_per_epoch=updates,
        show_progress=False,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )
    times = {"seconds": time.monotonic() - started, "busy": time.process_time() - busy}
    first = arrays["first"].astype(np.float32)
    actions = act(torch.from_numpy(first)).numpy()
    value = float(np.mean(fqe.predict_value(first, actions)))
    print(json.dumps({**times, "updates": updates, "value": value, "version": d3rlpy.__version__}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
