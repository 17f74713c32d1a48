"""A graph that is open in a runtime: tensors in, tensors out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pahs.backends.graphs import Graph
from pahs.choices import GraphFormat
from pahs.errors import PahsError

GraphBackend = Literal["onnxruntime", "openvino"]
READS: dict[GraphBackend, tuple[GraphFormat, ...]] = {
    "onnxruntime": ("onnx",),
    "openvino": ("openvino", "onnx"),
}
"""The formats that each runtime opens."""


class Session(Protocol):
    """One graph. Inputs and outputs are float32, in the order of its description; outputs are memory of their own."""

    def __call__(self, inputs: Sequence[Tensor], /) -> list[Tensor]: ...


def installed(backend: GraphBackend) -> bool:
    return find_spec(backend) is not None


def require(backend: GraphBackend) -> None:
    if not installed(backend):
        raise PahsError(f"--backend {backend}: it is not installed; pip install 'pahs[{backend}]'")


def open_graph(file: Path, graph: Graph, backend: GraphBackend, precision: str) -> Session:
    """`precision`: in bf16 the layers of a float32 graph run in bfloat16; otherwise the graph has its own."""
    require(backend)
    kind = _OnnxRuntime if backend == "onnxruntime" else _OpenVino
    try:
        return kind(file, graph, precision)
    except Exception as error:  # whatever a runtime of another version raises
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()
        raise PahsError(
            f"{file}: {backend} cannot open it ({reason}); export the model again, or take another --backend"
        ) from None


class _OnnxRuntime:
    def __init__(self, file: Path, graph: Graph, precision: str) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        # Threads that wait for the next graph by spinning would take the cores from decoder and encoder.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self._inputs = [x.name for x in graph.taken]
        self._outputs = [x.name for x in graph.outputs]

    def __call__(self, inputs: Sequence[Tensor], /) -> list[Tensor]:
        feed = dict(zip(self._inputs, map(_array, inputs), strict=True))
        with _shortage_told():
            return [torch.from_numpy(x) for x in self._session.run(self._outputs, feed)]


class _OpenVino:
    """Compiled for the shapes that come first, which is faster by a tenth; once more for any others."""

    def __init__(self, file: Path, graph: Graph, precision: str) -> None:
        self._config = {
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "PERFORMANCE_HINT": "LATENCY",
            # OpenVINO 2026.4 cannot run every graph of int8 and bfloat16 layers; some give tensors without values.
            "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
        }
        self._model = _core().read_model(file)
        self._inputs = [x.name for x in graph.taken]
        self._outputs = [x.name for x in graph.outputs]
        self._shapes: list[tuple[int, ...]] | None = None
        self._first: Any = None
        self._any: Any = None

    def __call__(self, inputs: Sequence[Tensor], /) -> list[Tensor]:
        arrays = [_array(x) for x in inputs]
        with _shortage_told():
            request = self._request([x.shape for x in arrays])
            results = request.infer(dict(zip(self._inputs, arrays, strict=True)), share_inputs=True)
        return [torch.from_numpy(results[name]) for name in self._outputs]

    def _request(self, shapes: list[tuple[int, ...]]) -> Any:
        if self._shapes is None:
            self._shapes = shapes
            model = self._model.clone()
            model.reshape({name: list(shape) for name, shape in zip(self._inputs, shapes, strict=True)})
            self._first = self._compiled(model)
        if shapes == self._shapes:
            return self._first
        if self._any is None:
            self._any = self._compiled(self._model)
        return self._any

    def _compiled(self, model: Any) -> Any:
        return _core().compile_model(model, "CPU", self._config).create_infer_request()


@cache
def _core() -> Any:
    import openvino

    return openvino.Core()


@cache
def knows_bf16() -> bool:
    """Whether OpenVINO computes in bfloat16 on this processor."""
    return installed("openvino") and "BF16" in _core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def _array(x: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = x.detach().contiguous().numpy()
    return array


@contextmanager
def _shortage_told() -> Iterator[None]:
    """The engine makes its work smaller where memory runs out, once it is told so in Python's words."""
    try:
        yield
    except Exception as error:  # each runtime has exceptions of its own
        if "alloc" in str(error):
            raise MemoryError(str(error)) from None
        raise
