"""The kernels of TraC's network are assembled by the newer of Triton's assemblers, and nothing else is.

With a stand-in for Triton's settings; where Triton is installed, it compiles the kernels themselves for an H200, which
needs none."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tracrl.nets.assembler import CHOSEN, Assembler, newer, newer_for_launches

NEWER = Assembler("/triton/ptxas-blackwell", "12.9")


class Settings:
    """As Triton 3.6 has them: what was set is kept in the object, under the same name."""

    def __init__(self, usual: str = "12.8", newest: str | None = "12.9", heeded: bool = True):
        self._versions = {"/triton/ptxas": usual, "/triton/ptxas-blackwell": newest, "/mine": "1.0"}
        self._heeded = heeded

    @property
    def ptxas(self) -> SimpleNamespace:
        path = vars(self).get("ptxas", "/triton/ptxas") if self._heeded else "/triton/ptxas"
        return SimpleNamespace(path=path, version=self._versions[path])

    @property
    def ptxas_blackwell(self) -> SimpleNamespace:
        if self._versions[NEWER.path] is None:
            raise RuntimeError("Cannot find ptxas-blackwell")
        return SimpleNamespace(path=NEWER.path, version=self._versions[NEWER.path])


class Triton:
    """A stand-in, with these settings and what it has files its kernels under."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, settings: object):
        self.settings, self.filed_under = settings, ""
        backend = SimpleNamespace(hash=self.hash)
        active = SimpleNamespace(get_current_target=lambda: "an H200")
        modules = {
            "triton": SimpleNamespace(knobs=SimpleNamespace(nvidia=settings)),
            "triton.compiler": SimpleNamespace(make_backend=lambda target: backend),
            "triton.runtime": SimpleNamespace(driver=SimpleNamespace(active=active)),
        }
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, module)

    def hash(self) -> None:
        self.filed_under = self.filed_under or self.taken

    @property
    def taken(self) -> str:
        return self.settings.ptxas.path  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(CHOSEN, raising=False)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    newer.cache_clear()
    yield
    newer.cache_clear()


def test_the_newer_one_is_set_for_launches_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    triton = Triton(monkeypatch, Settings())
    for _ in range(2):
        with newer_for_launches() as version:
            assert (triton.taken, version) == NEWER
            assert CHOSEN not in os.environ, "a process that is started now would have it, too"
        assert triton.taken == "/triton/ptxas"
    with pytest.raises(ValueError, match="not compiled"), newer_for_launches():
        raise ValueError("not compiled")
    assert triton.taken == "/triton/ptxas"


def test_other_kernels_are_filed_under_the_assembler_that_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton asks for its version once: if that were in a launch, all would be found again as the newer one's."""
    triton = Triton(monkeypatch, Settings())
    with newer_for_launches():
        triton.hash()
    assert triton.filed_under == "/triton/ptxas"


@pytest.mark.parametrize("path", ["/mine", ""])
def test_the_users_own_choice_stays(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    triton = Triton(monkeypatch, Settings())
    monkeypatch.setenv(CHOSEN, path)
    with newer_for_launches() as version:
        assert (triton.taken, version) == ("/triton/ptxas", "")


def test_so_does_one_set_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings()
    vars(settings)["ptxas"] = "/mine"
    triton = Triton(monkeypatch, settings)
    with newer_for_launches() as version:
        assert (triton.taken, version) == ("/mine", "")
    assert triton.taken == "/mine"


def test_one_set_later_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    triton = Triton(monkeypatch, Settings())
    assert newer() == NEWER
    vars(triton.settings)["ptxas"] = "/mine"
    with newer_for_launches():
        assert triton.taken == NEWER.path
    assert triton.taken == "/mine"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "settings",
    [
        Settings(usual="12.9"),
        Settings(usual="12.10"),  # is later than 12.9
        Settings(newest=None),
        Settings(newest="13.1"),  # the driver may be one of CUDA 12
        Settings(newest="unknown"),
        Settings(heeded=False),
        SimpleNamespace(),
    ],
    ids=["no newer", "older", "not there", "next major", "no version", "not heeded", "other settings"],
)
def test_triton_takes_its_own_where_there_is_no_newer_one(settings: object, monkeypatch: pytest.MonkeyPatch) -> None:
    Triton(monkeypatch, settings)
    before = dict(vars(settings))
    with newer_for_launches() as version:
        assert version == ""
        assert vars(settings) == before
    assert vars(settings) == before


def test_a_later_major_version_is_taken_where_torch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    Triton(monkeypatch, Settings(newest="13.1"))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert newer() == Assembler(NEWER.path, "13.1")


@pytest.mark.parametrize("missing", ["triton", "triton.compiler"])
def test_where_there_is_no_triton_there_is_none(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Triton(monkeypatch, Settings())
    monkeypatch.setitem(sys.modules, missing, None)
    with newer_for_launches() as version:
        assert version == ""


def test_threads_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the first that is done would put the usual one back while the second compiles, and the second the newer one
    for good."""
    triton = Triton(monkeypatch, Settings())
    entered, seen = threading.Event(), []

    def launch() -> None:
        with newer_for_launches():
            entered.set()
            seen.append(triton.taken)

    other = threading.Thread(target=launch)
    with newer_for_launches():
        other.start()
        assert not entered.wait(0.2)
    other.join(10)
    assert seen == [NEWER.path]
    assert triton.taken == "/triton/ptxas"


COMPILE = """
import sys, torch, triton
from types import SimpleNamespace
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

torch.version.cuda = "13.0"
driver.set_active(SimpleNamespace(
    get_current_target=lambda: GPUTarget("cuda", 90, 32), get_current_device=lambda: 0, get_current_stream=lambda _: 0,
))
from tracrl.nets import fused, kernels

def launched(launch, *inputs):
    try:
        launch(*inputs)
    except Exception as error:  # there is nothing to launch it on: it is compiled before
        print(error, file=sys.stderr)

def weights(*shape):
    return torch.zeros(2, *shape)

x, bits, kind = weights(300, 8).bfloat16(), (weights(300, 8).to(fused.WORDS[64]),) * 2, torch.int64
layers = weights(8, 64), weights(1, 64), weights(64, 64), weights(1, 64), weights(64, 2), weights(1, 2)
draws = torch.zeros(3, 2, dtype=kind)
launched(fused._left_by_dropout, draws, 300, 64, 64, 64)
fused._left_by_dropout = lambda *_: bits
launched(fused._mlp, x, *layers, draws, 64, 0, 0)
launched(fused._mlp_slopes, weights(300, 2), *bits, layers[2], layers[4], 64, 0, x.dtype)
launched(kernels.random_bytes, torch.zeros(2, dtype=kind), torch.zeros((), dtype=kind), 1500)
for kernel in (fused._draw, fused._forward, fused._backward, kernels._draw):
    (compiled,) = kernel.device_caches[0][0].values()
    print(compiled.hash, compiled.asm["ptx"].split(".version ")[1].split()[0])
"""


def compiled(cache: Path, chosen: str | None = None) -> list[list[str]]:
    """What the four kernels are filed under, and the version of their code, which is their assembler's."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"TRITON_CACHE_DIR": str(cache)}
    environment |= {CHOSEN: chosen} if chosen else {}
    command = [sys.executable, "-c", COMPILE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def test_triton_compiles_these_kernels_by_it_and_no_others(tmp_path: Path) -> None:
    triton = pytest.importorskip("triton")
    if not triton.__version__.startswith("3.6."):
        pytest.skip("this Triton has other assemblers")
    tools = Path(triton.__file__).parent / "backends/nvidia/bin"
    ours = compiled(tmp_path)
    assert [code for _, code in ours] == ["8.8", "8.8", "8.8", "8.7"]
    usual = compiled(tmp_path, str(tools / "ptxas"))
    assert [code for _, code in usual] == ["8.7"] * 4, "what the newer one made is taken for the user's own"
    assert usual[3] == ours[3], "another kernel is filed under the newer one"
    assert [code for _, code in compiled(tmp_path, str(tools / "ptxas-blackwell"))] == ["8.8"] * 4
