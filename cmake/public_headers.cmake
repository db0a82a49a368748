# The installed headers: the public interface, for programs that train, plan or generate, and that
# add models, schedules, optimizers, transports and collective algorithms of their own
# (tests/install/consumer is one). All other headers may change from one version to the next.
set(TRIDENT_PUBLIC_HEADERS
    settings/config.h settings/constraints.h
    core/context.h core/device.h base/error.h core/tensor.h core/dtype.h core/rng.h core/axes.h
    kernels/activation.h kernels/attention.h kernels/cross_entropy.h kernels/dropout.h
    kernels/elementwise.h kernels/embedding.h kernels/experts.h kernels/gemm.h kernels/grouped_bias.h kernels/grouped_gemm.h kernels/head_columns.h kernels/heads.h kernels/norm.h kernels/optimizer.h kernels/rotary.h kernels/routing.h
    parallel/process_group.h parallel/placement.h parallel/parameter.h parallel/topology.h
    parallel/state.h parallel/parallel_context.h parallel/token_exchange.h parallel/tensor/linear.h parallel/tensor/vocabulary.h
    parallel/transport/transport.h parallel/transport/transport_registry.h
    parallel/transport/endpoint.h parallel/collectives/collective.h
    parallel/collectives/algorithm_registry.h parallel/collectives/exchange.h
    models/module.h models/architecture.h models/family_formats.h models/attention.h models/experts.h models/head_norm.h models/mlp.h models/norm.h
    models/block.h models/embedding.h models/head.h models/layer_name.h models/multi_token.h models/output_layer.h models/shared_expert.h models/statistics.h models/transformer.h
    scheduler/action.h scheduler/schedules.h scheduler/validate.h scheduler/simulate.h
    scheduler/csv.h
    engine/setup/registry.h engine/optimizer/optimizer.h run/loop/trainer.h
    run/loop/training_inputs.h run/startup/training_job.h run/startup/job_config.h
    run/processes/launch.h planner/plan/plan.h run/generation/generate.h
    )

# The public headers include these. Programs must not include them directly.
set(TRIDENT_INCLUDED_HEADERS
    settings/problems.h
    base/files/file.h
    core/allocator.h core/block_pool.h core/clock.h core/countdown.h base/files/file_system.h core/kernel_clock.h
    core/ledger.h
    core/thread_team.h core/turns.h
    kernels/peers.h kernels/reduce.h kernels/reduce_op.h models/grouped_mlp.h models/router.h
    parallel/collectives/communicator.h parallel/collectives/descriptor.h
    parallel/collectives/host_runs.h
    parallel/context/context_attention.h parallel/context/sequence_pieces.h
    parallel/zero/bucket_layout.h parallel/zero/buckets.h parallel/mesh.h parallel/nodes.h
    parallel/operation_log.h parallel/transport/file_work.h parallel/transport/shared_rendezvous.h
    parallel/transport/mpi_job.h
    scheduler/execute.h scheduler/iterations.h scheduler/run_lists.h scheduler/timeline.h
    scheduler/warm_up.h
    checkpoint/checkpoint_folder.h checkpoint/found_on_nodes.h checkpoint/kept_on_node.h checkpoint/manifest.h
    checkpoint/starts.h checkpoint/taken_parts.h
    datasets/batch_sizes.h datasets/dataset.h datasets/datasets.h datasets/document_encoder.h datasets/indexed_writer.h
    datasets/interleave.h datasets/packing.h datasets/source_files.h datasets/text_marks.h datasets/token_source.h datasets/tokenize.h
    datasets/tokenizer/tokenizer.h formats/hugging_face/hugging_face_extras.h
    engine/optimizer/optimizer_registry.h report/best_rates.h report/iteration_metrics.h
    report/product_rate.h run/startup/bf16_products.h kernels/cpu_library.h
    planner/machine/machine.h planner/search/search_progress.h
    run/processes/agreement.h run/loop/report_facts.h run/startup/auto_layout.h run/loop/ramp_lists.h run/processes/devices.h run/processes/rendezvous.h run/generation/sampling.h
    run/folders/locked_folder.h run/folders/run_folder.h run/folders/starting_point.h
    )
