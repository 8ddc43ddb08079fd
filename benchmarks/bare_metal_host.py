"""A host on bare metal, estimated from published runs: `python -m benchmarks.bare_metal_host [--save]`.

Nobody publishes the iterations of a server, but times per output token of closed loops are published. Less the GPU
time of a decode iteration, they leave a time per iteration and a time per sequence. vLLM 0.12 scheduled its iterations
one after the other, so this is what its host took to launch a full graph and to take the output in. The recorded host's
other times are scaled by the same factor, because all of them are Python and kernel launches on one core.
"""

from __future__ import annotations

import argparse
import json

from llmserve_env.profiles.host import BatchTime, Host, load_host, save_host

RECORDED = "xeon-h200-vllm-0.26"
NAME = "bare-metal-vllm-0.12"
PER_ITERATION_MS, PER_SEQUENCE_MS = 1.14, 0.052
"""What an analysis found beside the GPU time in published closed loops of Qwen3-32B (BF16, two H100, vLLM 0.12;
silicon_sample.csv of github.com/ai-dynamo/aiconfigurator, Apache-2.0), with GPU times summed from its kernel tables.
The two figures are inputs: this repository does not repeat that analysis."""
DIGITS = 4


def estimated_host() -> Host:
    """The recorded host with the published times, and everything else scaled like them."""
    recorded = load_host(RECORDED)
    factor = PER_ITERATION_MS / (recorded.full_graph.base_ms + recorded.output.base_ms)
    output = _scaled(recorded.output, factor)
    per_sequence_ms = round(PER_SEQUENCE_MS - output.per_sequence_ms, DIGITS)
    modes = {
        mode: BatchTime(base_ms=_scaled(getattr(recorded, mode), factor).base_ms, per_sequence_ms=per_sequence_ms)
        for mode in ("full_graph", "piecewise_graph", "no_graph")
    }
    delays = {
        name: round(factor * getattr(recorded, name), DIGITS)
        for name in ("front_end_ms", "answer_ms", "per_admission_ms")
    }
    return recorded.model_copy(
        update={
            "name": NAME,
            "machine": "servers of published runs with H100s, on bare metal; estimated",
            "engine": "vLLM 0.12",
            "provenance": f"An estimate, python -m benchmarks.bare_metal_host --save: {PER_ITERATION_MS} ms per decode "
            f"iteration and {1e3 * PER_SEQUENCE_MS:g} us per sequence, from an analysis of published closed loops of "
            "Qwen3-32B on H100 (aiconfigurator's silicon_sample.csv, Apache-2.0) that is not repeated here; other CPU "
            f"times are {factor:.2f} times those of {RECORDED}, GPU times are its own",
            "output": output,
            **modes,
            **delays,
        }
    )


def _scaled(time: BatchTime, factor: float) -> BatchTime:
    base_ms, per_sequence_ms = (round(factor * ms, DIGITS) for ms in (time.base_ms, time.per_sequence_ms))
    return BatchTime(base_ms=base_ms, per_sequence_ms=per_sequence_ms)


def main() -> None:
    """Print the host, or write it among the shipped ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="write it to the shipped hosts")
    host = estimated_host()
    if parser.parse_args().save:
        save_host(host)
    print(json.dumps(host.model_dump(mode="json"), indent=2))


if __name__ == "__main__":
    main()
