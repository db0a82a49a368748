#include "app/commands.h"

namespace trident::app {

const char* version() {
  return TRIDENT_VERSION;
}

}  // namespace trident::app
