"""Score a network on a dataset, through the same engine that deblurs videos.

    dataset -> blurry frames -> engine -> 8-bit frames -> PSNR, SSIM -> report

Frames are read as the engine asks for them, and only their scores are kept. The JSON file is rewritten after each
sequence, and a later run of the same network and protocol continues from it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, is_dataclass, replace
from operator import attrgetter
from pathlib import Path

from pahs import __version__
from pahs.backends.load import load
from pahs.backends.network import GraphNetwork
from pahs.data.layouts import PairedDataset, open_dataset
from pahs.engine.plan import longest_chunk
from pahs.errors import PahsError
from pahs.evaluation.flops import flops_per_frame, parameters
from pahs.evaluation.long import films, long_table, score_long, write_long_json
from pahs.evaluation.options import EvaluateOptions, EvaluateTask
from pahs.evaluation.protocol import Take
from pahs.evaluation.report import Evaluation, ModelFacts, markdown_table, read_json, write_json
from pahs.evaluation.score import SequenceScore, score
from pahs.evaluation.selection import score_selection, selection_table, write_selection_json
from pahs.files import write_text
from pahs.networks.contract import Deblurrer
from pahs.progress import bar
from pahs.runtime import weights
from pahs.runtime.device import choose_device, device_name
from pahs.runtime.load import default_model
from pahs.runtime.precision import name_of_dtype

__all__ = ["EvaluateOptions", "Evaluation", "evaluate", "markdown_table", "read_json", "run", "write_json"]


def evaluate(
    model: Deblurrer,
    dataset: PairedDataset,
    options: EvaluateOptions = EvaluateOptions(),  # noqa: B008
    *,
    name: str = "model",
    json_file: Path | None = None,
    strips: Path | None = None,
    overwrite: bool = False,
    quiet: bool = True,
) -> Evaluation:
    """Score `model`, on its own device and in its own precision, on every sequence of `dataset`.

    `json_file` is written after each sequence; sequences in it that were scored with the same network and options are
    not run again. `strips` is a folder for one comparison picture per sequence.
    """
    result = Evaluation(
        version=__version__,
        model=_facts(model, dataset, options, name),
        data=str(dataset.root),
        layout=dataset.layout,
        split=dataset.split,
        options=options,
        planned=tuple(sequence.name for sequence in dataset.sequences),
        sequences=(),
    )
    takes = [Take.of(sequence, options, model.contract.family) for sequence in dataset.sequences]
    scores = _finished(result, json_file) if json_file and not overwrite else {}
    was_training = model.training
    model.eval()
    try:
        with bar(name, sum(take.outputs for take in takes), quiet=quiet) as advance:
            for take in takes:
                if take.fingerprint in scores:
                    advance(take.outputs)
                    continue
                scores[take.fingerprint] = score(model, take, options, strips, advance)
                if json_file:
                    write_json(_with_scores(result, takes, scores), json_file)
    finally:
        model.train(was_training)
    return _with_scores(result, takes, scores)


def run(
    task: EvaluateTask,
    model: str = "auto",
    options: EvaluateOptions = EvaluateOptions(),  # noqa: B008
    json_file: Path | None = None,
    quiet: bool = False,
) -> None:
    """`pahs evaluate`: score a model by name or file, write what was asked for, and print the table."""
    dataset = None if task.data is None else open_dataset(task.data, task.layout, task.split, task.kind)
    path = default_model(choose_device(task.device)) if model == "auto" else model
    precision = "fp32" if (task.long or task.selection) and task.precision == "auto" else task.precision
    network, name = load(path, task.device, precision, backend=task.backend, quiet=quiet), Path(path).name
    if dataset is not None and task.selection:
        table = selection(network, name, dataset, options.limit, json_file)
    elif dataset is None or task.long:
        table = long(network, name, dataset, task, json_file)
    else:
        result = evaluate(
            network,
            dataset,
            options,
            name=name,
            json_file=json_file,
            strips=task.strips,
            overwrite=task.overwrite,
            quiet=quiet,
        )
        table = markdown_table(result)
    if task.markdown:
        write_text(task.markdown, table)
    print(table, end="")


def long(
    network: Deblurrer, name: str, dataset: PairedDataset | None, task: EvaluateTask, json_file: Path | None
) -> str:
    """`pahs evaluate --long`: compare long sweeps with short ones; returns the table.

    In float32 unless a precision is asked for: half precision would add its own rounding.
    """
    (width, height), multiple = task.size, network.contract.multiple_of
    if min(task.size) < max(16, network.contract.min_size) or width % multiple or height % multiple:
        raise PahsError(f"--size {width} {height}: use multiples of {multiple}, 16 or more")
    scores = []
    with bar(name, None) as advance:
        for film, clip in films(width, height, dataset):
            scores.append(score_long(network, film, clip, task.frames))
            advance(task.frames)
    conditions = f"{_where(network)}, {width}x{height}"
    if json_file:
        write_long_json(json_file, name, conditions, scores)
    return long_table(name, conditions, scores)


def selection(
    network: Deblurrer, name: str, dataset: PairedDataset, frames: int | None, json_file: Path | None
) -> str:
    """`pahs evaluate --selection`: what the selection could gain; returns the table."""
    with bar(name, len(dataset.sequences)) as advance:
        scores = score_selection(network, dataset, frames, advance)
    if json_file:
        write_selection_json(json_file, name, _where(network), scores)
    return selection_table(name, _where(network), scores)


def _where(network: Deblurrer) -> str:
    return f"{name_of_dtype(network.dtype)} on {device_name(network.device)}"


def _facts(model: Deblurrer, dataset: PairedDataset, options: EvaluateOptions, name: str) -> ModelFacts:
    family = model.contract.family
    if options.look_ahead is not None and family != "bidirectional":
        raise PahsError(
            f"--look-ahead: {name} is {family}, its future frames are fixed; leave the option out"
        )
    config = getattr(model, "config", None)
    described = json.dumps(asdict(config)) if is_dataclass(config) and not isinstance(config, type) else ""
    if isinstance(model, GraphNetwork):
        shape, checksum, precision = model.shape(), model.description.weights_sha256, model.runs
    else:
        tensors = {key: x.detach().cpu().contiguous() for key, x in model.state_dict().items()}
        shape, checksum, precision = model, weights.checksum(tensors), ""
    identity = f"{type(model).__qualname__} {described} {checksum}"
    height, width = dataset.sequences[0].size
    return ModelFacts(
        name=name,
        checksum=hashlib.sha256(identity.encode()).hexdigest(),
        family=family,
        parameters=parameters(shape),
        flops_per_frame=flops_per_frame(shape, height, width),
        flops_size=(height, width),
        look_ahead=model.contract.look_ahead if options.look_ahead is None else options.look_ahead,
        chunk=longest_chunk(model.device) if family == "bidirectional" and options.look_ahead is None else 1,
        device=device_name(model.device),
        precision=precision or name_of_dtype(model.dtype),
    )


def _with_scores(result: Evaluation, takes: list[Take], scores: dict[str, SequenceScore]) -> Evaluation:
    done = tuple(scores[take.fingerprint] for take in takes if take.fingerprint in scores)
    return replace(result, sequences=done)


def _finished(planned: Evaluation, json_file: Path) -> dict[str, SequenceScore]:
    """The scores in a file of the same network and protocol, by fingerprint."""
    if not json_file.exists():
        return {}
    earlier = read_json(json_file)
    decisive = attrgetter("version", "model.checksum", "model.precision", "model.chunk", "options")
    if decisive(earlier) != decisive(planned):
        raise PahsError(
            f"{json_file}: holds another evaluation ({earlier.model.name}: {earlier.protocol}); "
            "name another file or use --overwrite"
        )
    return {sequence.fingerprint: sequence for sequence in earlier.sequences}
