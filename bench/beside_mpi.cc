// Compares all-reduce over the MPI transport with MPI_Allreduce, in turns in one run: sums of fp32.
//
//   mpirun --bind-to none -n N beside_mpi [--deterministic] [--no-single-copy] [--messages]
//                                         [--sizes 4096,65536]
//
// --no-single-copy does in Trident what OMPI_MCA_btl_vader_single_copy_mechanism=none does in Open
// MPI: it copies as in containers that forbid a process to read another's memory. --messages treats
// each rank as a node of its own, so that no ranks share memory. Prints one line for each size: the
// microseconds of both, as medians of the slowest rank's, and MPI's time over ours (above 1: ours
// is faster).
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/context.h"
#include "kernels/elementwise.h"
#include "parallel/transport/mpi_library.h"
#include "parallel/transport/transport.h"

namespace {

using namespace trident;

struct Options {
  bool deterministic = false, messages = false, single_copy = true;
  std::vector<std::int64_t> sizes;
};

Options read(int count, char** arguments) {
  Options options;
  for (std::int64_t bytes = 4 << 10; bytes <= 256 << 20; bytes *= 4) options.sizes.push_back(bytes);
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--deterministic") {
      options.deterministic = true;
    } else if (argument == "--messages") {
      options.messages = true;
    } else if (argument == "--no-single-copy") {
      options.single_copy = false;
    } else if (argument == "--sizes" && i + 1 < count) {
      options.sizes.clear();
      for (char* at = std::strtok(arguments[++i], ","); at != nullptr;
           at = std::strtok(nullptr, ",")) {
        options.sizes.push_back(std::max(4ll, std::atoll(at)));
      }
    } else {
      std::fprintf(stderr, "beside_mpi: no option %s\n", argument.c_str());
      std::exit(2);
    }
  }
  return options;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The seconds of one of `calls` calls on the slowest rank.
template <class Call>
double timed(int calls, const Call& call) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (int i = 0; i < calls; ++i) call();
  double seconds = (MPI_Wtime() - begin) / calls;
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}

void measure(Transport& transport, const Options& options) {
  const auto device = make_cpu_device();
  Context context(*device, 1);
  const ProcessGroup world = transport.world();
  for (const std::int64_t bytes : options.sizes) {
    const std::int64_t n = bytes / 4;
    const Tensor tensor = context.empty({n}, DType::f32, Category::communication);
    fill(context, tensor, 0);
    std::vector<float> values(static_cast<std::size_t>(n));
    const auto ours = [&] { world.all_reduce(context, tensor); };
    const auto theirs = [&] {
      MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(n), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
    };
    const double first = timed(1, theirs) + timed(1, ours);  // touches the memory, too
    const int calls = static_cast<int>(std::clamp(2e-3 / first, 1.0, 20.0));
    const int rounds = static_cast<int>(std::clamp(1.5 / (first * calls), 5.0, 60.0));
    std::vector<double> own, mpi;
    for (int i = 0; i < rounds; ++i) {
      own.push_back(timed(calls, ours));
      mpi.push_back(timed(calls, theirs));
    }
    if (world.rank() == 0) {
      std::printf("%d ranks %10lld bytes: ours %10.1f us, MPI %10.1f us, ratio %5.2f\n",
                  world.size(), static_cast<long long>(bytes), 1e6 * median(own), 1e6 * median(mpi),
                  median(mpi) / median(own));
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  const Options options = read(count, arguments);
  run_mpi({.deterministic = options.deterministic,
           .ranks_per_node = options.messages ? 1 : 0,
           .single_copy = options.single_copy},
          [&](Transport& transport) { measure(transport, options); });
}
