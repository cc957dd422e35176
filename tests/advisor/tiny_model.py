"""A language model of random weights in a llama.cpp file, made on the spot: it knows nothing, so
its advice is chance.

Byte-level vocabulary (3 special tokens, 256 bytes, then blanks up to a round number), 2 layers,
width 64. Run as a program it serves the model: `python -m tests.advisor.tiny_model FILE PORT KEY
SECONDS`.
"""

import sys
import time
from pathlib import Path

import numpy as np

VOCABULARY, WIDTH, HEADS, LAYERS, FEED = 262, 64, 4, 2, 128
CONTEXT = 4096
TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


def write_model(path, seed=0):
    """Write the file (about 0.5 MB). Needs gguf."""
    import gguf

    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny-random")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(VOCABULARY)
    kinds = gguf.TokenType
    tokens = [b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256))]
    types = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256]
    while len(tokens) < VOCABULARY:
        tokens.append(f"<unused{len(tokens)}>".encode())
        types.append(kinds.UNUSED)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types(types)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)

    def weight(name, *shape):
        writer.add_tensor(name, rng.normal(0, 0.1, shape).astype(np.float32))

    def ones(name):
        writer.add_tensor(name, np.ones(WIDTH, np.float32))

    weight("token_embd.weight", VOCABULARY, WIDTH)
    for i in range(LAYERS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weight(f"blk.{i}.{part}.weight", WIDTH, WIDTH)
        weight(f"blk.{i}.ffn_gate.weight", FEED, WIDTH)
        weight(f"blk.{i}.ffn_up.weight", FEED, WIDTH)
        weight(f"blk.{i}.ffn_down.weight", WIDTH, FEED)
        ones(f"blk.{i}.attn_norm.weight")
        ones(f"blk.{i}.ffn_norm.weight")
    ones("output_norm.weight")
    weight("output.weight", VOCABULARY, WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def serve(path, port, key, seconds):
    """Serve the model on loopback, and end after `seconds` whatever happens. Needs xllamacpp."""
    import xllamacpp

    p = xllamacpp.CommonParams()
    p.model.path = str(path)
    p.model_alias = {"tiny-random"}
    p.api_keys = [key]
    p.hostnames = ["127.0.0.1"]
    p.port = port
    p.n_parallel = 2
    p.n_ctx = p.n_parallel * CONTEXT  # the server divides it among its slots
    p.cpuparams.n_threads = 1
    p.cpuparams_batch.n_threads = 1
    p.warmup = False
    server = xllamacpp.Server(p)
    print(server.listening_address, flush=True)
    time.sleep(seconds)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
