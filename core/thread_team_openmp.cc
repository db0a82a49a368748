// OpenMP keeps one team for each master thread, and oneDNN uses the same one.
#include <omp.h>

#include "core/thread_team.h"

namespace trident {

struct ThreadTeam::Impl {};

ThreadTeam::ThreadTeam(int threads) : threads_(std::max(1, threads)) {}
ThreadTeam::~ThreadTeam() = default;

void ThreadTeam::run(int tasks, const std::function<void(int)>& task) {
  const int used = std::min(tasks, threads_);
#pragma omp parallel num_threads(used)
  {
    const int step = omp_get_num_threads();  // may be fewer than asked for
    for (int i = omp_get_thread_num(); i < tasks; i += step) task(i);
  }
}

void ThreadTeam::prepare_library() const {
  omp_set_num_threads(threads_);
  omp_set_dynamic(0);  // as many whatever the load, or OMP_DYNAMIC, says
}

}  // namespace trident
