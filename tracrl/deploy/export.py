"""One policy as an ONNX file: standardisation, network, action box and clipping inside, and what is known of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tracrl
from tracrl.deploy.graph import Graph, require
from tracrl.deploy.kinds import BATCH, Exporter, exporter_of
from tracrl.errors import TracrlError
from tracrl.files import replacing
from tracrl.policies.base import Floats, Policy

TOLERANCE = 1e-5
"""how far the file's actions may be from the policy's, in halves of the action box"""
STATES = 2_000
"""that it is tried on"""
NOT_SHOWN = "It is not shown to be safe: nothing here says what it costs."


def export(
    policy: Policy, path: str | Path, *, about: Mapping[str, Any] | None = None, states: Floats | None = None
) -> float:
    """Write one policy as ONNX; how far its actions are at most from ``policy.act``, in halves of the action box.

    The file takes ``observation``, float32 (batch, size), in the log's own units, and gives ``action``. It is run in
    onnxruntime before it is written, on ``states`` (such as ``data.observations``) and on random ones: where its
    actions differ, nothing is written. ``about`` is added to its metadata.
    """
    if len(policy) != 1:
        raise TracrlError(
            f"This is a stack of {len(policy)} policies, and a file holds one: export policy[0], or name one by its "
            "limit and seed."
        )
    path = Path(path)
    if path.suffix != ".onnx":
        raise TracrlError(f"The file is to be {str(path)!r}; expected a name that ends in .onnx.")
    exporter = exporter_of(policy[0])
    content = _model(exporter, {**_of_policy(policy), **exporter.about(), **(about or {})})
    difference = _check(exporter, content, _states(policy, states))
    with replacing(path) as aside:
        aside.write_bytes(content)
    return difference


def _model(exporter: Exporter, about: Mapping[str, Any]) -> bytes:
    policy, graph = exporter.policy, Graph()
    metadata = policy.metadata
    observation = graph.input("observation", (BATCH, policy.observation_size))
    seen = observation
    if metadata.observation_mean:  # in float64: a float32 pascal has no digits left once its mean is taken off
        centred = graph.node("Sub", graph.cast(seen, np.float64), graph.constant(metadata.observation_mean, np.float64))
        seen = graph.cast(
            graph.node("Div", centred, graph.constant(metadata.observation_scale, np.float64)), np.float32
        )
    action = graph.node("Add", exporter.scaled_action(graph, seen), graph.constant(1.0))
    low, high = (np.array(end, np.float32) for end in (metadata.action_low, metadata.action_high))
    action = graph.node("Add", graph.node("Mul", action, graph.constant((high - low) / 2)), graph.constant(low))
    action = graph.node("Min", graph.node("Max", action, graph.constant(low)), graph.constant(high))
    # Layers may make a number of what is none; the caller must see that no action follows from it.
    strange = graph.node("Or", graph.node("IsNaN", observation), graph.node("IsInf", observation))
    any_strange = graph.node("ReduceMax", graph.cast(strange, np.float32), axes=[1], keepdims=1)
    refused = graph.cast(any_strange, np.bool_)
    for more in exporter.refused:
        refused = graph.node("Or", refused, more)
    action = graph.node("Where", refused, graph.constant(np.nan), action)
    if inputs := exporter.how_to_call():
        about = {**about, "inputs": inputs}
    properties = {key: value if isinstance(value, str) else json.dumps(value) for key, value in about.items()}
    limit = f"a cost limit of {about['limit']:g}" if "limit" in about else "any cost limit that it is told"
    sentence = f"{metadata.method} for {limit} (seed {metadata.seeds[0]}). {about['safety']}"
    return graph.model(action, "action", (BATCH, len(low)), properties, sentence)


def _of_policy(policy: Policy) -> dict[str, Any]:
    metadata = policy.metadata
    return {
        "tracrl_version": tracrl.__version__,
        "method": metadata.method,
        "seed": metadata.seeds[0],
        "task": metadata.task or "",
        "action_low": list(metadata.action_low),
        "action_high": list(metadata.action_high),
        "safety": NOT_SHOWN,
    }


def _states(policy: Policy, given: Floats | None) -> Floats:
    """Given ones, evenly through them, and random ones of the size that the network is used to."""
    generator = np.random.default_rng(0)
    mean = np.array(policy.metadata.observation_mean or 0.0)
    scale = np.array(policy.metadata.observation_scale or 1.0)
    drawn = mean + scale * generator.normal(size=(STATES, policy.observation_size)) * generator.uniform(
        0, 3, (STATES, 1)
    )
    random = drawn.astype(np.float32)
    if given is None:
        return random
    if given.ndim != 2 or given.shape[1] != policy.observation_size:
        raise TracrlError(
            f"The states have shape {given.shape}; expected (n, {policy.observation_size}), as the policy takes them."
        )
    rows = np.unique(np.linspace(0, len(given) - 1, STATES).astype(np.int64))
    return np.concatenate([np.asarray(given[rows], np.float32), random])


def _check(exporter: Exporter, content: bytes, states: Floats) -> float:
    """The largest difference, after a run of the content in onnxruntime; states whose candidates tie are left out."""
    runtime = require("onnxruntime")
    policy = exporter.policy
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    expected, more = exporter.ask(states, np.random.default_rng(1))
    low, high = (np.array(end, np.float64) for end in (policy.metadata.action_low, policy.metadata.action_high))
    half = np.maximum((high - low) / 2, 1e-30)
    found = session.run(["action"], {"observation": states, **more})[0]
    difference = np.nan_to_num(np.abs(found.astype(np.float64) - expected) / half, nan=np.inf)
    # Where a box lies far from 0, the last digit of a float32 is all that can be asked for.
    digit = np.spacing(np.maximum(np.abs(low), np.abs(high)).astype(np.float32)) / half
    kept = len(states) - int(exporter.ties * len(states))
    order = np.argsort((difference - 2 * digit).max(axis=1))[:kept]
    largest = float(difference[order].max())
    if not (difference[order] <= TOLERANCE + 2 * digit).all():
        raise TracrlError(
            f"The exported policy acts otherwise than the policy itself: by {largest:.1e} of half the action box, "
            f"where at most {TOLERANCE:g} is allowed; nothing was written. Deploy policy.safetensors itself."
        )
    alone = session.run(["action"], {"observation": states[:1], **{key: value[:1] for key, value in more.items()}})[0]
    if not np.allclose(alone[0], found[0], atol=float(TOLERANCE * half.max()), rtol=0):
        raise TracrlError("The exported policy acts otherwise on one state than on many; nothing was written.")
    return largest
