// Times every kernel of the contract at the sizes of GPT-2 124M, and compares it with the limits of
// this machine.
//
//   kernels_bench [--device=cuda] [--benchmark_filter=REGEX] [Google Benchmark's other options]
//
// On a GPU each case has 32 times the tokens, and the device's clock times ten consecutive runs.
// FLOP/s and B/s count the operation's minimum: each operand is read or written once, and attention
// counts its causal half alone. of_limit is the shortest possible time over the measured time. The
// shortest possible time is the longer of two: the FLOPs at the rate of a matrix product of this
// dtype, and the bytes at the rate at which 256 MiB, on a GPU 1 GiB, are copied or changed in
// place. It exceeds 1 if operands stay in the caches.
#include "bench/kernels_bench.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda_device.h"
#include "report/product_rate.h"

namespace trident {

std::unique_ptr<Device> bench_device;
std::int64_t tokens = 1024;

double bytes_of(std::initializer_list<Tensor> operands) {
  double bytes = 0;
  for (const Tensor& x : operands) bytes += static_cast<double>(x.bytes());
  return bytes;
}

bool on_gpu() {
  return bench_device->kind() == DeviceKind::cuda;
}

namespace {

struct Limits {
  double flops, bytes;  // a second
};

// The limits are measured once a process.
const Limits& limits_of(DType dtype, int threads) {
  static std::map<std::pair<DType, int>, Limits> known;
  const auto [found, missing] = known.try_emplace({dtype, threads});
  if (missing) {
    Bench bench(threads);
    const std::int64_t n = (on_gpu() ? 256 : 64) << 20;
    const Tensor from = bench.normal_f32({n}), to = bench.normal_f32({n});
    double best = 0;
    const auto run = [&](double bytes, auto work) {
      ClockReading begin, end;
      bench.context.mark(begin);
      work();
      bench.context.mark(end);
      bench.context.synchronize();
      best = std::max(best, 1e9 * bytes / static_cast<double>(end.wall_ns - begin.wall_ns));
    };
    for (int i = 0; i < 5; ++i) {
      run(bytes_of({from, to}), [&] { copy(bench.context, from, to); });
      run(bytes_of({to, to}), [&] { scale(bench.context, to, 1.0f); });
    }
    found->second = {product_rate(bench.context, dtype, usual_product(bench.context, dtype)), best};
  }
  return found->second;
}

void run_case(benchmark::State& state, const Make& make, DType dtype, int threads) {
  const Limits& limits = limits_of(dtype, threads);
  // On a GPU all cases share one, which keeps libraries' handles and plans.
  static std::unique_ptr<Bench> kept;
  if (!on_gpu() || kept == nullptr) kept = std::make_unique<Bench>(threads);
  Bench& bench = *kept;
  const Work work = make(bench, dtype);
  work.run();
  bench.context.synchronize();
  const int repeats = on_gpu() ? 10 : 1;
  for (auto _ : state) {
    ClockReading begin, end;
    // Two calls run ahead of the clock, so that the queue is never empty after it starts.
    for (int i = 0; on_gpu() && i < 2; ++i) work.run();
    bench.context.mark(begin);
    for (int i = 0; i < repeats; ++i) work.run();
    bench.context.mark(end);
    bench.context.synchronize();
    state.SetIterationTime(1e-9 * static_cast<double>(end.wall_ns - begin.wall_ns) / repeats);
  }
  const auto rate = [&](const char* name, double amount) {
    if (amount > 0) {
      state.counters[name] = benchmark::Counter(
          amount, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
    }
  };
  rate("FLOP/s", work.flops);
  rate("B/s", work.bytes);
  rate("of_limit", std::max(work.flops / limits.flops, work.bytes / limits.bytes));
}

// A failing case is reported, and the others still run.
void measure(benchmark::State& state, const Make& make, DType dtype, int threads) {
  try {
    run_case(state, make, dtype, threads);
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

}  // namespace

void add_case(const std::string& name, Types types, const Make& make) {
  const int all =
      on_gpu() ? 1 : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (dtype == DType::bf16 && types == Types::f32) continue;
    for (int threads = 1; threads <= all; threads = threads == all ? all + 1 : all) {
      benchmark::RegisterBenchmark(
          (name + "/" + std::string(name_of(dtype)) + "/threads:" + std::to_string(threads))
              .c_str(),
          measure, make, dtype, threads)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace trident

int main(int count, char** arguments) {
  using namespace trident;
  const auto chosen = std::find(arguments + 1, arguments + count, std::string("--device=cuda"));
  if (chosen != arguments + count) {
    bench_device = make_cuda_device(0);
    tokens *= 32;
    std::rotate(chosen, chosen + 1, arguments + count--);
  } else {
    bench_device = make_cpu_device();
  }
  add_linear(tokens, hidden, 3 * hidden);
  add_linear(tokens, hidden, hidden);
  add_linear(tokens, hidden, mlp);
  add_linear(tokens, mlp, hidden);
  add_linear(tokens / 4, hidden, vocabulary);
  add_fused_linear(tokens, hidden, mlp);
  for (const std::int64_t rows : {16, 64, 256}) add_experts(8, rows, hidden, 2048);
  add_attention({tokens / sequence, sequence, heads, heads, head_dim}, 0);
  add_attention({tokens / sequence, sequence, heads, heads, head_dim}, 0.1f);
  add_attention({1, 1024, heads, heads, head_dim}, 0);
  add_attention({1, 4096, heads, 3, head_dim}, 0);
  add_attention({1, 4096, heads, 3, head_dim}, 0, 512);
  add_norms();
  add_activations();
  add_embeddings();
  add_cross_entropy();
  add_elementwise();
  add_optimizers();
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 1;
  benchmark::AddCustomContext("device", on_gpu() ? gpu_info(0).name : cpu_backend().instructions());
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
