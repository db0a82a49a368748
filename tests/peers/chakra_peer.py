#!/usr/bin/env python3
"""Reads the files of `trident simulate --export chakra` with Google's protobuf and MLCommons' schema.

    python tests/peers/chakra_peer.py [--program build/release/trident]

For several layouts and schedules: each message has the schema's fields and no others, and attributes
have the types that ASTRA-sim reads. A replay of all ranks completes: every message is sent once and
received once with one size and tag, and members of a group call the same collectives in the same
order. FLOPs and bytes equal those of the program's own plan. Ends with `N passed, 0 failed`.

The schema has the names, numbers and types of the used fields of schema/protobuf/et_def.proto of
github.com/mlcommons/chakra at 6dc63e1.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import tempfile

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal.decoder import _DecodeVarint32

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
F = descriptor_pb2.FieldDescriptorProto
ATTRIBUTE = [("name", 1, F.TYPE_STRING), ("doc_string", 2, F.TYPE_STRING),
             ("double_val", 3, F.TYPE_DOUBLE), ("float_val", 5, F.TYPE_FLOAT),
             ("int32_val", 7, F.TYPE_INT32), ("int64_val", 9, F.TYPE_INT64),
             ("uint32_val", 11, F.TYPE_UINT32), ("uint64_val", 13, F.TYPE_UINT64),
             ("bool_val", 27, F.TYPE_BOOL), ("string_val", 29, F.TYPE_STRING)]
METADATA = [("version", 1, F.TYPE_STRING), ("attr", 2, "AttributeProto")]
NODE = [("id", 1, F.TYPE_UINT64), ("name", 2, F.TYPE_STRING), ("type", 3, F.TYPE_INT32),
        ("ctrl_deps", 4, [F.TYPE_UINT64]), ("data_deps", 5, [F.TYPE_UINT64]),
        ("start_time_micros", 6, F.TYPE_UINT64), ("duration_micros", 7, F.TYPE_UINT64),
        ("attr", 10, "AttributeProto")]
COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7  # NodeType
# The attributes that ASTRA-sim reads of each type (chakra's src/feeder/et_feeder_node.cpp).
TYPES = {"is_cpu_op": "bool_val", "num_ops": "int64_val", "tensor_size": "uint64_val",
         "comm_type": "int64_val", "comm_size": "int64_val", "pg_name": "string_val",
         "comm_src": "int32_val", "comm_dst": "int32_val", "comm_tag": "int32_val"}
ATTRIBUTES = {COMPUTE: {"is_cpu_op", "num_ops", "tensor_size"},
              COLLECTIVE: {"is_cpu_op", "comm_type", "comm_size", "pg_name"},
              SEND: {"is_cpu_op", "comm_src", "comm_dst", "comm_tag", "comm_size"}}
ATTRIBUTES[RECEIVE] = ATTRIBUTES[SEND]


def schema():
    file = descriptor_pb2.FileDescriptorProto(name="et.proto", package="et", syntax="proto3")
    for name, fields in (("AttributeProto", ATTRIBUTE), ("GlobalMetadata", METADATA),
                         ("Node", NODE)):
        message = file.message_type.add(name=name)
        if name == "AttributeProto":
            message.oneof_decl.add(name="value")
        for field, number, kind in fields:
            one = message.field.add(name=field, number=number, label=F.LABEL_OPTIONAL)
            if isinstance(kind, str):
                one.type, one.type_name, one.label = F.TYPE_MESSAGE, ".et." + kind, F.LABEL_REPEATED
            elif isinstance(kind, list):
                one.type, one.label = kind[0], F.LABEL_REPEATED
            else:
                one.type = kind
            if name == "AttributeProto" and field.endswith("_val"):
                one.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName("et." + name))
            for name in ("GlobalMetadata", "Node")]


Metadata, Node = schema()


def read(path):
    """The nodes of a file, as (node, attributes)."""
    data, at, parts, nodes = path.read_bytes(), 0, [], []
    while at < len(data):
        size, at = _DecodeVarint32(data, at)
        parts.append(data[at:at + size])
        at += size
        assert len(parts[-1]) == size, f"{path}: truncated"
    assert Metadata.FromString(parts[0]).version
    for part in parts[1:]:
        node = Node.FromString(part)
        # A field that isn't in the schema would be dropped or change the order.
        assert node.ByteSize() == len(part), f"{path}: node {node.id} has fields of no schema"
        attributes = {}
        for one in node.attr:
            assert one.WhichOneof("value") == TYPES[one.name], (path, one)
            attributes[one.name] = getattr(one, TYPES[one.name])
        assert set(attributes) == ATTRIBUTES[node.type] and not attributes["is_cpu_op"], node
        nodes.append((node, attributes))
    return nodes


def replay(ranks, groups):
    """Runs all ranks as far as possible. Nodes that are left are a deadlock."""
    done = [set() for _ in ranks]
    at = [0] * len(ranks)
    mailbox, calls = {}, collections.defaultdict(lambda: [[] for _ in ranks])
    collectives = collections.defaultdict(dict)  # (group, number of the call) -> rank: (type, size)
    moved = True
    while moved:
        moved = False
        for rank, nodes in enumerate(ranks):
            while at[rank] < len(nodes):
                node, a = nodes[at[rank]]
                assert all(d in done[rank] for d in node.data_deps), f"{rank}: {node.id} too early"
                if node.type == SEND:
                    assert a["comm_src"] == rank
                    key = (rank, a["comm_dst"], a["comm_tag"])
                    assert key not in mailbox, f"{key} is sent twice"
                    mailbox[key] = a["comm_size"]
                elif node.type == RECEIVE:
                    assert a["comm_dst"] == rank
                    key = (a["comm_src"], rank, a["comm_tag"])
                    if key not in mailbox:
                        break
                    assert mailbox[key] == a["comm_size"], f"{key}: another size"
                    mailbox[key] = None
                elif node.type == COLLECTIVE:
                    name = a["pg_name"]
                    assert rank in groups[name], f"{rank} isn't in group {name}"
                    mine = calls[name][rank]
                    if not mine or mine[-1] != node.id:
                        mine.append(node.id)
                        collectives[name, len(mine)][rank] = (a["comm_type"], a["comm_size"])
                    collective = collectives[name, len(mine)]
                    assert len(set(collective.values())) == 1, f"group {name}: {collective}"
                    # ASTRA-sim waits later for a collective that runs concurrently with compute;
                    # here the rank waits at once.
                    if len(collective) < len(groups[name]):
                        break
                done[rank].add(node.id)
                at[rank] += 1
                moved = True
    for rank, nodes in enumerate(ranks):
        assert at[rank] == len(nodes), f"rank {rank} stays at {nodes[at[rank]][0]}"
    assert all(size is None for size in mailbox.values()), "messages that no rank takes"


def check(program, folder, name, sets):
    config = {
        "model": {"num_layers": 8, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 256},
        "batch": {"global_batch_size": 32, "micro_batch_size": 1},
        "data": {"train": [{"path": "text"}], "sequence_length": 32},
        "training": {"train_iters": 10}}
    (folder / "c.json").write_text(json.dumps(config))
    words = [word for key in sets for word in ("--set", key)]

    def run(*arguments):
        result = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True)
        assert result.returncode == 0, f"{name}: {result.stderr}"
        return result.stdout

    machine = str(ROOT / "configs/machines/dgx_a100.json")
    said = run("simulate", "c.json", "--machine", machine, *words, "--export", "chakra", "--out",
               name)
    plan = json.loads(run("plan", "c.json", *words, "--set", "runtime.device=cuda", "--format",
                          "json"))
    ranks = [read(folder / f"{name}.{rank}.et") for rank in range(plan["world_size"])]
    assert not (folder / f"{name}.{len(ranks)}.et").exists()
    groups = json.loads((folder / f"{name}.groups.json").read_text())
    replay(ranks, groups)
    assert f"{sum(len(nodes) for nodes in ranks)} nodes" in said, said
    flops = sum(a["num_ops"] for nodes in ranks for n, a in nodes if n.type == COMPUTE)
    # The plan counts all of causal attention, and backward as twice forward.
    assert 0.8 < flops / plan["flops_per_step"] < 1.2, (flops, plan["flops_per_step"])
    # The bytes between stages equal the planned bytes.
    planned = sum(r["bytes_sent"].get("pipeline", 0) * r["count"] for r in plan["ranks"])
    sent = sum(a["comm_size"] for nodes in ranks for n, a in nodes if n.type == SEND)
    assert sent == planned, (sent, planned)
    return 1


CASES = {
    "one": [],
    "data": ["parallel.data_parallel_size=4", "zero_optimization.stage=1"],
    "zero3": ["parallel.data_parallel_size=4", "zero_optimization.stage=3"],
    "tensor": ["parallel.tensor_model_parallel_size=4", "parallel.sequence_parallel=true"],
    "pipeline": ["parallel.pipeline_model_parallel_size=4"],
    "bubble": ["parallel.pipeline_model_parallel_size=4", "pipeline.schedule=zb_h1"],
    "chunks": ["parallel.pipeline_model_parallel_size=2", "pipeline.schedule=interleaved_1f1b",
               "parallel.virtual_pipeline_model_parallel_size=2"],
    "letter_v": ["parallel.pipeline_model_parallel_size=2", "pipeline.schedule=zbv",
                 "parallel.virtual_pipeline_model_parallel_size=2"],
    "all": ["parallel.data_parallel_size=2", "parallel.tensor_model_parallel_size=2",
            "parallel.pipeline_model_parallel_size=2", "zero_optimization.stage=1",
            "model.tie_word_embeddings=true"],
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=str(ROOT / "build/release/trident"))
    program = pathlib.Path(parser.parse_args().program).resolve()
    with tempfile.TemporaryDirectory() as name:
        passed = sum(check(program, pathlib.Path(name), case, sets) for case, sets in CASES.items())
    print(f"{passed} passed, 0 failed")


if __name__ == "__main__":
    main()
