"""Ask vLLM whether it accepts commands: one JSON list of words per line of stdin, one JSON verdict per line of stdout.

Run by the Python of an installed vLLM, without this package and without the hub: the names of models stand for folders
with the same `config.json` as the hub has. vLLM's own parser and configuration are the judges; nothing is started.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
LLAMA_31_8B = {**LLAMA_8B, "max_position_embeddings": 131072}
LLAMA_1B = {
    **LLAMA_31_8B,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "head_dim": 64,
    "tie_word_embeddings": True,
}


def compressed(base: dict[str, Any], bits: int) -> dict[str, Any]:
    """The config of a compressed-tensors checkpoint: W8A8, or W4A16 in groups of 128."""
    weights: dict[str, Any] = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "channel"}
    activations: dict[str, Any] | None = {
        "num_bits": 8,
        "type": "int",
        "symmetric": True,
        "dynamic": True,
        "strategy": "token",
    }
    if bits == 4:
        weights |= {"strategy": "group", "group_size": 128}
        activations = None
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {
        **base,
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "int-quantized" if bits == 8 else "pack-quantized",
            "quantization_status": "compressed",
            "config_groups": {"group_0": group},
            "ignore": ["lm_head"],
        },
    }


def compressed_fp8(base: dict[str, Any]) -> dict[str, Any]:
    """The config of a compressed-tensors checkpoint in FP8, with one static scale per tensor."""
    values = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor"}
    group = {"targets": ["Linear"], "weights": values, "input_activations": {**values, "dynamic": False}}
    return {
        **base,
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "float-quantized",
            "quantization_status": "compressed",
            "config_groups": {"group_0": group},
            "ignore": ["lm_head"],
        },
    }


CONFIGS = {
    "meta-llama/Meta-Llama-3-8B-Instruct": LLAMA_8B,
    "neuralmagic/Meta-Llama-3-8B-Instruct-quantized.w8a8": compressed(LLAMA_8B, 8),
    "neuralmagic/Meta-Llama-3-8B-Instruct-quantized.w4a16": compressed(LLAMA_8B, 4),
    "meta-llama/Llama-3.1-8B-Instruct": LLAMA_31_8B,
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8": compressed(LLAMA_31_8B, 8),
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16": compressed(LLAMA_31_8B, 4),
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8": compressed_fp8(LLAMA_31_8B),
    "meta-llama/Llama-3.2-1B-Instruct": LLAMA_1B,
}


def main() -> None:
    """Judge every line."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.usage.usage_lib import UsageContext
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser, command = FlexibleArgumentParser(), ServeSubcommand()
    command.subparser_init(parser.add_subparsers(dest="subparser"))
    with tempfile.TemporaryDirectory() as folder:
        for name, config in CONFIGS.items():
            place = Path(folder) / name
            place.mkdir(parents=True)
            (place / "config.json").write_text(json.dumps(config), encoding="utf-8")
        for line in sys.stdin.read().splitlines():
            words = json.loads(line)
            problem = None
            try:
                args = parser.parse_args([_placed(word, folder) for word in words])
                command.validate(args)
                args.model = args.model_tag or args.model
                AsyncEngineArgs.from_cli_args(args).create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)
            except (Exception, SystemExit) as error:
                problem = f"{type(error).__name__}: {error}"[:500]
            print(json.dumps({"command": words, "problem": problem}), flush=True)


def _placed(word: str, folder: str) -> str:
    """A word of the command with names of the hub replaced by folders."""
    for name in CONFIGS:
        if word == name:
            return f"{folder}/{name}"
        word = word.replace(f'"{name}"', f'"{folder}/{name}"')
    return word


if __name__ == "__main__":
    main()
