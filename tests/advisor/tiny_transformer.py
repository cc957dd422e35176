"""A Hugging Face model of random weights, made on the spot: `python -m
tests.advisor.tiny_transformer FOLDER`.

Byte-level tokens, 1 layer, width 32, about 0.1 MB. It knows nothing. Needs torch and transformers.
"""

from __future__ import annotations

import sys
from pathlib import Path

CONTEXT = 4096


def write_model(folder):
    """Write configuration, tokenizer and safetensors."""
    import torch  # pyright: ignore[reportMissingImports]
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # pyright: ignore[reportMissingImports]
    from transformers import (  # pyright: ignore[reportMissingImports]
        LlamaConfig,
        LlamaForCausalLM,
        PreTrainedTokenizerFast,
    )

    tokens = ["</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    plain = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="</s>")
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokens),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=None,
    )
    model = LlamaForCausalLM(config)
    model.generation_config.do_sample = True
    model.save_pretrained(folder)


if __name__ == "__main__":
    write_model(Path(sys.argv[1]))
