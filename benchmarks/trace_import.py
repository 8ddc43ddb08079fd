"""Measure the time and peak memory of importing a large request log, in a child process.

python -m benchmarks.trace_import --rows 5000000 --format csv
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np

_CHUNK_ROWS = 100_000
_NUM_TENANTS = 200
_KIB_PER_MB = 1e6 / 1024
_CHILD = "import"


def write_log(path: Path, num_rows: int, kind: str) -> None:
    """A synthetic log: Poisson arrivals, log-normal lengths, Zipf tenants; the same bytes every time."""
    rng = np.random.default_rng(0)
    with gzip.open(path, "wt", compresslevel=1) if path.suffix == ".gz" else path.open("w") as file:
        if kind != "jsonl":
            file.write("arrival_s,prompt_tokens,output_tokens,tenant\n")
        for columns in _chunks(rng, num_rows):
            _write_rows(file, columns, kind)


def _chunks(rng: np.random.Generator, num_rows: int) -> Iterator[list[list[Any]]]:
    now_s = 0.0
    for done in range(0, num_rows, _CHUNK_ROWS):
        n = min(_CHUNK_ROWS, num_rows - done)
        arrival_s = now_s + np.cumsum(rng.exponential(0.02, n))
        now_s = float(arrival_s[-1])
        prompt = np.ceil(rng.lognormal(6.5, 1.0, n)).astype(int)
        output = np.ceil(rng.lognormal(4.5, 0.9, n)).astype(int)
        tenant = np.minimum(rng.zipf(1.6, n), _NUM_TENANTS)
        yield [np.round(arrival_s, 6).tolist(), prompt.tolist(), output.tolist(), tenant.tolist()]


def _write_rows(file: TextIO, columns: list[list[Any]], kind: str) -> None:
    rows = zip(*columns, strict=True)
    if kind == "jsonl":
        names = ("arrival_s", "prompt_tokens", "output_tokens", "tenant")
        file.writelines(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    else:
        file.writelines(f"{at_s:.6f},{prompt},{output},tenant-{tenant}\n" for at_s, prompt, output, tenant in rows)


def import_log(log: Path, kind: str, output: Path) -> None:
    """Run in the child process: import the log and print the cost."""
    from llmserve_env.workloads.traces.formats import resolve_format
    from llmserve_env.workloads.traces.importing import import_trace

    begin = time.perf_counter()
    result = import_trace(log, resolve_format(kind), output)
    spent_s = time.perf_counter() - begin
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KIB_PER_MB
    print(json.dumps({"rows": result.metadata.rows, "seconds": round(spent_s, 2), "peak_rss_mb": round(peak_mb, 1)}))


def main() -> int:
    """Write a log, import it in a child process and print the cost."""
    if sys.argv[1:2] == [_CHILD]:
        import_log(Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--format", choices=("csv", "jsonl"), default="csv")
    parser.add_argument("--gzip", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / f"log.{args.format}{'.gz' if args.gzip else ''}"
        output = Path(folder) / "log.parquet"
        write_log(log, args.rows, args.format)
        command = [sys.executable, "-m", "benchmarks.trace_import", _CHILD, str(log), args.format, str(output)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        sizes = f"{log.stat().st_size / 1e6:.0f} MB of log, {output.stat().st_size / 1e6:.0f} MB of trace"
    print(f"{found['rows']:,} rows of {args.format}{' in gzip' if args.gzip else ''}, {sizes}")
    print(
        f"{found['seconds']} s, {found['rows'] / found['seconds']:,.0f} rows/s, peak memory {found['peak_rss_mb']} MB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
