// The implementations of the collective operations, and the one place that chooses among them.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "parallel/collectives/collective.h"

namespace trident {

// Built in. A program adds its own by TransportOptions::more_collectives; they come first.
std::span<const Collective> collectives();

// The first row, of `more` or built in, that serves. Throws Error where none does, and RequestError
// where an algorithm was asked for that the case refuses; `place` gives the beginning of its text.
const Collective& choose(const CollectiveCase&, std::span<const Collective> more,
                         const std::function<std::string()>& place);

// The first row of an algorithm that isn't direct; null where there is none.
const Collective* row_of(Operation, Algorithm, std::span<const Collective> more);

std::size_t staging_bytes(const Collective&, const CollectiveCase&);

}  // namespace trident
