"""A small Llama with random weights and a byte-level tokenizer, to try engines without downloading weights.

It needs `transformers` and `tokenizers`, which the engine's environment has:

    python tools/tiny_model.py FOLDER --hidden 512 --layers 8
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
HEAD_DIM = 64


def module(name: str) -> Any:
    """Import a package of the engine's environment, which is not a dependency of this project."""
    return import_module(name)


def build_tokenizer(folder: Path, vocabulary: int) -> None:
    """Train byte pairs on this project's documents, so that prompts about serving stay short."""
    learnt = module("tokenizers").ByteLevelBPETokenizer()
    texts = [str(path) for path in sorted((ROOT / "docs").glob("*.md"))]
    learnt.train(texts, vocab_size=vocabulary, min_frequency=2, special_tokens=["<s>", "</s>"])
    fast = module("transformers").PreTrainedTokenizerFast(
        tokenizer_object=learnt._tokenizer, bos_token="<s>", eos_token="</s>"
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)


def build_model(folder: Path, vocabulary: int, hidden: int, layers: int, max_len: int) -> int:
    """Write the weights and return their number."""
    module("torch").manual_seed(0)
    config = module("transformers").LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // HEAD_DIM,
        num_key_value_heads=max(hidden // HEAD_DIM // 2, 1),
        max_position_embeddings=max_len,
        bos_token_id=0,
        eos_token_id=1,
    )
    model = module("transformers").LlamaForCausalLM(config).float()
    model.save_pretrained(folder)
    return int(model.num_parameters())


def main(argv: Sequence[str] | None = None) -> int:
    """Write the model's folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hidden", type=int, default=512, help=f"multiple of {2 * HEAD_DIM} (default: 512)")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=2048)
    parser.add_argument("--max-len", type=int, default=8192)
    args = parser.parse_args(argv)
    args.folder.mkdir(parents=True, exist_ok=True)
    build_tokenizer(args.folder, args.vocabulary)
    parameters = build_model(args.folder, args.vocabulary, args.hidden, args.layers, args.max_len)
    size_mb = sum(path.stat().st_size for path in args.folder.iterdir()) / 1e6
    print(f"{args.folder}: {parameters / 1e6:.1f} million parameters, {size_mb:.0f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
