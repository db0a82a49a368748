#include "core/device.h"

#include <cstring>

namespace trident {
void Stream::write(void* to, std::span<const std::byte> from) {
  std::memcpy(to, from.data(), from.size());
}

void Stream::read(std::span<std::byte> to, const void* from) {
  std::memcpy(to.data(), from, to.size());
}

}  // namespace trident
