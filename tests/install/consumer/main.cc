// Uses the installed headers and library.
#include "core/dtype.h"

int main() {
  return trident::size_of(trident::DType::bf16) == 2 ? 0 : 1;
}
