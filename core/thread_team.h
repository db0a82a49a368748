// The threads of one rank. Each rank has its own team. Results never depend on which thread ran a
// task, only on how the work is split.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>

namespace trident {

class ThreadTeam {
 public:
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  int size() const { return threads_; }

  // Calls task(i) for i in [0, tasks), task i on thread i mod size(). Returns when all tasks are
  // done. Only one caller at a time. A task must not throw.
  void run(int tasks, const std::function<void(int)>& task);

  // Splits [0, n) into at most size() consecutive parts of at least `grain` and calls f(begin, end)
  // for each. Runs in the caller's thread if one part is enough.
  template <class F>
  void parallel_for(std::int64_t n, std::int64_t grain, F&& f) {
    if (n <= 0) return;
    const std::int64_t parts = std::min<std::int64_t>(
        threads_, std::max<std::int64_t>(1, n / std::max<std::int64_t>(1, grain)));
    if (parts == 1) {
      f(std::int64_t{0}, n);
      return;
    }
    run(static_cast<int>(parts), [&](int i) { f(n * i / parts, n * (i + 1) / parts); });
  }

  // Makes oneDNN's own loops use this team's thread count in the calling thread.
  void prepare_library() const;

 private:
  struct Impl;
  int threads_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trident
