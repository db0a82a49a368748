// MPI's own all-reduce, for compare_collectives.py: one line of JSON on rank 0.
//
//   mpirun -n N mpi_all_reduce BYTES
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const long bytes = count == 2 ? std::atol(arguments[1]) : 0;
  if (bytes < 4) {
    if (rank == 0) std::fprintf(stderr, "usage: mpi_all_reduce BYTES, at least 4\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  // The numbers of repeats and calls are those of `trident bench collectives`.
  const bool small = bytes < (1 << 20);
  const int repeats = small ? 50 : 7, calls = small ? 20 : 1;
  std::vector<float> values(static_cast<std::size_t>(bytes) / sizeof(float));
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int j = 0; j < calls; ++j) {
      MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT,
                    MPI_SUM, MPI_COMM_WORLD);
    }
    times.push_back((MPI_Wtime() - begin) / calls);
  }
  std::sort(times.begin(), times.end());
  if (rank == 0) std::printf("{\"microseconds\": %.3f}\n", 1e6 * times[times.size() / 2]);
  MPI_Finalize();
}
