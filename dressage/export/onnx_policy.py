"""A trained policy with NumPy and onnxruntime: `OnnxPolicy("policy.onnx").act(observation)`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dressage.errors import CheckpointError, MissingExtraError, install_command
from dressage.export.batching import as_rows
from dressage.export.numpy_policy import answer, arrange
from dressage.learning.policy_files import check_seal, read_description

ONE_THREAD = 1  # A small network runs slower on several threads than on one.


class OnnxPolicy:
    """A policy read from an ONNX file.

    Args:
        path: What `dressage.export.export_policy` wrote.
        providers: Execution providers of onnxruntime, by preference.

    Raises:
        CheckpointError: If the file is missing, cut, altered or no policy of dressage.
        MissingExtraError: If onnxruntime is not installed.
    """

    def __init__(self, path: str | Path, providers: Sequence[str] = ("CPUExecutionProvider",)) -> None:
        runtime = _import_onnxruntime()
        path = Path(path)
        if not path.is_file():
            raise CheckpointError(f"There is no policy at {path}.")
        content = path.read_bytes()
        check_seal(content, str(path))
        options = runtime.SessionOptions()
        options.intra_op_num_threads = ONE_THREAD
        try:
            self.session = runtime.InferenceSession(content, options, providers=list(providers))
            text = self.session.get_modelmeta().custom_metadata_map["dressage"]
        # onnxruntime's own errors have no base but RuntimeError and Exception.
        except Exception as error:
            raise CheckpointError(f"{path} is no ONNX policy of dressage: {error}") from error
        self.description: dict[str, Any] = read_description(text, str(path))
        self.graph: dict[str, Any] = self.description["graph"]
        self._names = [port["name"] for port in self.graph["outputs"]]
        self._dtypes = {port["name"]: port["dtype"] for port in self.graph["inputs"]}

    def act(self, observation: Any, state: Any = None) -> Any:  # noqa: ANN401 (an array or a tree of them)
        """Choose the most likely action; see `NumpyPolicy.act`."""
        return answer(self.graph, self.run(arrange(self.description, observation, state)))

    def run(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Map all inputs of the graph, with any number of leading axes, to its outputs."""
        rows, lead = as_rows(self.graph, inputs, self._dtypes)
        made = self.session.run(self._names, rows)
        return {
            name: array.reshape((*lead, *array.shape[1:]))
            for name, array in zip(self._names, made, strict=True)
        }


def _import_onnxruntime() -> Any:  # noqa: ANN401 (a module that need not be installed)
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError(
            f"An ONNX file is run by the package `onnxruntime`: {install_command('onnx')}"
        ) from error
    return onnxruntime
