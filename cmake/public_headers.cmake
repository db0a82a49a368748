# What is installed: the public interface, for programs that train, plan or generate, and that add
# models, schedules, optimizers, transports and collective algorithms of their own
# (tests/install/consumer is one). All other headers may change from one version to the next.
set(TRIDENT_PUBLIC_HEADERS
    config/config.h config/kinds.h
    core/context.h core/device.h core/error.h core/tensor.h core/dtype.h core/rng.h core/axes.h
    kernels/activation.h kernels/attention.h kernels/cross_entropy.h kernels/dropout.h
    kernels/elementwise.h kernels/embedding.h kernels/gemm.h kernels/norm.h kernels/optimizer.h
    parallel/process_group.h parallel/placement.h parallel/parameter.h parallel/topology.h
    parallel/state.h parallel/tensor/linear.h parallel/tensor/vocabulary.h
    parallel/transport/transport.h parallel/transport/transport_kinds.h
    parallel/transport/endpoint.h parallel/collectives/collective.h
    parallel/collectives/algorithm_kinds.h parallel/collectives/exchange.h
    models/module.h models/architecture.h models/attention.h models/mlp.h models/norm.h
    models/block.h models/embedding.h models/head.h models/layer_name.h models/transformer.h
    scheduler/action.h scheduler/schedules.h scheduler/validate.h scheduler/simulate.h
    scheduler/csv.h
    training/setup/kinds.h training/optimizer/optimizer.h training/run/trainer.h
    training/run/training_inputs.h training/run/training_job.h training/run/job_config.h
    training/run/launch.h training/plan/plan.h training/run/generate.h
    )

# What these include. Not for programs to include by themselves.
set(TRIDENT_INCLUDED_HEADERS
    config/problems.h
    core/file.h
    core/allocator.h core/block_pool.h core/clock.h core/countdown.h core/file_system.h core/kernel_clock.h
    core/ledger.h
    core/thread_team.h
    kernels/peers.h kernels/reduce.h kernels/reduce_op.h
    parallel/collectives/communicator.h parallel/collectives/descriptor.h
    parallel/collectives/host_runs.h
    parallel/data/bucket_layout.h parallel/data/buckets.h parallel/mesh.h parallel/nodes.h
    parallel/operation_log.h parallel/transport/file_work.h parallel/transport/meeting.h
    parallel/transport/mpi_job.h
    scheduler/execute.h scheduler/iterations.h scheduler/run_lists.h scheduler/timeline.h
    scheduler/warm_up.h
    training/checkpoint/checkpoint_folder.h training/checkpoint/found_on_nodes.h training/checkpoint/kept_on_node.h training/checkpoint/manifest.h
    training/checkpoint/starts.h training/checkpoint/taken_parts.h
    training/data/batch_sizes.h training/data/dataset.h training/data/datasets.h training/data/document_encoder.h training/data/indexed_writer.h
    training/data/interleave.h training/data/source_files.h training/data/text_marks.h training/data/token_source.h training/data/tokenize.h
    training/tokenizer/tokenizer.h training/hugging_face/hugging_face_extras.h
    training/optimizer/optimizer_kinds.h training/report/best_rates.h training/report/iteration_metrics.h
    training/report/product_rate.h training/run/bf16_products.h kernels/cpu_library.h
    training/lab/machine.h training/lab/search_progress.h
    training/run/agreement.h training/run/auto_layout.h training/run/ramp_lists.h training/run/devices.h training/run/rendezvous.h training/run/sampling.h
    training/run/starting_point.h
    )
