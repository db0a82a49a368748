#include "app/processors.h"

#include <hwloc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <thread>

namespace trident::app {
namespace {

struct Free {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
  void operator()(hwloc_bitmap_s* set) const { hwloc_bitmap_free(set); }
};

}  // namespace

Processors find_processors() {
  const int system = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  // hwloc's plugins find GPUs and networks, which aren't needed here. In a package that brings its
  // own hwloc, the system's plugins may have another version.
  const char* const plugins = "HWLOC_PLUGINS_PATH";
  const bool ours = std::getenv(plugins) == nullptr && setenv(plugins, "/nonexistent", 0) == 0;
  hwloc_topology_t made = nullptr;
  const bool begun = hwloc_topology_init(&made) == 0;
  if (ours) unsetenv(plugins);
  if (!begun) return {system, system};
  const std::unique_ptr<hwloc_topology, Free> topology(made);
  // Counts only processors, as the system lists them, and leaves out caches, packages and devices.
  // The "x86" component would run code on each processor, which takes ten times as long.
  hwloc_topology_set_all_types_filter(made, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_components(made, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  // An environment variable may make hwloc describe another machine.
  if (hwloc_topology_load(made) != 0 || hwloc_topology_is_thissystem(made) == 0) {
    return {system, system};
  }
  const int all = std::max(1, hwloc_bitmap_weight(hwloc_topology_get_allowed_cpuset(made)));
  const std::unique_ptr<hwloc_bitmap_s, Free> bound(hwloc_bitmap_alloc());
  if (bound == nullptr || hwloc_get_cpubind(made, bound.get(), HWLOC_CPUBIND_THREAD) != 0) {
    return {all, all};
  }
  return {std::max(1, hwloc_bitmap_weight(bound.get())), all};
}

}  // namespace trident::app
