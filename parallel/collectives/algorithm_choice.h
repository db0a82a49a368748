// The table of implementations of the collective operations, and choose(), the only function that
// chooses among them. Any thread may call it.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "parallel/collectives/collective.h"

namespace trident {

// The built-in rows. A program adds its own by TransportOptions::more_collectives; these come
// first.
std::span<const Collective> collectives();

// The first row, of `more` or built in, that serves the case. Throws Error where no row does, and
// RequestError where the case refuses the requested algorithm; `place` gives the beginning of the
// error's text.
const Collective& choose(const CollectiveCase&, std::span<const Collective> more,
                         const std::function<std::string()>& place);

// The first row of an algorithm other than direct; null where there is none.
const Collective* row_of(Operation, Algorithm, std::span<const Collective> more);

std::size_t staging_bytes(const Collective&, const CollectiveCase&);

}  // namespace trident
