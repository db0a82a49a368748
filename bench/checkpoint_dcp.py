#!/usr/bin/env python3
"""Measures the cost of saving the same states with torch.distributed.checkpoint: one rank of two.

    (started by bench/checkpoint_costs.py, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT)

GPT-2 124M's fp32 weights and AdamW's two moments, each tensor half on each rank. Prints JSON: bytes
of both ranks, seconds of save(), and of async_save(): until it returns, and until all is written.
"""

import argparse
import json
import os
import pathlib
import time

import torch
import torch.distributed
import torch.distributed.checkpoint as dcp


def states(layers, hidden, vocabulary, positions, rank, ranks):
    shapes = {"wte": (vocabulary, hidden), "wpe": (positions, hidden)}
    for i in range(layers):
        shapes |= {f"h.{i}.qkv": (3 * hidden, hidden), f"h.{i}.proj": (hidden, hidden),
                   f"h.{i}.up": (4 * hidden, hidden), f"h.{i}.down": (hidden, 4 * hidden),
                   f"h.{i}.vectors": (13, hidden)}
    return {f"{state}.{name}.{rank}": torch.randn(-(-rows // ranks), columns)
            for state in ("weight", "exp_avg", "exp_avg_sq")
            for name, (rows, columns) in shapes.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=pathlib.Path, required=True)
    parser.add_argument("--to", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    model = json.loads(arguments.config.read_text())["model"]
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    own = states(model["num_layers"], model["hidden_size"], model["vocab_size"],
                 model["max_position_embeddings"], rank, ranks)

    def timed(call):
        torch.distributed.barrier()
        begin = time.perf_counter()
        result = call()
        return result, time.perf_counter() - begin

    _, save = timed(lambda: dcp.save(own, checkpoint_id=arguments.to / "save"))
    begin = time.perf_counter()
    future, pause = timed(lambda: dcp.async_save(own, checkpoint_id=arguments.to / "async"))
    future.result()
    print(json.dumps({"bytes": ranks * sum(t.nbytes for t in own.values()), "save": save,
                      "pause": pause, "async": time.perf_counter() - begin}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
