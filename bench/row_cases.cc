// Cases of kernels_bench: operations along rows, and on single elements.
#include "bench/kernels_bench.h"

namespace trident {

void add_norms() {
  for (const bool layer : {true, false}) {
    const auto add = [&](const char* pass, auto work) {
      add_case(std::string(layer ? "layer_norm/" : "rms_norm/") + pass, Types::both,
               [=](Bench& bench, DType dtype) -> Work {
                 const Tensor x = bench.normal({tokens, hidden}, dtype),
                              y = bench.normal({tokens, hidden}, dtype),
                              weight = bench.normal({hidden}, dtype),
                              rstd = bench.normal_f32({tokens}),
                              mean = layer ? bench.normal_f32({tokens}) : Tensor();
                 return work(bench, x, y, weight, mean, rstd);
               });
    };
    using T = const Tensor&;
    add("forward", [=](Bench& bench, T x, T y, T weight, T mean, T rstd) -> Work {
      const Tensor bias = layer ? weight : Tensor();
      return {0, bytes_of({x, y}), [=, &bench] {
                norm_forward(
                    bench.context,
                    {.x = x, .weight = weight, .bias = bias, .y = y, .mean = mean, .rstd = rstd});
              }};
    });
    add("input_gradient", [](Bench& bench, T x, T y, T weight, T mean, T rstd) -> Work {
      const Tensor residual = bench.normal({tokens, hidden}, x.dtype());
      return {0, bytes_of({x, y, residual, residual}), [=, &bench] {
                norm_backward_input(bench.context, {.grad_y = y,
                                                    .x = x,
                                                    .weight = weight,
                                                    .mean = mean,
                                                    .rstd = rstd,
                                                    .grad_x = residual,
                                                    .residual_grad = residual});
              }};
    });
    add("weight_gradient", [=](Bench& bench, T x, T y, T, T mean, T rstd) -> Work {
      const Tensor grad = bench.normal_f32({hidden}),
                   grad_bias = layer ? bench.normal_f32({hidden}) : Tensor();
      return {0, bytes_of({x, y}), [=, &bench] {
                norm_backward_weight(bench.context, {.grad_y = y,
                                                     .x = x,
                                                     .mean = mean,
                                                     .rstd = rstd,
                                                     .grad_weight = grad,
                                                     .grad_bias = grad_bias});
              }};
    });
  }
}

void add_activations() {
  const auto add = [](const char* name, std::int64_t width, auto forward, auto backward) {
    add_case(std::string(name) + "/forward", Types::both, [=](Bench& bench, DType dtype) -> Work {
      const Tensor x = bench.normal({tokens, width}, dtype), y = bench.normal({tokens, mlp}, dtype);
      return {0, bytes_of({x, y}), [=, &bench] { forward(bench.context, x, y); }};
    });
    add_case(std::string(name) + "/backward", Types::both, [=](Bench& bench, DType dtype) -> Work {
      const Tensor x = bench.normal({tokens, width}, dtype), y = bench.normal({tokens, mlp}, dtype),
                   grad = bench.normal({tokens, width}, dtype);
      return {0, bytes_of({x, y, grad}), [=, &bench] { backward(bench.context, x, y, grad); }};
    });
  };
  add("gelu", mlp, gelu_forward, gelu_backward);
  add("swiglu", 2 * mlp, swiglu_forward, swiglu_backward);
}

void add_embeddings() {
  add_case("embedding/forward", Types::both, [](Bench& bench, DType dtype) -> Work {
    const EmbeddingArgs args{.ids = bench.ids(),
                             .table = bench.normal({vocabulary, hidden}, dtype),
                             .out = bench.normal({tokens, hidden}, dtype)};
    return {0, bytes_of({args.out, args.out}),
            [=, &bench] { embedding_forward(bench.context, args); }};
  });
  add_case("embedding/backward", Types::both, [](Bench& bench, DType dtype) -> Work {
    const EmbeddingBackwardArgs args{.ids = bench.ids(),
                                     .grad_out = bench.normal({tokens, hidden}, dtype),
                                     .grad_table = bench.normal_f32({vocabulary, hidden})};
    const double rows = 2.0 * static_cast<double>(tokens * hidden) * sizeof(float);
    return {0, bytes_of({args.grad_out}) + rows,
            [=, &bench] { embedding_backward(bench.context, args); }};
  });
  add_case("position/forward", Types::both, [](Bench& bench, DType dtype) -> Work {
    const PositionArgs args{.x = bench.normal({tokens, hidden}, dtype),
                            .table = bench.normal({sequence, hidden}, dtype),
                            .sequence = sequence};
    return {0, bytes_of({args.x, args.x, args.table}),
            [=, &bench] { position_forward(bench.context, args); }};
  });
  add_case("position/backward", Types::both, [](Bench& bench, DType dtype) -> Work {
    const PositionBackwardArgs args{.grad_x = bench.normal({tokens, hidden}, dtype),
                                    .grad_table = bench.normal_f32({sequence, hidden}),
                                    .sequence = sequence};
    return {0, bytes_of({args.grad_x, args.grad_table, args.grad_table}),
            [=, &bench] { position_backward(bench.context, args); }};
  });
  add_case("rotary", Types::both, [](Bench& bench, DType dtype) -> Work {
    const AttentionShape shape{tokens / sequence, sequence, heads, heads, head_dim};
    const Tensor qkv = bench.normal({tokens, shape.row()}, dtype);
    return {0, bytes_of({qkv, qkv}) * 2 / 3,
            [=, &bench] { rotary(bench.context, rotary_of(shape, qkv)); }};
  });
}

void add_cross_entropy() {
  const std::int64_t rows = tokens / 4;
  const CrossEntropyShape shape{.valid = 50257, .vocabulary = 50257};
  const auto add = [&](const char* step, double passes, auto run) {
    add_case(
        std::string("cross_entropy/") + step, Types::both, [=](Bench& bench, DType dtype) -> Work {
          const Tensor logits = bench.normal({rows, vocabulary}, dtype),
                       labels = bench.ids().rows(0, rows), maximum = bench.normal_f32({rows}),
                       statistics = bench.normal_f32({3, rows});
          cross_entropy_maximum(bench.context, shape, logits, maximum);
          cross_entropy_statistics(bench.context, shape, logits, labels, maximum, statistics);
          return {0, passes * bytes_of({logits}),
                  [=, &bench] { run(bench.context, shape, logits, labels, maximum, statistics); }};
        });
  };
  using T = const Tensor&;
  using S = const CrossEntropyShape&;
  add("maximum", 1, [](Context& context, S s, T logits, T, T maximum, T) {
    cross_entropy_maximum(context, s, logits, maximum);
  });
  add("statistics", 1, [](Context& context, S s, T logits, T labels, T maximum, T statistics) {
    cross_entropy_statistics(context, s, logits, labels, maximum, statistics);
  });
  // The kernel runs in place. Scaled by 1, the logits soon hold probabilities, which cost the same.
  add("gradient", 2, [](Context& context, S s, T logits, T labels, T maximum, T statistics) {
    cross_entropy_gradient(context, s, logits, labels, maximum, statistics, 1.0f);
  });
  add_case("cross_entropy/whole", Types::both, [=](Bench& bench, DType dtype) -> Work {
    const Tensor logits = bench.normal({rows, vocabulary}, dtype),
                 labels = bench.ids().rows(0, rows), losses = bench.normal_f32({rows});
    return {0, 2 * bytes_of({logits}),
            [=, &bench] { cross_entropy(bench.context, shape, logits, labels, losses, 1.0f); }};
  });
  add_case("cross_entropy/losses", Types::f32, [=](Bench& bench, DType) -> Work {
    const Tensor statistics = bench.normal_f32({3, rows}), losses = bench.normal_f32({rows});
    return {0, bytes_of({statistics, losses}),
            [=, &bench] { cross_entropy_losses(bench.context, shape, statistics, losses); }};
  });
}

void add_elementwise() {
  const auto kernel = [](const char* name, Types types, double passes, auto run) {
    add_case(name, types, [=](Bench& bench, DType dtype) -> Work {
      const Tensor x = bench.normal({tokens, mlp}, dtype), y = bench.normal({tokens, mlp}, dtype);
      return {0, passes * bytes_of({x}), run(bench, x, y)};
    });
  };
  using T = const Tensor&;
  kernel("fill", Types::both, 1,
         [](Bench& bench, T x, T) { return [=, &bench] { fill(bench.context, x, 0); }; });
  kernel("copy", Types::both, 2,
         [](Bench& bench, T x, T y) { return [=, &bench] { copy(bench.context, x, y); }; });
  kernel("add", Types::both, 3,
         [](Bench& bench, T x, T y) { return [=, &bench] { add(bench.context, x, y); }; });
  kernel("scale", Types::f32, 2,
         [](Bench& bench, T x, T) { return [=, &bench] { scale(bench.context, x, 1.0f); }; });
  kernel("add_bias", Types::both, 2, [](Bench& bench, T x, T y) {
    return
        [=, &bench, bias = bench.normal({mlp}, x.dtype())] { add_bias(bench.context, x, bias, y); };
  });
  kernel("bias_backward", Types::both, 1, [](Bench& bench, T x, T) {
    return [=, &bench, grad = bench.normal_f32({mlp})] { bias_backward(bench.context, x, grad); };
  });
  kernel("sum", Types::f32, 1, [](Bench& bench, T x, T) {
    return [=, &bench, total = bench.empty({1}, DType::f64)] { sum(bench.context, x, total); };
  });
  kernel("square_sums", Types::f32, 1, [](Bench& bench, T x, T) {
    constexpr std::int64_t block = 64;  // as of the gradient norm
    return [=, &bench, sums = bench.empty({tokens * mlp / block}, DType::f64)] {
      square_sums(bench.context, x.view({tokens * mlp}), block, sums);
    };
  });
  kernel("fill_normal", Types::both, 1, [](Bench& bench, T x, T) {
    return [=, &bench] {
      fill_normal(bench.context, {.x = x, .key = 1, .global_rows = tokens, .global_columns = mlp});
    };
  });
  for (const float probability : {0.0f, 0.1f}) {
    kernel(probability > 0 ? "dropout_add/0.1" : "dropout_add/0", Types::both, 3,
           [=](Bench& bench, T x, T y) {
             const DropoutArgs dropout = bench.dropout(probability);
             return [=, &bench] {
               dropout_add(
                   bench.context,
                   {.dropout = dropout, .x = x, .residual = y, .y = y, .sequence = sequence});
             };
           });
  }
}

// 16 Mi parameters, on a GPU 64 Mi, far exceed the caches.
void add_optimizers() {
  const std::int64_t n = (on_gpu() ? 64 : 16) << 20;
  for (const bool copies : {false, true}) {
    const std::string suffix = copies ? "/bf16_copy" : "";
    add_case("adamw" + suffix, Types::f32, [=](Bench& bench, DType dtype) -> Work {
      AdamArgs args{.weight = bench.normal({n}, dtype),
                    .gradient = bench.normal({n}, dtype),
                    .moment1 = bench.normal({n}, dtype),
                    .moment2 = bench.empty({n}, dtype),
                    .learning_rate = 1e-4};
      fill(bench.context, args.moment2, 1);
      if (copies) args.model_weight = bench.normal({n}, DType::bf16);
      return {0, static_cast<double>(n) * (7.0 * sizeof(float) + (copies ? 2 : 0)),
              [=, &bench] { adam(bench.context, args); }};
    });
    add_case("sgd" + suffix, Types::f32, [=](Bench& bench, DType dtype) -> Work {
      SgdArgs args{.weight = bench.normal({n}, dtype),
                   .gradient = bench.normal({n}, dtype),
                   .momentum_buffer = bench.normal({n}, dtype),
                   .learning_rate = 1e-4,
                   .momentum = 0.9,
                   .step = 2};
      if (copies) args.model_weight = bench.normal({n}, DType::bf16);
      return {0, static_cast<double>(n) * (5.0 * sizeof(float) + (copies ? 2 : 0)),
              [=, &bench] { sgd(bench.context, args); }};
    });
  }
}

}  // namespace trident
