// The conformance suite: the promises that process groups keep on every transport. Each program
// that links it runs the tests over its own worlds: threads of one process, or the processes of an
// MPI job.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "parallel/transport/transport.h"

namespace trident::test {

// A world to test in. `run` calls the body on every rank in this process.
struct World {
  std::string name;  // letters and digits
  std::function<void(const TransportOptions&, const std::function<void(Transport&, Device&)>&)> run;
};
inline std::ostream& operator<<(std::ostream& out, const World& world) {
  return out << world.name;
}

// Each program that links the suite defines this function.
std::vector<World> worlds();

}  // namespace trident::test
